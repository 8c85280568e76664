"""Consumers that read from followers (KIP-392), and logs that diverge from what a consumer has read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.partition.partition import Partition
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.wire.apis.fetch import NO_REPLICA, EpochEndOffset, FetchPartitionResponse, FetchResponse
from minikafka.wire.frame_parts import buffer_of
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

LEADER, FOLLOWER, OTHER = 0, 1, 2
RACKS = {LEADER: "a", FOLLOWER: "b", OTHER: "b"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def cluster(selector: str = SELECTOR) -> Simulation:
    """Broker 0 in rack a leads a partition; brokers 1 and 2 in rack b follow."""
    made = Simulation()
    for number, rack in RACKS.items():
        made.machine_of(number).start({"broker.rack": rack, "replica.selector.class": selector})
    made.call(requests.place_topic("t", tuple(RACKS)))
    made.pass_time(1_000)
    return made


@pytest.fixture
def world() -> Simulation:
    return cluster()


def fetch(rack: str = "b", version: int = 11, offset: int = 0, **options: Any) -> Request:
    request = requests.fetch("t", offset, version=version, **options)
    return replace(request, body=replace(request.body, rack_id=rack))


def part_of(response: FetchResponse) -> FetchPartitionResponse:
    assert response.error_code == 0
    return response.topics[0].partitions[0]


def asked(world: Simulation, request: Request, broker: int = LEADER) -> FetchPartitionResponse:
    client = Client(world.network, world.machine_of(broker).host)
    return part_of(client.call(request))


def values(part: FetchPartitionResponse) -> list[bytes | None]:
    assert part.error_code == 0
    return [record.value for record in iterate(buffer_of(part.records))]


def write(world: Simulation, value: bytes) -> None:
    """Produce without waiting for the followers."""
    client = Client(world.network, world.machine.host)
    assert client.call(requests.produce("t", build_message_set([Record(None, value, 0)]), acks=1))


def replica(world: Simulation, number: int) -> Partition:
    return world.machine_of(number).broker.partitions[TopicPartition("t", 0)]


def test_leader_names_a_follower_in_the_consumers_rack(world: Simulation) -> None:
    write(world, b"a")
    world.pass_time(2_000)
    named = asked(world, fetch(wait_ms=60_000))
    assert named.preferred_read_replica in {FOLLOWER, OTHER}
    assert (values(named), named.high_watermark) == ([], 1)


def test_leader_names_the_furthest_follower(world: Simulation) -> None:
    world.machine_of(OTHER).held = True
    write(world, b"a")
    world.pass_time(2_000)
    assert asked(world, fetch()).preferred_read_replica == FOLLOWER


@pytest.mark.parametrize("rack", ["a", "c", ""], ids=["the leader's", "nobody's", "none"])
def test_leader_serves_consumers_of_other_racks(world: Simulation, rack: str) -> None:
    write(world, b"a")
    world.pass_time(2_000)
    served = asked(world, fetch(rack))
    assert (served.preferred_read_replica, values(served)) == (NO_REPLICA, [b"a"])


@pytest.mark.parametrize("selector", ["", SELECTOR.replace("RackAwareReplica", "Leader")])
def test_without_a_selector_the_leader_serves_all(selector: str) -> None:
    assert asked(cluster(selector), fetch()).preferred_read_replica == NO_REPLICA


def test_a_follower_without_the_offset_or_out_of_sync_is_not_named(world: Simulation) -> None:
    write(world, b"a")
    world.pass_time(2_000)
    for number in (FOLLOWER, OTHER):
        world.machine_of(number).held = True
    write(world, b"b")
    world.pass_time(500)
    assert asked(world, fetch(offset=1)).preferred_read_replica != NO_REPLICA
    assert asked(world, fetch(offset=2)).preferred_read_replica == NO_REPLICA
    world.pass_time(30_000)
    assert asked(world, fetch(offset=1)).preferred_read_replica == NO_REPLICA


def test_a_session_is_answered_with_the_replica_each_time(world: Simulation) -> None:
    request = fetch()
    client = Client(world.network, world.machine.host)
    began = client.call(replace(request, body=replace(request.body, session_epoch=0)))
    more = replace(request.body, session_id=began.session_id, session_epoch=1, topics=(), max_wait_ms=60_000)
    for response in (began, client.call(replace(request, body=more))):
        assert part_of(response).preferred_read_replica != NO_REPLICA


def test_a_follower_serves_what_is_committed(world: Simulation) -> None:
    write(world, b"a")
    world.pass_time(2_000)
    served = asked(world, fetch(), FOLLOWER)
    assert (values(served), served.high_watermark) == ([b"a"], 1)


def test_a_follower_refuses_consumers_of_older_versions(world: Simulation) -> None:
    assert asked(world, fetch(version=10), FOLLOWER).error_code == ErrorCode.NOT_LEADER_FOR_PARTITION


def test_a_consumer_waits_for_a_followers_high_watermark(world: Simulation) -> None:
    client = Client(world.network, world.machine_of(FOLLOWER).host)
    client.begin(fetch(wait_ms=10_000))
    began_ms = world.clock.monotonic_ms()
    write(world, b"a")
    assert values(part_of(client.finish())) == [b"a"]
    assert world.clock.monotonic_ms() - began_ms < 2_000


def test_above_its_high_watermark_a_follower_has_nothing_yet(world: Simulation) -> None:
    world.machine_of(OTHER).held = True
    write(world, b"a")
    world.pass_time(1_000)
    followed = replica(world, FOLLOWER)
    assert (followed.high_watermark, followed.log.end_offset) == (0, 1)
    assert values(asked(world, fetch(), FOLLOWER)) == []
    assert values(asked(world, fetch(offset=1), FOLLOWER)) == []
    assert asked(world, fetch(offset=2), FOLLOWER).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_checks_the_leader_epoch(world: Simulation) -> None:
    assert asked(world, fetch(leader_epoch=0), FOLLOWER).error_code == 0
    newer = asked(world, fetch(leader_epoch=7), FOLLOWER)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    world.machine.stop()
    world.pass_time(10_000)
    (led,) = (number for number in (FOLLOWER, OTHER) if replica(world, number).is_leader)
    older = asked(world, fetch(leader_epoch=0), FOLLOWER + OTHER - led)
    assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH


# --- Fetch 12 -----------------------------------------------------------------------------------------------


def after(epoch: int, offset: int, **options: Any) -> Request:
    """A fetch by a consumer whose last record was of this epoch."""
    request = fetch("", 12, offset, **options)
    topic = request.body.topics[0]
    part = replace(topic.partitions[0], last_fetched_epoch=epoch)
    return replace(request, body=replace(request.body, topics=(replace(topic, partitions=(part,)),)))


def test_a_consumer_that_has_what_the_log_has_reads_on(world: Simulation) -> None:
    write(world, b"a")
    write(world, b"b")
    world.pass_time(2_000)
    assert values(asked(world, after(0, 1))) == [b"b"]


def test_a_consumer_that_has_more_of_an_epoch_learns_its_end_at_once(world: Simulation) -> None:
    write(world, b"a")
    world.pass_time(2_000)
    diverged = asked(world, after(0, 5, wait_ms=60_000))
    assert diverged.diverging_epoch == EpochEndOffset(0, 1)
    assert values(diverged) == []


def test_an_epoch_that_the_log_does_not_know_has_no_offset(world: Simulation) -> None:
    assert asked(world, after(3, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
