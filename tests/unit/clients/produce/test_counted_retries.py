"""``clients/produce/sender`` with counted retries: look-ups, groups of batches, moves to other partitions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.produce.accumulator import RecordAccumulator
from minikafka.clients.produce.batch import RetryGroup
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.requests import MetadataTask, ProduceTask
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.sender import Sender
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.apis.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse

A, B, C = (TopicPartition("t", number) for number in range(3))
DATA = build_message_set([Record(None, b"v", 0)], magic=2)
LOST = NetworkError("the connection broke")


class CountingHarness:
    """A sender with counted retries, and leaders to be set by hand, which a failure makes unknown."""

    def __init__(self, retries: int = 3) -> None:
        config = BatchingConfig(retries=retries, retry_backoff_ms=100, delivery_timeout_ms=1 << 30)
        self.condition = threading.Condition()
        self.accumulator = RecordAccumulator(config, self.condition)
        self.leaders: dict[TopicPartition, int] = {A: 1, B: 1, C: 2}
        self.stale = False
        self.target: int | None = 1
        self.sender = Sender(
            self.accumulator, config, self, counts_lookups=True, other_partition=self.other_partition
        )
        self.condition.acquire()
        self.now_ms = 0

    def known_leader(self, tp: TopicPartition) -> int | None:
        return None if self.stale else self.leaders.get(tp)

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        return None

    def invalidate(self, topic: str) -> None:
        self.stale = True

    def update_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], endpoints: Iterable[NodeEndpoint]
    ) -> frozenset[TopicPartition]:
        self.leaders |= {tp: leader.broker_id for tp, leader in leaders.items()}
        return frozenset(leaders)

    def other_partition(self, tp: TopicPartition) -> int:
        if self.target is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition of topic 't' has a leader")
        return self.target

    def put(self, group: RetryGroup) -> SendFuture:
        return self.accumulator.append_encoded(group.topic_partition, DATA, 1, self.now_ms, group=group)

    def look_up(self, error: Exception | None = None) -> None:
        """Carry out the look-up that is due."""
        task = self.sender.next_task(self.now_ms)
        assert isinstance(task, MetadataTask)
        self.stale = error is not None
        errors = {} if error is None else {"t": error}
        self.sender.handle_metadata(task, errors, self.now_ms)  # type: ignore[arg-type]

    def produce(self) -> ProduceTask:
        task = self.sender.next_task(self.now_ms)
        assert isinstance(task, ProduceTask)
        return task

    def fail(self) -> None:
        """Let the next request fail, and the pause after it pass."""
        self.sender.handle_failure(self.produce(), LOST, self.now_ms)
        self.now_ms += 100

    def acknowledge(self) -> TopicPartition:
        """Let the next request succeed; return its partition."""
        task = self.produce()
        tp = task.batches[0].topic_partition
        rows = (ProducePartitionResponse(tp.partition, 0, 7),)
        response = ProduceResponse((ProduceTopicResponse(tp.topic, rows),))
        self.sender.handle_response(task, response, self.now_ms)
        return tp


def test_lookup_without_a_leader_counts_as_an_attempt() -> None:
    harness = CountingHarness(retries=2)
    del harness.leaders[A]
    future = harness.put(RetryGroup(A))
    for _ in range(3):
        assert not future.done
        harness.look_up()
        harness.now_ms += 100
    assert str(future.error) == "LEADER_NOT_AVAILABLE: t-0 has no leader"
    assert harness.sender.resends == 2


def test_lookup_that_reaches_no_broker_counts_as_an_attempt() -> None:
    harness = CountingHarness(retries=1)
    future = harness.put(RetryGroup(A))
    harness.fail()
    harness.look_up(NetworkError("nobody answers"))
    assert isinstance(future.error, NetworkError)
    assert str(future.error) == "no broker could be reached: nobody answers"


def test_error_of_a_topic_is_told_to_its_batches() -> None:
    harness = CountingHarness(retries=0)
    harness.leaders.clear()
    future = harness.put(RetryGroup(A))
    harness.look_up(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'"))
    assert str(future.error) == "UNKNOWN_TOPIC_OR_PARTITION: topic 't'"


def test_unknown_topic_is_told_to_batches_that_may_move() -> None:
    harness = CountingHarness(retries=0)
    harness.leaders.clear()
    harness.target = None
    future = harness.put(RetryGroup(A, movable=True))
    harness.look_up(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'"))
    assert str(future.error) == "UNKNOWN_TOPIC_OR_PARTITION: topic 't'"


def test_permanent_error_of_a_topic_fails_its_batches_at_once() -> None:
    harness = CountingHarness()
    harness.stale = True
    group = RetryGroup(A)
    futures = harness.put(group), harness.put(group)
    denied = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 't'")
    harness.look_up(denied)
    assert [future.error for future in futures] == [denied, denied]
    assert harness.accumulator.used_bytes == harness.sender.resends == 0


def test_missing_leader_does_not_count_for_other_partitions() -> None:
    harness = CountingHarness()
    lost, kept = harness.put(RetryGroup(A)), harness.put(RetryGroup(B))
    harness.fail()
    del harness.leaders[A]
    harness.look_up()
    assert harness.acknowledge() == B
    assert (lost.done, kept.error) == (False, None)


def test_lookup_that_was_interrupted_is_repeated_after_an_abort() -> None:
    harness = CountingHarness()
    harness.stale = True
    harness.put(RetryGroup(A))
    task = harness.sender.next_task(0)
    assert isinstance(task, MetadataTask)
    harness.sender.fail_task(task, MinikafkaError("interrupted"), 0)
    harness.sender.abort_incomplete(LOST)
    harness.put(RetryGroup(A))
    harness.now_ms = 100
    harness.look_up()
    assert harness.acknowledge() == A


def test_batch_that_was_aborted_while_it_is_encoded_fails_once() -> None:
    harness = CountingHarness()
    future = harness.put(RetryGroup(A))
    (batch,) = harness.produce().batches
    harness.sender.abort_incomplete(LOST)
    harness.sender.fail_batch(batch, BrokerError(ErrorCode.UNSUPPORTED_VERSION, "too old"))
    assert future.error is LOST
    assert harness.accumulator.used_bytes == 0


def test_pauses_have_one_length() -> None:
    harness = CountingHarness()
    harness.put(RetryGroup(A))
    for _ in range(3):
        harness.sender.handle_failure(harness.produce(), LOST, harness.now_ms)
        assert harness.sender.next_due_ms(harness.now_ms) == 100
        harness.now_ms += 100
        harness.look_up()


def test_batches_of_a_group_fail_together_and_later_ones_do_not() -> None:
    harness = CountingHarness(retries=1)
    group, later = RetryGroup(A), RetryGroup(A)
    first, second, other = harness.put(group), harness.put(group), harness.put(later)
    harness.fail()
    harness.look_up()
    harness.fail()
    assert first.error is second.error is group.error is LOST
    assert not other.done
    harness.look_up()
    harness.acknowledge()
    assert other.offset == 7


def test_acknowledged_batch_gives_its_group_all_retries_again() -> None:
    harness = CountingHarness(retries=1)
    group = RetryGroup(A)
    first, second = harness.put(group), harness.put(group)
    harness.fail()
    harness.look_up()
    harness.acknowledge()
    harness.fail()
    harness.look_up()
    harness.acknowledge()
    assert first.error is None
    assert second.offset == 7


def test_movable_batches_move_in_order_after_a_failed_attempt() -> None:
    harness = CountingHarness()
    keyed = harness.put(RetryGroup(B))
    groups = [RetryGroup(A, movable=True) for _ in range(2)]
    futures = [harness.put(group) for group in groups]
    stays = harness.put(RetryGroup(A))
    task = harness.produce()
    assert [batch.topic_partition for batch in task.batches] == [B, A]
    harness.sender.handle_failure(task, LOST, 0)
    harness.now_ms = 100
    harness.look_up()
    assert [future.topic_partition for future in (keyed, *futures, stays)] == [B, B, B, A]
    assert {group.topic_partition for group in groups} == {B}
    ended: list[SendFuture] = []
    while not all(future.done for future in (keyed, *futures, stays)):
        task = harness.produce()
        rows = tuple(ProducePartitionResponse(b.topic_partition.partition, 0, 7) for b in task.batches)
        harness.sender.handle_response(task, ProduceResponse((ProduceTopicResponse("t", rows),)), 100)
        ended += [f for f in (keyed, *futures) if f.done and f not in ended]
    assert ended == [keyed, *futures]
    assert harness.accumulator.used_bytes == 0


def test_movable_batch_moves_though_another_lookup_ends_in_its_pause() -> None:
    harness = CountingHarness()
    future = harness.put(RetryGroup(A, movable=True))
    harness.sender.handle_failure(harness.produce(), LOST, 0)
    keyed = harness.put(RetryGroup(C))
    harness.now_ms = 50
    harness.look_up()  # for C; the broker that is away is still named for A
    assert harness.acknowledge() == C
    assert keyed.done
    harness.now_ms = 100
    assert harness.sender.next_task(100) is None
    harness.now_ms = 150
    harness.look_up()
    assert harness.acknowledge() == B
    assert future.topic_partition == B


def test_movable_batch_without_a_leader_moves_before_its_first_attempt() -> None:
    harness = CountingHarness()
    del harness.leaders[A]
    future = harness.put(RetryGroup(A, movable=True))
    harness.look_up()
    assert harness.acknowledge() == B
    assert future.topic_partition == B
    assert harness.sender.resends == 0


@pytest.mark.parametrize("target", [None, 0])
def test_movable_batch_stays_if_no_other_partition_has_a_leader(target: int | None) -> None:
    harness = CountingHarness(retries=1)
    harness.target = target
    future = harness.put(RetryGroup(A, movable=True))
    harness.fail()
    harness.look_up()
    if target is None:
        assert str(future.error) == "LEADER_NOT_AVAILABLE: no partition of topic 't' has a leader"
    else:
        assert harness.acknowledge() == A


def test_leader_that_a_response_names_is_used_after_the_pause() -> None:
    harness = CountingHarness()
    future = harness.put(RetryGroup(A))
    row = ProducePartitionResponse(
        0, ErrorCode.NOT_LEADER_FOR_PARTITION, -1, current_leader=LeaderIdAndEpoch(2, 5)
    )
    endpoints = (NodeEndpoint(2, "h2", 9092),)
    response = ProduceResponse((ProduceTopicResponse("t", (row,)),), node_endpoints=endpoints)
    harness.sender.handle_response(harness.produce(), response, harness.now_ms)
    assert harness.sender.next_task(harness.now_ms) is None
    harness.now_ms += 100
    assert harness.produce().broker_id == 2
    assert (future.done, harness.stale) == (False, False)
