"""Kafka's own system tests of replication, with recording clients (``whole_cluster``).

replication_test: the leader or the controller is shut down or killed, once, or five times in a row with a
restart each. reassign_partitions_test: all partitions get other replicas while each broker in turn is stopped
or killed, and restarted. And the coordinator of a group is killed, ten times.

In the end all acknowledged records are read, in order, and all replicas have the same bytes.
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
    """Wait for a live broker with this role and return its id."""
    found: list[int] = []

    def role_is_taken() -> bool:
        found[:] = [system.leader(0) if role == "leader" else system.controller()]
        return found[0] in live_brokers(system.store)

    until(role_is_taken, f"there is no {role}")
    return found[0]


@ENDS
@ROLES
def test_nothing_is_lost_when_a_broker_is_shut_down(tmp_path: Path, role: str, end: End) -> None:
    with WholeCluster(tmp_path) as system:
        system.recover()
        number = victim(system, role)
        end(system.cluster, number)
        until(lambda: system.in_sync(2), "the others did not take over")
        system.wait_for_progress()
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
            until(lambda: number not in live_brokers(system.store), "its session did not end")  # noqa: B023
            system.cluster.restart(number)
        system.end()
        print(system.clients.counts())  # noqa: T201


@ENDS
def test_nothing_is_lost_while_partitions_move_and_brokers_bounce(tmp_path: Path, end: End) -> None:
    dice = Random(1)
    with WholeCluster(tmp_path, brokers=BROKERS, partitions=MOVED_PARTITIONS) as system:
        system.recover()
        choices = list(permutations(range(BROKERS), 3))
        wanted = {TopicPartition(TOPIC, number): dice.choice(choices) for number in range(MOVED_PARTITIONS)}
        reassignments.request(system.store, wanted)
        for number in range(BROKERS):
            end(system.cluster, number)
            system.cluster.restart(number)
        until(lambda: not reassignments.under_way(system.store), "the reassignment did not end")
        system.end()
        assert zookeeper_metadata.assigned(system.store, [TOPIC]) == wanted
        print(system.clients.counts())  # noqa: T201


def test_no_commit_is_lost_when_the_coordinator_is_killed_ten_times(tmp_path: Path) -> None:
    with WholeCluster(tmp_path) as system:
        system.recover()
        for turn in range(COORDINATORS):
            number = system.coordinator(GROUPS[turn % 2])
            system.cluster.kill(number)
            until(lambda: system.in_sync(2), "the others did not take over")
            assert number != system.coordinator(CONFLUENT)
            before = [dict(reader.committed_offsets) for reader in system.clients.readers]
            system.wait_for_progress()
            until(
                lambda: all(
                    not offsets or sum(reader.committed_offsets.values()) > sum(offsets.values())
                    for reader, offsets in zip(system.clients.readers, before, strict=True)  # noqa: B023
                ),
                "not all members have committed again",
            )
            assert system.clients.forgotten() == []
            system.cluster.restart(number)
            system.recover()
        system.end()
        print(system.clients.counts())  # noqa: T201
