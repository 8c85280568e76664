"""Markers that a leader appends for the coordinators of transactions."""

from __future__ import annotations

from typing import cast

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.partition.partition import Partition
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.transactions.marker_writer import (
    REPLICATION_TIMEOUT_MS,
    EndMarker,
    MarkerResults,
    MarkerWriter,
)
from tests.support import requests
from tests.support.marker_harness import MarkerHarness
from tests.support.transactions import part_of_transaction

E = ErrorCode
T0 = TopicPartition("t", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
PRODUCER = 7


class Groups:
    """The group coordinator: it notes what it is told of ended transactions."""

    def __init__(self) -> None:
        self.told: list[tuple[TopicPartition, int, int, bool]] = []

    def transaction_completed(
        self, topic_partition: TopicPartition, producer_id: int, marker_offset: int, *, commit: bool
    ) -> None:
        self.told.append((topic_partition, producer_id, marker_offset, commit))


class LeaderHarness(MarkerHarness):
    """Broker 0 with its writer. It leads t-0, which broker 1 follows."""

    def __init__(self, partitions: int = 3, **properties: str) -> None:
        super().__init__(partitions, **properties)
        self.groups = Groups()
        self.writer = MarkerWriter(self.broker, cast(GroupCoordinator, self.groups))
        self.results: list[MarkerResults] = []

    def partition(self, key: TopicPartition = T0) -> Partition:
        return self.broker.partitions[key]

    def begin_transaction(self, epoch: int = 0) -> None:
        """Append a batch of a transaction to t-0."""
        batch = part_of_transaction(PRODUCER, 3, epoch=epoch)
        self.broker.run(lambda: self.partition().append(batch, all_in_sync=True))
        self.world.pass_time(1_000)

    def begin(self, *keys: TopicPartition, epoch: int = 0, coordinator_epoch: int = 0) -> int:
        """Write a marker to partitions; return the number of steps."""
        marker = EndMarker(PRODUCER, epoch, coordinator_epoch, True, keys)
        return len(list(self.writer.write([marker], self.results.extend)))

    def write(self, *keys: TopicPartition, epoch: int = 0, coordinator_epoch: int = 0) -> MarkerResults:
        """Write a marker to partitions; return the results, which take no time."""
        self.begin(*keys, epoch=epoch, coordinator_epoch=coordinator_epoch)
        self.world.settle()
        (results,) = self.results
        self.results.clear()
        return results

    def hold_follower(self, *, held: bool) -> None:
        self.world.machine_of(1).held = held
        self.world.settle()


@pytest.fixture
def leader() -> LeaderHarness:
    return LeaderHarness()


def test_marker_ends_the_transaction_in_a_partition(leader: LeaderHarness) -> None:
    leader.begin_transaction()
    assert leader.partition().last_stable_offset == 0
    assert leader.write(T0) == {T0: E.NONE}
    assert leader.partition().last_stable_offset == leader.partition().log.end_offset == 4


def test_result_comes_once_all_in_sync_replicas_have_the_marker(leader: LeaderHarness) -> None:
    leader.hold_follower(held=True)
    leader.begin(T0)
    assert (leader.partition().log.end_offset, leader.results) == (1, [])
    leader.hold_follower(held=False)
    assert leader.results == [{T0: E.NONE}]


def test_marker_that_is_not_replicated_in_time_is_timed_out() -> None:
    leader = LeaderHarness(**{"replica.lag.time.max.ms": "60000"})
    leader.hold_follower(held=True)
    leader.begin(T0)
    leader.world.clock.advance(REPLICATION_TIMEOUT_MS)
    leader.world.settle()
    assert leader.results == [{T0: E.REQUEST_TIMED_OUT}]


def test_leader_that_loses_a_partition_does_not_confirm_its_marker(leader: LeaderHarness) -> None:
    leader.hold_follower(held=True)
    leader.begin(T0)
    leader.broker.run(lambda: (leader.partition().drop_replica(), leader.broker.touch(T0)))
    assert leader.results == [{T0: E.NOT_LEADER_FOR_PARTITION}]


def test_partitions_of_other_brokers_and_of_nobody_are_refused(leader: LeaderHarness) -> None:
    followed, elsewhere, unknown = (TopicPartition("t", number) for number in (2, 1, 9))
    assert leader.write(followed, elsewhere, unknown, T0) == {
        followed: E.NOT_LEADER_FOR_PARTITION,
        elsewhere: E.NOT_LEADER_FOR_PARTITION,
        unknown: E.UNKNOWN_TOPIC_OR_PARTITION,
        T0: E.NONE,
    }


def test_marker_needs_enough_replicas_in_sync() -> None:
    leader = LeaderHarness(**{"min.insync.replicas": "3"})
    assert leader.write(T0) == {T0: E.NOT_ENOUGH_REPLICAS}
    assert leader.partition().log.end_offset == 0


def test_former_coordinator_is_refused(leader: LeaderHarness) -> None:
    assert leader.write(T0, coordinator_epoch=5) == {T0: E.NONE}
    assert leader.write(T0, coordinator_epoch=4) == {T0: E.TRANSACTION_COORDINATOR_FENCED}
    assert leader.write(T0, coordinator_epoch=5) == {T0: E.NONE}


def test_former_producer_is_refused(leader: LeaderHarness) -> None:
    leader.begin_transaction(epoch=3)
    assert leader.write(T0, epoch=2) == {T0: E.INVALID_PRODUCER_EPOCH}
    assert leader.write(T0, epoch=3) == {T0: E.NONE}


def test_partition_of_old_messages_has_no_markers() -> None:
    leader = LeaderHarness(**{"log.message.format.version": "0.10.1"})
    assert leader.write(T0) == {T0: E.UNSUPPORTED_FOR_MESSAGE_FORMAT}


def test_group_coordinator_learns_of_a_replicated_marker(leader: LeaderHarness) -> None:
    assert leader.world.call(requests.place_topic(OFFSETS_TOPIC, (0, 1))).topics[0].error_code == 0
    leader.world.settle()
    leader.hold_follower(held=True)
    leader.begin(T0, OFFSETS)
    assert leader.groups.told == []
    leader.hold_follower(held=False)
    assert leader.groups.told == [(OFFSETS, PRODUCER, 0, True)]


def test_group_coordinator_learns_of_no_marker_that_failed(leader: LeaderHarness) -> None:
    assert leader.write(OFFSETS) == {OFFSETS: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert leader.groups.told == []


def test_many_markers_are_appended_in_several_steps() -> None:
    leader = LeaderHarness(partitions=360)
    led = [TopicPartition("t", number) for number in range(0, 360, 3)]
    assert leader.begin(*led) == 3
    leader.world.settle()
    assert leader.results == [dict.fromkeys(led, E.NONE)]


def test_markers_without_partitions_are_done_at_once(leader: LeaderHarness) -> None:
    assert leader.write() == {}
