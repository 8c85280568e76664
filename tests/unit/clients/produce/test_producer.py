"""``clients/produce/producer``: whole producers, in a simulation without threads and with their threads."""

from __future__ import annotations

import threading
from operator import attrgetter
from typing import Any

import pytest

from minikafka.base.clock import SystemClock
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.clients.produce.batch import RetryGroup
from minikafka.clients.produce.partitioner import StickyPartitioner
from minikafka.net.memory import Fault
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, produce_error
from tests.support.raising import raising

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4})


def producer_of(brokers: BrokerHarness, cluster: Any = None, **settings: Any) -> BatchingProducer:
    return BatchingProducer(
        cluster or brokers.client(),
        BatchingConfig(**settings),
        partitioner=StickyPartitioner(first_turn=0),
        threads=False,
    )


def run(producer: BatchingProducer) -> None:
    while producer.step():
        pass


@pytest.mark.parametrize("codec", Codec)
def test_records_arrive_in_order_with_their_offsets(brokers: BrokerHarness, codec: Codec) -> None:
    with producer_of(brokers, compression=codec) as producer:
        sent = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(100)]
    assert brokers.logs[A].values() == [b"%d" % n for n in range(0, 100, 2)]
    assert brokers.logs[B].values() == [b"%d" % n for n in range(1, 100, 2)]
    assert [d.result().offset for d in sent] == [n // 2 for n in range(100)]
    assert sent[3].result().topic_partition == B


def test_keys_null_values_and_times_arrive_as_they_are(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        producer.send("t", None, key=b"", partition=0, timestamp_ms=5)
        producer.send("t", b"", partition=0, timestamp_ms=6)
        producer.send("t", b"now", partition=0)
    stored = brokers.logs[A].records()
    assert [(r.key, r.value) for r in stored] == [(b"", None), (None, b""), (None, b"now")]
    assert [r.timestamp_ms for r in stored] == [5, 6, brokers.clock.now_ms()]


@pytest.mark.parametrize(("version", "magic"), [(1, 0), (2, 1), (3, 2), (7, 2), (9, 2), (11, 2)])
def test_messages_are_of_the_format_that_the_broker_takes(
    brokers: BrokerHarness, version: int, magic: int
) -> None:
    brokers.newest[ApiKey.PRODUCE] = version
    with producer_of(brokers) as producer:
        assert producer.magic(A) == magic
        producer.send("t", b"v", partition=0, timestamp_ms=5)
        producer.send("t", b"w", partition=0, timestamp_ms=5)
    records = brokers.logs[A].records()
    assert [(record.magic, record.offset) for record in records] == [(magic, 0), (magic, 1)]


def test_the_format_that_a_broker_takes_is_remembered_while_it_is_away(brokers: BrokerHarness) -> None:
    with producer_of(brokers, max_block_ms=1_000) as producer:
        assert producer.magic(A) == 2
        brokers.stop(1)
        assert producer.magic(A) == 2
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.magic(TopicPartition("t", 9))


def test_format_is_requested_from_the_next_leader_after_a_failure(brokers: BrokerHarness) -> None:
    partition = TopicPartition("t", 1)
    with brokers.client() as cluster:
        cluster.topic("t")
        brokers.move_leader(partition, 1)
        brokers.stop(2)
        assert producer_of(brokers, cluster).magic(partition) == 2


@pytest.mark.parametrize("version", [6, 2])
def test_zstd_is_not_sent_to_a_broker_that_does_not_know_it(brokers: BrokerHarness, version: int) -> None:
    brokers.newest[ApiKey.PRODUCE] = version
    with producer_of(brokers, compression=Codec.ZSTD) as producer:
        sent = producer.send("t", b"v", partition=0)
    assert isinstance(sent.error, BrokerError)
    assert sent.error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert "zstd, which needs Kafka 2.1" in str(sent.error)
    packed = build_message_set([Record(None, b"v")], magic=2, codec=Codec.ZSTD)
    with producer_of(brokers) as producer:
        refused = producer.send_encoded(A, packed, 1)
    assert isinstance(refused.error, BrokerError)
    assert brokers.asked(ApiKey.PRODUCE) == []


def test_a_set_of_an_older_format_goes_in_an_older_request(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        sent = producer.send_encoded(A, build_message_set([Record(None, b"v")], magic=1), 1)
        producer.flush()
        assert sent.result().offset == 0
        producer.send("t", b"w", partition=0)
    assert [version for _, key, version, _ in brokers.requests if key is ApiKey.PRODUCE] == [
        2,
        NEWEST_USED[ApiKey.PRODUCE],
    ]
    assert brokers.logs[A].values() == [b"v", b"w"]


def test_a_set_that_is_too_old_for_the_broker_fails_alone(brokers: BrokerHarness) -> None:
    brokers.oldest[ApiKey.PRODUCE] = 3
    with producer_of(brokers) as producer:
        refused = producer.send_encoded(A, build_message_set([Record(None, b"v")], magic=1), 1)
        taken = producer.send("t", b"w", partition=2)
    assert isinstance(refused.error, BrokerError)
    assert refused.error.code is ErrorCode.UNSUPPORTED_VERSION
    assert taken.result().offset == 0


def test_records_without_a_key_fill_a_batch_before_they_move_on(brokers: BrokerHarness) -> None:
    with producer_of(brokers, linger_ms=10, batch_bytes=35 * 3) as producer:
        sent = [producer.send("t", b"v") for _ in range(12)]
    assert [d.topic_partition.partition for d in sent] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_encoded_sets_arrive_unchanged_with_their_first_offset(brokers: BrokerHarness) -> None:
    sets = [build_message_set([Record(None, b"%d-%d" % (s, n)) for n in range(5)]) for s in range(3)]
    with producer_of(brokers) as producer:
        sent = [producer.send_encoded(B, data, 5) for data in sets]
    assert [(d.result().offset, d.result().count) for d in sent] == [(0, 5), (5, 5), (10, 5)]
    assert brokers.logs[B].values() == [b"%d-%d" % (s, n) for s in range(3) for n in range(5)]


def test_encoded_sets_are_not_copied_on_their_way(brokers: BrokerHarness) -> None:
    data = memoryview(bytearray(build_message_set([Record(None, b"v")])))
    cluster = brokers.client()
    producer = producer_of(brokers, cluster)
    producer.send_encoded(A, data, 1)
    seen: list[object] = []
    connect = brokers.network.connect

    def watching(host: str, port: int) -> Any:
        connection = connect(host, port)
        request = connection.request

        def watched(parts: Any, **limits: Any) -> Any:
            seen.extend(parts)
            return request(parts, **limits)

        connection.request = watched  # type: ignore[method-assign]
        return connection

    brokers.network.connect = watching  # type: ignore[method-assign]
    run(producer)
    assert any(part is data for part in seen)


def test_a_moved_leader_is_followed_without_loss_or_change_of_order(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, batch_bytes=100)
    sent = [producer.send("t", b"%d" % n, partition=0) for n in range(30)]
    for _ in range(4):
        producer.step()
    brokers.move_leader(A, 2)
    producer.close()
    assert brokers.logs[A].values() == [b"%d" % n for n in range(30)]
    assert [d.result().offset for d in sent] == list(range(30))


@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.DROP_REQUEST])
def test_requests_that_did_not_arrive_are_sent_again_in_order(brokers: BrokerHarness, fault: Fault) -> None:
    producer = producer_of(brokers, batch_bytes=100)
    producer.send("t", b"first", partition=0)
    run(producer)
    brokers.fault(1, fault, 2)
    for n in range(30):
        producer.send("t", b"%d" % n, partition=0)
    producer.close()
    assert brokers.logs[A].values() == [b"first", *[b"%d" % n for n in range(30)]]


@pytest.mark.parametrize("fault", [Fault.CUT_RESPONSE, Fault.DROP_RESPONSE])
def test_lost_answers_repeat_records_and_lose_none(brokers: BrokerHarness, fault: Fault) -> None:
    producer = producer_of(brokers, batch_bytes=100)
    producer.send("t", b"first", partition=0)
    run(producer)
    brokers.fault(1, fault)
    sent = [producer.send("t", b"%d" % n, partition=0) for n in range(30)]
    producer.close()
    values = brokers.logs[A].values()
    assert list(dict.fromkeys(values)) == [b"first", *[b"%d" % n for n in range(30)]]
    assert len(values) > 31
    for n, future in enumerate(sent):
        assert values[future.result().offset] == b"%d" % n


def test_outage_is_logged_each_minute_with_the_delivery_timeout(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"0", partition=0)
    run(producer)
    brokers.stop(1)
    brokers.stop(2)
    producer.send("t", b"1", partition=0)
    producer.flush()
    warning, *again = [record.getMessage() for record in caplog.records]
    assert again == [warning, warning]
    assert "broker 1 at memory:9001: cannot connect: " in warning
    assert "Connection refused" in warning
    assert warning.endswith("; retrying, for 120 s in total")


def test_lasting_rejection_is_logged_repeatedly_with_its_reason(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.script(ApiKey.PRODUCE, *[produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)] * 20)
    with producer_of(brokers, acks=-1) as producer:
        producer.send("t", b"0", partition=0)
        producer.send("t", b"1", partition=0)
    first, still = [record.getMessage() for record in caplog.records]
    assert first.startswith("minikafka: 2 records for t-0 not acknowledged for 2 s: NOT_ENOUGH_REPLICAS: ")
    assert first.endswith("(brokers: 1) than the topic's min.insync.replicas; retrying, for 118 s more")
    assert still.startswith("minikafka: still 2 records for t-0 not acknowledged for 1")


def test_a_partition_that_stays_without_a_leader_is_told(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    leader = brokers.leaders.pop(A)
    brokers.lose_leader(A)
    producer = producer_of(brokers)
    producer.send("t", b"0", partition=0)
    with pytest.raises(NetworkError):
        producer.flush(5_000)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "1 record for t-0 not acknowledged for 2 s: LEADER_NOT_AVAILABLE: " in warning
    assert "no leader for t-0 at the moment: broker 9 is down, or has other listeners; retrying" in warning
    brokers.move_leader(A, leader)
    producer.close()
    assert brokers.logs[A].values() == [b"0"]


def test_acks_0_waits_for_no_answer(brokers: BrokerHarness) -> None:
    with producer_of(brokers, acks=0) as producer:
        sent = [producer.send("t", b"%d" % n, partition=0) for n in range(3)]
    brokers.network.run()
    assert brokers.logs[A].values() == [b"0", b"1", b"2"]
    assert {d.result().offset for d in sent} == {-1}


def test_acks_all_and_a_time_out_before_ours_reach_the_broker(brokers: BrokerHarness) -> None:
    with producer_of(brokers, acks=-1, request_timeout_ms=1_000) as producer:
        producer.send("t", b"v")
    (request,) = brokers.asked(ApiKey.PRODUCE)
    assert (request.acks, request.timeout_ms) == (-1, 900)


def test_sets_too_large_for_the_topic_are_split_in_order(brokers: BrokerHarness) -> None:
    brokers.configure("t", "max.message.bytes", "100")
    sets = [build_message_set([Record(None, b"%d-%d" % (s, n)) for n in range(8)], magic=2) for s in range(2)]
    with producer_of(brokers) as producer:
        sent = [producer.send_encoded(B, data, 8) for data in sets]
    assert [(d.result().offset, d.result().count) for d in sent] == [(0, 8), (8, 8)]
    assert brokers.logs[B].values() == [b"%d-%d" % (s, n) for s in range(2) for n in range(8)]


def test_a_record_above_the_request_limit_is_refused_at_once(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, max_request_bytes=100)
    with pytest.raises(BrokerError, match=r"has 234 bytes, max.request.size is 100"):
        producer.send("t", b"x" * 200)


@pytest.mark.parametrize(("topic", "partition"), [("t", 4), ("t", -1), ("nope", None)])
def test_unknown_topics_and_partitions_are_refused_at_once(
    brokers: BrokerHarness, topic: str, partition: int | None
) -> None:
    with pytest.raises(BrokerError) as caught:
        producer_of(brokers).send(topic, b"v", partition=partition)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.clock.monotonic_ms() <= 5_000


def test_set_of_a_group_for_an_unknown_partition_fails_by_its_future(brokers: BrokerHarness) -> None:
    data = build_message_set([Record(None, b"v")], magic=2)
    producer = BatchingProducer(
        brokers.client(), BatchingConfig(retries=1), threads=False, counts_lookups=True
    )
    unknown = TopicPartition("gone", 0), TopicPartition("t", 9)
    futures = [producer.send_encoded(tp, data, 1, group=RetryGroup(tp)) for tp in unknown]
    assert producer.wait(futures)
    assert [str(future.error) for future in futures] == [
        "UNKNOWN_TOPIC_OR_PARTITION: topic 'gone'",
        "LEADER_NOT_AVAILABLE: t-9 has no leader",
    ]


@pytest.mark.parametrize(("version", "magic"), [(2, 1), (1, 0)])
def test_sets_of_a_newer_format_are_converted_for_an_older_leader(
    brokers: BrokerHarness, version: int, magic: int
) -> None:
    brokers.newest[ApiKey.PRODUCE] = version
    records = [Record(b"k", b"v", 5), Record(None, None, 6)]
    unsealed = bytearray(build_message_set(records, magic=2))
    unsealed[17:21] = bytes(4)
    with producer_of(brokers, acks=-1) as producer:
        sent = [
            producer.send_encoded(A, build_message_set(records, magic=2, codec=Codec.GZIP), 2),
            producer.send_encoded(A, unsealed, 2, sealed=False),
        ]
    assert [future.result().offset for future in sent] == [0, 2]
    stored = brokers.logs[A].records()
    assert [(r.magic, r.key, r.value) for r in stored] == 2 * [(magic, b"k", b"v"), (magic, None, None)]


def test_set_that_an_older_leader_cannot_hold_fails_alone(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.PRODUCE] = 2
    with producer_of(brokers) as producer:
        with_headers = build_message_set([Record(None, b"v", 5, (("h", b"1"),))], magic=2)
        refused = producer.send_encoded(A, with_headers, 1)
        taken = producer.send_encoded(
            TopicPartition("t", 2), build_message_set([Record(None, b"v")], magic=0), 1
        )
    assert isinstance(refused.error, BrokerError)
    assert refused.error.code is ErrorCode.UNSUPPORTED_VERSION
    assert taken.result().offset == 0


def test_any_number_of_sets_is_refused_in_one_request() -> None:
    count = 1_100  # above the depth of Python's stack
    brokers = BrokerHarness(1, {"t": count})
    brokers.newest[ApiKey.PRODUCE] = 2
    with_headers = build_message_set([Record(None, b"v", 5, (("h", b"1"),))], magic=2)
    producer = producer_of(brokers)
    sent = [producer.send_encoded(TopicPartition("t", n), with_headers, 1) for n in range(count)]
    producer.flush()
    assert all(isinstance(future.error, BrokerError) for future in sent)


def test_empty_sets_are_refused(brokers: BrokerHarness) -> None:
    with pytest.raises(ValueError, match="empty message set for t-0"):
        producer_of(brokers).send_encoded(A, b"", 0)


def test_a_full_buffer_makes_room_by_sending_what_lingers(brokers: BrokerHarness) -> None:
    with producer_of(brokers, linger_ms=3_600_000, buffer_bytes=200) as producer:
        for n in range(50):
            producer.send("t", b"%d" % n, partition=0)
        assert brokers.clock.monotonic_ms() < 1_000
    assert brokers.logs[A].values() == [b"%d" % n for n in range(50)]


def test_a_buffer_that_stays_full_is_told_after_max_block_ms(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, buffer_bytes=100, max_block_ms=2_000)
    producer.send("t", b"v", partition=0)
    run(producer)
    brokers.stop(1)
    producer.send("t", b"x" * 60, partition=0)
    before = brokers.clock.monotonic_ms()
    with pytest.raises(
        NetworkError, match=r"after 2000 ms waiting for 94 bytes of memory: 94 of 100 bytes \(buffer.memory\)"
    ):
        producer.send("t", b"x" * 60, partition=0)
    # One look for the leader may be under way when the time is up.
    assert brokers.clock.monotonic_ms() - before <= 2_000 + 10_000


def test_a_flush_ends_with_its_time_out(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"v", partition=0)
    run(producer)
    brokers.stop(1)
    producer.send("t", b"w", partition=0)
    with pytest.raises(NetworkError, match="timed out after 500 ms flushing: 1 record left"):
        producer.flush(500)


def test_a_flush_waits_for_all_parts_of_a_divided_batch(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.MESSAGE_TOO_LARGE))
    producer = producer_of(brokers)
    sent = [producer.send("t", b"%d" % n, partition=0) for n in range(8)]
    producer.flush()
    assert all(d.done for d in sent)
    assert brokers.logs[A].values() == [b"%d" % n for n in range(8)]


def test_close_with_a_time_out_fails_what_is_left(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    producer = producer_of(brokers)
    producer.send("t", b"v", partition=0)
    run(producer)
    brokers.stop(1)
    future = producer.send("t", b"w", partition=0)
    producer.close(timeout_ms=300)
    producer.close()
    with pytest.raises(NetworkError, match="closed before the acknowledgement"):
        future.result()
    assert "closing the producer with unacknowledged records" in caplog.text
    with pytest.raises(NetworkError, match="the producer is closed"):
        producer.send("t", b"x", partition=0)


def test_callbacks_run_after_success_and_failure_and_may_raise(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    producer = producer_of(brokers)
    errors: list[object] = []
    failing = producer.send("t", b"v", partition=0)
    failing.on_done(lambda d: errors.append(d.error))
    run(producer)
    good = producer.send("t", b"v", partition=0)

    def bad(_: object) -> None:
        raise RuntimeError("in a callback")

    good.on_done(bad)
    run(producer)
    (error,) = errors
    assert str(error).startswith("TOPIC_AUTHORIZATION_FAILED: broker 1 rejected 1 record for t-0; ")
    assert good.result().offset == 0
    assert "a callback of a record for t-0 failed" in caplog.text


def test_a_defect_fails_the_deliveries_instead_of_hanging(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    producer = producer_of(brokers)
    future = producer.send("t", b"v", partition=0)
    producer._runner._encode = None  # type: ignore[assignment, method-assign]
    run(producer)
    assert "unexpected error in the producer: TypeError" in str(future.error)
    assert "unexpected error while sending a produce request to broker 1" in caplog.text


@pytest.mark.parametrize(
    ("holder", "line"),
    [
        ("_sender", "next_task"),
        ("_sender", "handle_response"),
        ("_sender._accumulator", "drain"),
        ("_sender._accumulator", "deallocate"),
        ("_sender._sequences", "assign"),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_at_any_line_of_a_request_leaves_room_for_more(
    brokers: BrokerHarness, holder: str, line: str, after: bool
) -> None:
    producer = producer_of(brokers, max_in_flight=1)
    producer.send("t", b"first", partition=0)
    run(producer)
    held = attrgetter(holder)(producer)
    original = getattr(held, line)

    def interrupted(*given: Any) -> None:
        setattr(held, line, original)
        if after:
            original(*given)
        raise KeyboardInterrupt

    setattr(held, line, interrupted)
    future = producer.send("t", b"interrupted", partition=0)
    with pytest.raises(KeyboardInterrupt):
        run(producer)
    last = producer.send("t", b"last", partition=0)
    run(producer)
    assert future.done
    assert last.result().offset >= 1
    assert producer._accumulator.used_bytes == 0


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("minikafka-producer")]


def threaded(brokers: BrokerHarness, **settings: Any) -> BatchingProducer:
    # The network in memory is not thread-safe, but one request at a time is under way here.
    return BatchingProducer(brokers.client(), BatchingConfig(max_in_flight=1, **settings))


def test_with_threads_everything_is_delivered_and_no_thread_is_left() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    assert workers() == []
    with threaded(brokers, batch_bytes=100) as producer:
        sent = [producer.send("t", b"%d" % n) for n in range(500)]
        assert sent[100].result(20_000).offset == 100
    assert brokers.logs[A].values() == [b"%d" % n for n in range(500)]
    assert workers() == []


class Defect(Exception):
    """An error that nobody expects."""


def defective_once(patch: pytest.MonkeyPatch, holder: object, name: str) -> None:
    """Let the next call of a method raise Defect."""
    original = getattr(holder, name)

    def defect(*_: Any, **__: Any) -> None:
        patch.setattr(holder, name, original)
        raise Defect

    patch.setattr(holder, name, defect)


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        ("_cluster", "metadata"),
        ("_cluster", "call"),
        ("_cluster", "connection"),
        ("_sender", "next_task"),
        ("_sender", "handle_producer_id"),
        ("_sender", "handle_response"),
    ],
)
def test_defect_in_a_thread_fails_its_futures_and_not_later_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, holder: str, name: str
) -> None:
    brokers = BrokerHarness(1, {"t": 1, "u": 1})
    config = BatchingConfig(acks=-1, max_in_flight=1)
    with BatchingProducer(brokers.client(clock=SystemClock()), config) as producer:
        producer._cluster.topic("t")
        producer._cluster.invalidate("t")
        defective_once(monkeypatch, getattr(producer, holder), name)
        with pytest.raises(MinikafkaError, match=r"unexpected error in the producer: Defect\(\)") as failure:
            producer.send("t", b"1").result(20_000)
        assert isinstance(failure.value.__cause__, Defect)
        assert producer.send("u", b"2").result(20_000).count == 1
        assert producer.send("t", b"3").result(20_000).count == 1
    assert "unexpected error" in caplog.text
    assert workers() == []


def test_exit_in_a_callback_leaves_room_for_later_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with threaded(BrokerHarness(1, {"t": 2})) as producer:
        abort, aborted = producer.abort, threading.Event()
        monkeypatch.setattr(producer, "abort", lambda error: (abort(error), aborted.set()))
        with producer._lock:
            producer.send("t", b"failed", partition=0).on_done(raising(SystemExit()))
            producer._sender.abort_incomplete(NetworkError("aborted"))
            producer.send("t", b"first", partition=1)
        assert aborted.wait(20)
        assert producer.send("t", b"last", partition=1).result(20_000).count == 1


def test_a_worker_goes_on_alone_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with threaded(BrokerHarness(1, {"t": 1})) as producer:
        assert [producer.send("t", b"v").result(20_000).offset for _ in range(3)] == [0, 1, 2]
    assert "the producer works with 1 threads: can't start new thread" in caplog.text


def test_threads_send_a_batch_after_its_linger_time() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    called = threading.Event()
    with BatchingProducer(brokers.client(clock=SystemClock()), BatchingConfig(linger_ms=20)) as producer:
        producer.send("t", b"v").on_done(lambda _: called.set())
        assert called.wait(20)


def test_a_producer_that_sent_nothing_starts_no_thread() -> None:
    with BatchingProducer(BrokerHarness().client()):
        assert workers() == []


def test_worker_ends_if_the_producer_is_closed_in_a_callback(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers, delivery_timeout_ms=60, request_timeout_ms=50)
    producer.send("t", b"v", partition=0).on_done(lambda _: producer.close())
    brokers.advance(61)  # who looks for work now gives the batch up
    worker = threading.Thread(target=producer._run, daemon=True)
    worker.start()
    worker.join(20)
    assert not worker.is_alive()
