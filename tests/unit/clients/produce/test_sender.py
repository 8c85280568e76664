"""``clients/produce/sender``: the batches of a request, and the effects of responses and failures."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, LocalWireError, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.produce import sender
from minikafka.clients.produce.accumulator import RecordAccumulator
from minikafka.clients.produce.batch import BatchSource, message_bytes
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.requests import MetadataTask, ProduceTask, produce_request
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.sender import Sender
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.records.format.stored_batch import SENT_HEADER_BYTES
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.apis.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
    RecordError,
)

A, B, C, D = (TopicPartition("t", number) for number in range(4))
OTHER = TopicPartition("u", 0)
SIZE = message_bytes(None, b"v")
LOST = NetworkError("the connection broke")


class SenderHarness:
    """A sender with its accumulator, and leaders to be set by hand."""

    def __init__(self, **settings: int) -> None:
        self.config = BatchingConfig(**settings)  # type: ignore[arg-type]
        self.condition = threading.Condition()
        self.accumulator = RecordAccumulator(self.config, self.condition)
        self.leaders: dict[TopicPartition, int] = {A: 1, B: 1, C: 2, D: 2}
        self.invalid: list[str] = []
        self.sender = Sender(self.accumulator, self.config, self)
        self.condition.acquire()

    def known_leader(self, tp: TopicPartition) -> int | None:
        return self.leaders.get(tp)

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        return (1,) if tp in self.leaders else None

    def invalidate(self, topic: str) -> None:
        self.invalid.append(topic)

    def update_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], endpoints: Iterable[NodeEndpoint]
    ) -> frozenset[TopicPartition]:
        reachable = {endpoint.node_id for endpoint in endpoints}
        taken = {tp: leader.broker_id for tp, leader in leaders.items() if leader.broker_id in reachable}
        self.leaders |= taken
        return frozenset(taken)

    def put(self, *partitions: TopicPartition, now_ms: int = 0) -> list[SendFuture]:
        return [self.accumulator.append(tp, Record(None, b"v", 0), SIZE, now_ms)[0] for tp in partitions]

    def produce(self, now_ms: int = 0) -> ProduceTask:
        task = self.sender.next_task(now_ms)
        assert isinstance(task, ProduceTask)
        return task


def answer(task: ProduceTask, *codes: ErrorCode, base: int = 100) -> ProduceResponse:
    """``codes`` for the batches of ``task`` in order, NONE where they end."""
    given = [*codes, *[ErrorCode.NONE] * len(task.batches)]
    topics: dict[str, list[ProducePartitionResponse]] = {}
    for batch, code in zip(task.batches, given, strict=False):
        tp = batch.topic_partition
        offset = base if code is ErrorCode.NONE else -1
        topics.setdefault(tp.topic, []).append(ProducePartitionResponse(tp.partition, int(code), offset))
    return ProduceResponse(tuple(ProduceTopicResponse(name, tuple(rows)) for name, rows in topics.items()))


def partitions_of(task: ProduceTask) -> list[TopicPartition]:
    return [batch.topic_partition for batch in task.batches]


def test_batches_of_one_leader_go_out_together() -> None:
    harness = SenderHarness()
    harness.put(A, C, B, D)
    first, second = harness.produce(), harness.produce()
    assert (first.broker_id, partitions_of(first)) == (1, [A, B])
    assert (second.broker_id, partitions_of(second)) == (2, [C, D])
    assert harness.sender.next_task(0) is None


def test_a_request_holds_no_more_than_its_limit() -> None:
    harness = SenderHarness(max_request_bytes=2 * SIZE)
    harness.leaders |= {C: 1, D: 1}
    harness.put(A, B, C)
    assert partitions_of(harness.produce()) == [A, B]
    assert partitions_of(harness.produce()) == [C]


def test_request_for_copies_has_no_more_than_brokers_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MAX_COPIES", 2, raising=False)
    harness = SenderHarness()
    harness.leaders |= {C: 1, D: 1}
    source = BatchSource(OTHER, 0, bytes(SENT_HEADER_BYTES), 100, bytearray)
    for tp in (A, B, C):
        harness.accumulator.append_copy(tp, source, 1, 0)
    assert partitions_of(harness.produce()) == [A, B]
    assert harness.sender.has_more_tasks
    assert partitions_of(harness.produce()) == [C]


def test_a_broker_without_a_request_leaves_more_tasks() -> None:
    harness = SenderHarness()
    harness.put(A, C)
    harness.produce()
    assert harness.sender.has_more_tasks
    harness.produce()
    assert not harness.sender.has_more_tasks


def test_batches_beyond_the_limit_of_a_request_are_more_tasks() -> None:
    harness = SenderHarness(max_request_bytes=SIZE)
    harness.put(A, B)
    harness.produce()
    assert harness.sender.has_more_tasks


def test_batches_of_a_busy_broker_are_no_more_tasks() -> None:
    harness = SenderHarness(max_request_bytes=SIZE, max_in_flight=1)
    harness.put(A, B)
    harness.produce()
    assert not harness.sender.has_more_tasks


def test_batches_beside_a_metadata_request_are_more_tasks() -> None:
    harness = SenderHarness()
    harness.put(OTHER, A)
    assert isinstance(harness.sender.next_task(0), MetadataTask)
    assert harness.sender.has_more_tasks


def test_no_more_requests_than_allowed_are_under_way_per_broker() -> None:
    harness = SenderHarness(max_in_flight=1)
    harness.put(A)
    task = harness.produce()
    harness.put(B, C)
    assert harness.produce().broker_id == 2
    assert harness.sender.next_task(0) is None
    harness.sender.handle_response(task, answer(task), 0)
    assert partitions_of(harness.produce()) == [B]


def test_acknowledged_records_have_their_offsets() -> None:
    harness = SenderHarness()
    futures = harness.put(A, A, B)
    task = harness.produce()
    harness.sender.handle_response(task, answer(task, base=7), 0)
    assert [d.result().offset for d in futures] == [7, 8, 7]
    assert harness.accumulator.incomplete_batches() == []


def test_the_silence_of_acks_0_is_success_without_an_offset() -> None:
    harness = SenderHarness(acks=0)
    (future,) = harness.put(A)
    harness.sender.handle_response(harness.produce(), None, 0)
    assert future.result().offset == -1


@pytest.mark.parametrize(
    "error", [LOST, BrokerError(ErrorCode.NOT_LEADER_FOR_PARTITION), BrokerError(ErrorCode.CORRUPT_MESSAGE)]
)
def test_retriable_error_is_retried_after_backoff_and_new_metadata(error: MinikafkaError) -> None:
    harness = SenderHarness()
    (future,) = harness.put(A)
    task = harness.produce()
    harness.sender.handle_failure(task, error, 0)
    assert harness.invalid == ["t"]
    assert harness.sender.next_task(99) is None
    assert harness.sender.next_due_ms(60) == 40
    again = harness.produce(100)
    assert again.batches == task.batches
    harness.sender.handle_response(again, answer(again), 100)
    assert future.result().offset == 100


def test_pauses_grow_with_each_failure() -> None:
    harness = SenderHarness()
    harness.put(A)
    now, pauses = 0, []
    for _ in range(6):
        harness.sender.handle_failure(harness.produce(now), LOST, now)
        due = harness.sender.next_due_ms(now)
        assert due is not None
        pauses.append(due)
        now += due
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]


def test_each_partition_is_judged_by_its_own_code() -> None:
    harness = SenderHarness()
    a, b = harness.put(A, B)
    task = harness.produce()
    harness.sender.handle_response(task, answer(task, ErrorCode.NOT_ENOUGH_REPLICAS), 0)
    assert b.done
    assert not a.done
    assert partitions_of(harness.produce(100)) == [A]


def test_a_retry_is_never_overtaken() -> None:
    harness = SenderHarness(batch_bytes=SIZE)
    futures = harness.put(A, A, A)
    first = harness.produce()
    assert harness.sender.next_task(0) is None
    harness.sender.handle_failure(first, LOST, 0)
    assert harness.sender.next_task(50) is None
    for offset in (10, 11, 12):
        task = harness.produce(100)
        harness.sender.handle_response(task, answer(task, base=offset), 100)
    assert [d.result().offset for d in futures] == [10, 11, 12]


def test_what_does_not_pass_fails_at_once_and_the_next_batch_goes_on() -> None:
    harness = SenderHarness(batch_bytes=SIZE)
    first, second = harness.put(A, A)
    task = harness.produce()
    harness.sender.handle_response(task, answer(task, ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0)
    assert isinstance(first.error, BrokerError)
    assert str(first.error) == (
        "TOPIC_AUTHORIZATION_FAILED: broker 1 rejected 1 record for t-0; "
        "not authorized: Write on Topic:t (see `minikafka acl list`)"
    )
    assert partitions_of(harness.produce()) == [A]
    assert not second.done


def test_a_request_that_cannot_be_encoded_fails() -> None:
    harness = SenderHarness()
    (future,) = harness.put(A)
    harness.sender.handle_failure(harness.produce(), LocalWireError("too long"), 0)
    with pytest.raises(LocalWireError):
        future.result()


def test_retries_are_counted() -> None:
    harness = SenderHarness(retries=2)
    (future,) = harness.put(A)
    for now_ms in (0, 1_000, 2_000):
        assert not future.done
        harness.sender.handle_failure(harness.produce(now_ms), LOST, now_ms)
    assert future.error is LOST


def test_corrupt_message_is_retried_as_often_as_other_errors() -> None:
    harness = SenderHarness(retries=4)
    (future,) = harness.put(A)
    for now_ms in (0, 1_000, 2_000, 3_000, 4_000):
        assert not future.done
        task = harness.produce(now_ms)
        harness.sender.handle_response(task, answer(task, ErrorCode.CORRUPT_MESSAGE), now_ms)
    assert "a record without a key in a compacted topic" in str(future.error)


def test_delivery_timeout_fails_with_the_last_error() -> None:
    harness = SenderHarness(request_timeout_ms=1_000, delivery_timeout_ms=1_000)
    (future,) = harness.put(A)
    for now_ms in (0, 100, 300, 700):
        assert not future.done
        harness.sender.handle_failure(harness.produce(now_ms), LOST, now_ms)
    assert str(future.error) == (
        "1 record for t-0 not acknowledged within 1000 ms after 4 failed attempts: the connection broke"
    )


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_too_few_replicas_in_sync_are_told_with_those_that_are(code: ErrorCode) -> None:
    harness = SenderHarness(request_timeout_ms=150, delivery_timeout_ms=150)
    (future,) = harness.put(A)
    for now_ms in (0, 100):
        task = harness.produce(now_ms)
        harness.sender.handle_response(task, answer(task, code), now_ms)
    assert str(future.error) == (
        f"1 record for t-0 not acknowledged within 150 ms after 2 failed attempts: {code.name}: "
        "broker 1 rejected 1 record for t-0; fewer replicas are in sync (brokers: 1) than the topic's "
        "min.insync.replicas"
    )
    assert isinstance(future.error, NetworkError)
    assert isinstance(future.error.__cause__, BrokerError)


def test_a_batch_that_never_found_a_leader_tells_why() -> None:
    harness = SenderHarness(request_timeout_ms=1_000, delivery_timeout_ms=1_000)
    (future,) = harness.put(OTHER)
    task = harness.sender.next_task(0)
    assert task == MetadataTask(("u",))
    harness.sender.handle_metadata(task, {"u": NetworkError("nobody answers")}, 0)
    harness.sender.next_task(1_000)
    assert "after 0 failed attempts: nobody answers" in str(future.error)


def throttled_sender(throttle_ms: int) -> tuple[SenderHarness, SendFuture]:
    """Return a sender whose broker has paused it before the second of two requests, and a batch behind it."""
    harness = SenderHarness(request_timeout_ms=9_000, delivery_timeout_ms=9_000, max_in_flight=1)
    harness.put(A)
    task = harness.produce()
    harness.put(A)
    harness.sender.handle_response(task, replace(answer(task), throttle_time_ms=throttle_ms), 0)
    harness.produce()
    (waiting,) = harness.put(B)
    return harness, waiting


def test_a_batch_that_expires_by_a_quota_tells_so() -> None:
    harness, waiting = throttled_sender(31_000)
    harness.sender.next_task(9_000)
    assert str(waiting.error) == (
        "1 record for t-1 not acknowledged within 9000 ms after 0 failed attempts: broker 1 paused this "
        "client by its quota (throttle_time_ms=31000); send less, or raise producer_byte_rate"
    )


def test_a_batch_that_expires_behind_others_blames_no_leader() -> None:
    harness, waiting = throttled_sender(0)
    harness.sender.next_task(9_000)
    assert str(waiting.error).endswith("attempts: it waited for responses of broker 1 to earlier requests")


def test_a_wait_by_a_quota_is_told_after_two_seconds_and_every_ten() -> None:
    harness, _ = throttled_sender(31_000)
    assert harness.sender.next_due_ms(0) == 2_000
    assert not harness.sender.is_warning_due(1_999)
    assert harness.sender.is_warning_due(2_000)
    assert harness.sender.retry_warning(2_000) == (
        "2 records for t-0, t-1 not acknowledged for 2 s: broker 1 paused this client by its quota "
        "(throttle_time_ms=31000); send less, or raise producer_byte_rate; waiting, for 7 s more"
    )
    assert harness.sender.retry_warning(11_999) is None
    assert str(harness.sender.retry_warning(12_000)).startswith("still 2 records for t-0, t-1 ")


def test_a_pause_that_is_over_is_told_no_more() -> None:
    harness, _ = throttled_sender(500)
    assert harness.sender.retry_warning(2_600) is None
    assert not harness.sender.has_retry_warning
    assert harness.sender.next_due_ms(2_600) != 0


def test_leaders_are_looked_for_once_at_a_time_and_not_in_a_loop() -> None:
    harness = SenderHarness()
    harness.put(OTHER, A)
    task = harness.sender.next_task(0)
    assert task == MetadataTask(("u",))
    assert partitions_of(harness.produce()) == [A]
    assert harness.sender.next_task(10_000) is None  # the question is under way
    harness.sender.handle_metadata(task, {}, 10_000)
    assert harness.sender.next_task(10_000) is None
    assert harness.sender.next_due_ms(10_000) == 100
    assert harness.sender.next_task(10_100) == MetadataTask(("u",))
    harness.leaders[OTHER] = 2
    assert partitions_of(harness.produce(10_100)) == [OTHER]


def test_too_large_batch_is_split_until_it_fits_or_is_one_record() -> None:
    harness = SenderHarness()
    futures = harness.put(A, A, A, A)
    harness.put(B)
    task = harness.produce()
    harness.sender.handle_response(task, answer(task, ErrorCode.MESSAGE_TOO_LARGE), 0)
    task = harness.produce()
    assert [batch.count for batch in task.batches] == [2]
    harness.sender.handle_response(task, answer(task, ErrorCode.RECORD_LIST_TOO_LARGE), 0)
    offsets = iter((50, 51, 52))
    task = harness.produce()
    harness.sender.handle_response(task, answer(task, ErrorCode.MESSAGE_TOO_LARGE), 0)
    while not all(d.done for d in futures):
        task = harness.produce()
        harness.sender.handle_response(task, answer(task, base=next(offsets)), 0)
    error = futures[0].error
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(error)
    assert [d.result().offset for d in futures[1:]] == [50, 51, 52]
    assert harness.accumulator.used_bytes == 0


def test_a_partition_left_out_of_the_answer_is_sent_again() -> None:
    harness = SenderHarness()
    (future,) = harness.put(A)
    harness.sender.handle_response(harness.produce(), ProduceResponse(()), 0)
    assert not future.done
    assert partitions_of(harness.produce(100)) == [A]


def test_a_refused_batch_fails_alone() -> None:
    harness = SenderHarness()
    a, b = harness.put(A, B)
    task = harness.produce()
    refusal = BrokerError(ErrorCode.UNSUPPORTED_VERSION, "magic")
    harness.sender.fail_batch(task.batches[0], refusal)
    task = task.without(task.batches[0])
    harness.sender.handle_response(task, answer(task), 0)
    assert a.error is refusal
    assert b.result().offset == 100


def test_abandoned_deliveries_fail_and_late_answers_change_nothing() -> None:
    harness = SenderHarness(batch_bytes=SIZE)
    futures = harness.put(A, A)
    task = harness.produce()
    harness.sender.abort_incomplete(LOST)
    assert [d.error for d in futures] == [LOST, LOST]
    harness.sender.handle_response(task, answer(task), 0)
    harness.sender.handle_failure(ProduceTask(1, task.batches), LOST, 0)
    assert futures[0].error is LOST
    assert harness.accumulator.used_bytes == 0


def test_failed_task_fails_its_batches_and_frees_its_request() -> None:
    harness = SenderHarness(max_in_flight=1)
    (future,) = harness.put(A)
    task, defect = harness.produce(), MinikafkaError("defect")
    harness.sender.fail_task(task, defect, 0)
    harness.put(A)
    again = harness.produce()
    harness.sender.fail_task(task, defect, 0)  # has ended
    assert future.error is defect
    assert harness.sender.tasks_under_way() == [again]


def test_failed_lookup_fails_batches_without_a_leader_only() -> None:
    harness = SenderHarness()
    lost, kept = harness.put(OTHER, A)
    task, defect = harness.sender.next_task(0), MinikafkaError("defect")
    assert task == MetadataTask(("u",))
    assert harness.sender.tasks_under_way() == [task]
    harness.sender.fail_task(task, defect, 0)
    assert (lost.error, kept.done) == (defect, False)
    harness.put(OTHER)
    assert harness.sender.tasks_under_way() == []
    assert partitions_of(harness.produce()) == [A]
    assert harness.sender.next_task(100) == task


def test_settled_deliveries_with_callbacks_are_handed_out_once() -> None:
    harness = SenderHarness()
    first, second = harness.put(A, A)
    harness.condition.release()
    second.on_done(lambda _: None)
    harness.condition.acquire()
    assert not harness.sender.has_callbacks
    task = harness.produce()
    harness.sender.handle_response(task, answer(task), 0)
    assert first.done
    assert harness.sender.take_callbacks() == [second]
    assert harness.sender.take_callbacks() == []


def test_requests_name_each_topic_once() -> None:
    harness = SenderHarness()
    harness.leaders[OTHER] = 1
    harness.put(A, OTHER, B)
    task = harness.produce()
    request = produce_request(task, [b"a", b"o", b"b"], -1, 77)
    assert [(t.name, [(p.index, p.records) for p in t.partitions]) for t in request.topics] == [
        ("t", [(0, b"a"), (1, b"b")]),
        ("u", [(0, b"o")]),
    ]
    assert (request.acks, request.timeout_ms) == (-1, 77)


NOT_LEADER = ErrorCode.NOT_LEADER_FOR_PARTITION


def moved_to(
    leader: int, task: ProduceTask, *endpoints: int, code: ErrorCode = NOT_LEADER
) -> ProduceResponse:
    """The answer of a broker that names ``leader`` for each partition."""
    (topic,) = answer(task, *[code] * len(task.batches)).topics
    rows = tuple(replace(row, current_leader=LeaderIdAndEpoch(leader, 5)) for row in topic.partitions)
    addresses = tuple(NodeEndpoint(node, f"h{node}", 9092) for node in endpoints)
    return ProduceResponse((replace(topic, partitions=rows),), node_endpoints=addresses)


def test_batch_is_sent_at_once_to_the_leader_that_the_response_names() -> None:
    harness = SenderHarness()
    (future,) = harness.put(A)
    task = harness.produce()
    harness.sender.handle_response(task, moved_to(2, task, 2), 0)
    assert harness.invalid == []
    again = harness.produce(0)
    assert (again.broker_id, partitions_of(again)) == (2, [A])
    harness.sender.handle_response(again, answer(again), 0)
    assert (future.error, harness.sender.resends) == (None, 1)


@pytest.mark.parametrize(
    ("leader", "endpoints", "code"),
    [
        (2, (), NOT_LEADER),
        (2, (3,), NOT_LEADER),
        (1, (1,), NOT_LEADER),
        (-1, (2,), NOT_LEADER),
        (2, (2,), ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
    ids=["no address", "other address", "itself", "none", "another error"],
)
def test_leader_is_looked_up_where_the_response_does_not_name_another(
    leader: int, endpoints: tuple[int, ...], code: ErrorCode
) -> None:
    harness = SenderHarness()
    harness.put(A)
    task = harness.produce()
    harness.sender.handle_response(task, moved_to(leader, task, *endpoints, code=code), 0)
    assert harness.invalid == [A.topic]
    assert harness.sender.next_task(0) is None  # after the back-off
    assert harness.leaders[A] == 1


def refused(
    task: ProduceTask, code: ErrorCode, *rows: RecordError, why: str | None = None
) -> ProduceResponse:
    (topic,) = answer(task, code).topics
    (row,) = topic.partitions
    row = replace(row, record_errors=rows, error_message=why)
    return ProduceResponse((replace(topic, partitions=(row,)),))


def test_refused_record_and_the_others_of_its_batch_have_their_errors() -> None:
    harness = SenderHarness()
    futures = harness.put(A, A, A)
    task = harness.produce()
    bad = RecordError(1, "the time is invalid")
    harness.sender.handle_response(task, refused(task, ErrorCode.INVALID_TIMESTAMP, bad), 0)
    first, second, third = (str(future.error) for future in futures)
    assert second == (
        "INVALID_TIMESTAMP: broker 1 rejected record 1 (the first is 0) of 3 records for "
        f"{A}: the time is invalid"
    )
    others = f"INVALID_RECORD: broker 1 rejected 3 records for {A}: record 1: the time is invalid"
    assert (first, third) == (others, others)


def test_several_refused_records_are_invalid_and_three_are_listed() -> None:
    harness = SenderHarness()
    futures = harness.put(*[A] * 6)
    task = harness.produce()
    rows = [RecordError(number, "no key" if number else None) for number in range(5)]
    response = refused(task, ErrorCode.INVALID_TIMESTAMP, *rows, why="some are invalid")
    harness.sender.handle_response(task, response, 0)
    assert str(futures[0].error).startswith("INVALID_RECORD: broker 1 rejected record 0")
    assert str(futures[0].error).endswith(": some are invalid")
    assert str(futures[5].error).endswith(
        ": record 0: some are invalid, record 1: no key, record 2: no key and 2 more"
    )


def test_refused_records_of_an_encoded_set_are_named_in_its_error() -> None:
    harness = SenderHarness()
    data = build_message_set([Record(None, b"v", 0)] * 3, magic=2)
    future = harness.accumulator.append_encoded(A, data, 3, 0)
    task = harness.produce()
    response = refused(task, ErrorCode.INVALID_RECORD, RecordError(0, "no key"))
    harness.sender.handle_response(task, response, 0)
    assert str(future.error) == f"INVALID_RECORD: broker 1 rejected 3 records for {A}: record 0: no key"


def test_the_brokers_message_about_a_batch_is_told() -> None:
    harness = SenderHarness()
    (future,) = harness.put(A)
    task = harness.produce()
    response = refused(task, ErrorCode.INVALID_RECORD, why="two batches")
    harness.sender.handle_response(task, response, 0)
    assert str(future.error) == f"INVALID_RECORD: broker 1 rejected 1 record for {A}: two batches"
