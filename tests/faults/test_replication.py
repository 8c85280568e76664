"""What Kafka's own system tests of replication demand, with clients that watch (``whole_cluster``).

replication_test: the leader or the controller is shut down or killed, once, or five times one after the other
with a restart each. reassign_partitions_test: all partitions get other replicas while each broker in turn is
stopped or killed, and started again. And the coordinator of a group is killed, ten times.

In the end whatever was acknowledged is read, in its order, and all replicas have the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.zookeeper import reassignments
from minikafka.embedded.cluster import Cluster
from minikafka.registry.brokers import live_brokers
from tests.faults.watched_clients import CONFLUENT, GROUPS, TOPIC
from tests.faults.whole_cluster import WholeCluster, until

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]

BOUNCES = 5
COORDINATORS = 10
MOVED_PARTITIONS = 12
BROKERS = 4
End = Callable[[Cluster, int], object]
ENDS = pytest.mark.parametrize("end", [Cluster.stop_broker, Cluster.kill], ids=["clean", "hard"])
ROLES = pytest.mark.parametrize("role", ["leader", "controller"])


def victim(system: WholeCluster, role: str) -> int:
    """Who has this role, as soon as somebody has it."""
    found: list[int] = []

    def somebody() -> bool:
        found[:] = [system.leader(0) if role == "leader" else system.controller()]
        return found[0] in live_brokers(system.store)

    until(somebody, f"there is no {role}")
    return found[0]


@ENDS
@ROLES
def test_nothing_is_lost_when_a_broker_is_shut_down(tmp_path: Path, role: str, end: End) -> None:
    with WholeCluster(tmp_path) as system:
        system.recover()
        number = victim(system, role)
        end(system.cluster, number)
        until(lambda: system.in_sync(2), "the others do not take over")
        system.go_on()
        assert system.clients.forgotten() == []
        system.cluster.restart(number)
        system.end()
        print(system.clients.counts())  # noqa: T201  # -rP shows it


@ENDS
@ROLES
def test_nothing_is_lost_when_a_broker_is_bounced_five_times(tmp_path: Path, role: str, end: End) -> None:
    with WholeCluster(tmp_path) as system:
        system.recover()
        for _ in range(BOUNCES):
            number = victim(system, role)
            end(system.cluster, number)
            until(lambda: number not in live_brokers(system.store), "it is not missed")  # noqa: B023
            system.cluster.restart(number)
        system.end()
        print(system.clients.counts())  # noqa: T201


@ENDS
def test_nothing_is_lost_when_partitions_move_while_every_broker_is_bounced(tmp_path: Path, end: End) -> None:
    chance = Random(1)
    with WholeCluster(tmp_path, brokers=BROKERS, partitions=MOVED_PARTITIONS) as system:
        system.recover()
        choices = list(permutations(range(BROKERS), 3))
        wanted = {TopicPartition(TOPIC, one): chance.choice(choices) for one in range(MOVED_PARTITIONS)}
        reassignments.request(system.store, reassignments.plan(system.store, wanted))
        for number in range(BROKERS):
            end(system.cluster, number)
            system.cluster.restart(number)
        until(lambda: not reassignments.under_way(system.store), "the reassignment does not end")
        system.end()
        assert zookeeper_metadata.assigned(system.store, [TOPIC]) == wanted
        print(system.clients.counts())  # noqa: T201


def test_commits_go_on_and_none_goes_back_when_the_coordinator_is_killed_ten_times(tmp_path: Path) -> None:
    with WholeCluster(tmp_path) as system:
        system.recover()
        for turn in range(COORDINATORS):
            number = system.coordinator(GROUPS[turn % 2])
            system.cluster.kill(number)
            until(lambda: system.in_sync(2), "the others do not take over")
            assert number != system.coordinator(CONFLUENT)
            before = [dict(one.told) for one in system.clients.readers]
            system.go_on()
            until(
                lambda: all(
                    not told or sum(one.told.values()) > sum(told.values())
                    for one, told in zip(system.clients.readers, before, strict=True)  # noqa: B023
                ),
                "not all members commit again",
            )
            assert system.clients.forgotten() == []
            system.cluster.restart(number)
            system.recover()
        system.end()
        print(system.clients.counts())  # noqa: T201
