"""``clients/producer``: the synchronous producer and its event handler against brokers in memory."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.errors import ErrorCode, FailedToSendMessage, NetworkError, ProducerClosed, QueueFull
from minikafka.base.ids import TopicPartition
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.clients.producer.producer_stats import TopicStats
from minikafka.net.memory import Fault
from minikafka.records.format.message_set import Codec
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import MetadataTopic
from tests.support.broker_harness import BrokerHarness, produce_error
from tests.support.producer_harness import (
    ADDRESS,
    RecordingEventHandler,
    everything,
    make_producer,
    records,
    values,
)
from tests.support.raising import raising

NO_LEADER = "no partition of topic 'u' has a leader"


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4, "u": 1})


def sent(brokers: BrokerHarness) -> int:
    return len(brokers.asked(ApiKey.PRODUCE))


def test_messages_are_stored_when_send_returns(brokers: BrokerHarness) -> None:
    with make_producer(brokers) as producer:
        producer.send(KeyedMessage("t", b"first"))
        assert everything(brokers) == [b"first"]
        producer.send([KeyedMessage("u", b"%d" % number) for number in range(100)])
        producer.send([])
    assert values(brokers, 0, "u") == [b"%d" % number for number in range(100)]


def test_keys_select_partitions_and_part_keys_are_not_stored(brokers: BrokerHarness) -> None:
    # The hashes of b"\x00" to b"\x03" are 31 to 34.
    with make_producer(brokers) as producer:
        producer.send([KeyedMessage("t", b"%d" % number, bytes([number])) for number in range(4)])
        producer.send(KeyedMessage("t", b"by part", b"\x00", part_key=b"\x02"))
        producer.send(KeyedMessage("t", b"no key", part_key="\x03"))
    assert [(r.key, r.value) for r in records(brokers, 3)] == [(b"\x00", b"0"), (None, b"no key")]
    assert [(r.key, r.value) for r in records(brokers, 1)] == [(b"\x02", b"2"), (b"\x00", b"by part")]
    assert values(brokers, 0) == [b"1"]
    assert values(brokers, 2) == [b"3"]


def test_null_is_sent_as_null_with_the_send_time(brokers: BrokerHarness) -> None:
    with make_producer(brokers, serializer_class="kafka.serializer.StringEncoder") as producer:
        producer.send([KeyedMessage("u", None, "k"), KeyedMessage("u", "ü"), KeyedMessage("u", "")])
    found = records(brokers, 0, "u")
    assert [(r.key, r.value) for r in found] == [(b"k", None), (None, "ü".encode()), (None, b"")]
    assert {r.timestamp_ms for r in found} == {brokers.clock.now_ms()}


def test_encoders_encode_keys_and_values(brokers: BrokerHarness) -> None:
    class Doubled:
        def to_bytes(self, value: str) -> bytes:
            return (2 * value).encode()

    with make_producer(
        brokers, serializer_class=Doubled, key_serializer_class="kafka.serializer.LongEncoder"
    ) as producer:
        producer.send([KeyedMessage("t", "ab", 6), KeyedMessage("t", "c", 6)])
    assert [(r.key, r.value) for r in records(brokers, 2)] == [
        (bytes(7) + b"\x06", b"abab"),
        (bytes(7) + b"\x06", b"cc"),
    ]


def test_encoding_error_is_raised_and_nothing_is_sent(brokers: BrokerHarness) -> None:
    with make_producer(brokers) as producer:
        with pytest.raises(TypeError, match=r"expected bytes, got 'text': set serializer\.class"):
            producer.send([KeyedMessage("u", b"good"), KeyedMessage("u", "text")])
        assert everything(brokers, "u") == []
        assert producer.stats.serialization_errors == 1


def test_keyless_messages_keep_a_partition_until_the_refresh(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("t", 1))
    with make_producer(brokers, topic_metadata_refresh_interval_ms=1_000) as producer:
        used = set()
        for _ in range(40):
            before = [len(values(brokers, number)) for number in range(4)]
            producer.send([KeyedMessage("t", b"x"), KeyedMessage("t", b"y")])
            brokers.advance(100)
            producer.send(KeyedMessage("t", b"z"))
            grown = [len(values(brokers, number)) - before[number] for number in range(4)]
            assert sorted(grown) == [0, 0, 0, 3]
            used.add(grown.index(3))
            brokers.advance(1_000)
    assert used == {0, 2, 3}


def test_keyless_messages_spread_if_configured(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("t", 1))
    with make_producer(brokers, null_key_partition="each") as producer:
        producer.send([KeyedMessage("t", b"x")] * 300)
    counts = [len(values(brokers, number)) for number in range(4)]
    assert counts[1] == 0
    assert min(counts[0], counts[2], counts[3]) > 50


def test_keyed_message_for_leaderless_partition_fails_after_retries(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("t", 3))
    with make_producer(brokers) as producer:
        lost = [KeyedMessage("t", b"a", b"\x00"), KeyedMessage("t", b"b", b"\x00")]
        start_ms = brokers.clock.monotonic_ms()
        with pytest.raises(FailedToSendMessage) as failure:
            producer.send([lost[0], KeyedMessage("t", b"good", b"\x01"), lost[1]])
        assert brokers.clock.monotonic_ms() - start_ms >= 300
        assert list(failure.value.failed) == lost
        assert failure.value.failed[1] == lost[1]
        assert str(failure.value) == (
            "2 of 3 messages were not sent, with up to 3 retries: "
            "t-3: 2 (LEADER_NOT_AVAILABLE: t-3 has no leader)"
        )
        assert everything(brokers) == [b"good"]
        assert (producer.stats.resends, producer.stats.failed_sends, producer.stats.failed_messages) == (
            3,
            1,
            2,
        )


def test_too_large_batch_is_split_and_too_large_message_fails_alone(brokers: BrokerHarness) -> None:
    brokers.configure("u", "max.message.bytes", "400")
    brokers.unknown.add(ApiKey.DESCRIBE_CONFIGS)
    given = [KeyedMessage("u", b"%02d" % number + b"x" * 50) for number in range(20)]
    given.insert(7, KeyedMessage("u", b"L" * 500))
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send(given)
    assert list(failure.value.failed) == [given[7]]
    assert values(brokers, 0, "u") == [event.message for event in given if event is not given[7]]


def test_error_for_a_missing_topic_names_it(brokers: BrokerHarness) -> None:
    with (
        make_producer(brokers) as producer,
        pytest.raises(FailedToSendMessage, match=r"1 of 2 messages .* none: 1 \(UNKNOWN_TOPIC"),
    ):
        producer.send([KeyedMessage("none", b"a"), KeyedMessage("u", b"b")])
    assert values(brokers, 0, "u") == [b"b"]


@pytest.mark.parametrize("known", [False, True])
def test_missing_brokers_are_not_reported_as_an_unknown_topic(brokers: BrokerHarness, known: bool) -> None:
    with make_producer(brokers, request_timeout_ms=1_000) as producer:
        if known:
            producer.send(KeyedMessage("u", b"a"))
        brokers.stop(1)
        brokers.stop(2)
        with pytest.raises(FailedToSendMessage) as failure:
            producer.send([KeyedMessage("u", b"a"), KeyedMessage("t", b"a")])
    for cause in failure.value.causes.values():
        assert isinstance(cause, NetworkError)
        assert "memory:9001" in str(cause)
    assert "UNKNOWN_TOPIC" not in str(failure.value)
    assert "no broker could be reached: " in str(failure.value)


def test_topic_under_creation_is_not_reported_as_missing(brokers: BrokerHarness) -> None:
    answer = brokers.serve

    def under_creation(broker_id: int, request: Any) -> Any:
        response = answer(broker_id, request)
        topics = (MetadataTopic(int(ErrorCode.LEADER_NOT_AVAILABLE), "new", False, ()),)
        return replace(response, topics=topics)

    brokers.script(ApiKey.METADATA, *[under_creation] * 200)
    with (
        make_producer(brokers, request_timeout_ms=1_000) as producer,
        pytest.raises(FailedToSendMessage, match=r"LEADER_NOT_AVAILABLE: .*: topic 'new' is not available"),
    ):
        producer.send(KeyedMessage("new", b"a"))


def test_unreachable_leader_is_waited_for_once_per_attempt() -> None:
    brokers = BrokerHarness(2)
    brokers.add_topic("t", 50, leader=2)
    brokers.fault(2, Fault.REFUSE, 1_000)
    with make_producer(brokers) as producer:
        start_ms = brokers.clock.monotonic_ms()
        with pytest.raises(FailedToSendMessage, match="50 of 50 messages"):
            producer.send([KeyedMessage("t", b"a", part_key=n) for n in range(50)])
    assert brokers.clock.monotonic_ms() - start_ms < 5_000


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_count_as_sent_and_failed_ones_separately(brokers: BrokerHarness, kind: str) -> None:
    brokers.lose_leader(TopicPartition("t", 3))
    with make_producer(brokers, producer_type=kind) as producer, contextlib.suppress(FailedToSendMessage):
        producer.send([KeyedMessage("t", b"ab", b"\x00"), KeyedMessage("t", b"cd", b"\x01")])
    assert producer.stats.topic("t") == TopicStats(messages=2, bytes=4, dropped=0, failed=1)
    assert producer.stats.all_topics == producer.stats.topic("t")
    assert producer.stats.failed_messages == 1


def test_unsent_messages_survive_pickling(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("u", 0))
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send_values("u", [b"a"])
    copy = pickle.loads(pickle.dumps(failure.value))
    assert str(copy) == str(failure.value)
    assert list(copy.failed) == [KeyedMessage("u", b"a")]
    assert list(map(str, copy.causes.values())) == ["LEADER_NOT_AVAILABLE: " + NO_LEADER]
    full = pickle.loads(pickle.dumps(QueueFull("no room", 3)))
    assert (str(full), full.dropped) == ("no room", 3)


def test_handler_error_at_close_leaves_no_connection(brokers: BrokerHarness) -> None:
    handler = RecordingEventHandler()
    closed = []
    handler.close = raising(OSError("broken"))  # type: ignore[method-assign]
    producer = Producer({**ADDRESS, "event.handler": handler})
    producer._cluster.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        producer.close()
    assert closed == [True]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_requests_have_the_configured_acks(brokers: BrokerHarness, acks: int) -> None:
    with make_producer(brokers, request_required_acks=acks) as producer:
        producer.send(KeyedMessage("u", b"a"))
        while brokers.network.deliver():
            pass
    assert [request.acks for request in brokers.asked(ApiKey.PRODUCE)] == [acks]


def test_only_configured_topics_are_compressed(brokers: BrokerHarness) -> None:
    with make_producer(brokers, compression_codec="gzip", compressed_topics="u") as producer:
        producer.send([KeyedMessage("u", b"a" * 1000), KeyedMessage("t", b"a" * 1000)])

    def codec(topic: str) -> Codec:
        (entry,) = (e for tp, log in brokers.logs.items() if tp.topic == topic for e in log.entries)
        return Codec(entry[22] & 7)

    assert (codec("u"), codec("t")) == (Codec.GZIP, Codec.NONE)


def test_invalid_results_of_a_partitioner_fail_alone(brokers: BrokerHarness) -> None:
    class ByLength:
        def partition(self, key: bytes, num_partitions: int) -> int:
            assert num_partitions == 4
            return len(key)

    with (
        make_producer(brokers, partitioner_class=ByLength()) as producer,
        pytest.raises(FailedToSendMessage, match="ByLength returned partition 5 of 4 for key b'aaaaa'"),
    ):
        producer.send([KeyedMessage("t", b"%d" % n, b"a" * n) for n in (1, 5, 3)])
    assert (values(brokers, 1), values(brokers, 3)) == ([b"1"], [b"3"])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: {}["north"], "partitioner test_sync_sending.Broken failed on key b'k': KeyError: 'north'"),
        (lambda: "1", "partitioner test_sync_sending.Broken returned '1' for key b'k', expected a number"),
        (lambda: 1.5, "partitioner test_sync_sending.Broken returned 1.5 for key b'k', expected a number"),
        (lambda: None, "partitioner test_sync_sending.Broken returned None for key b'k', expected a number"),
    ],
)
def test_partitioner_failure_names_class_and_error(
    brokers: BrokerHarness, call: Callable[[], Any], text: str
) -> None:
    class Broken:
        __qualname__ = "Broken"
        __module__ = "test_sync_sending"

        def partition(self, key: bytes, num_partitions: int) -> Any:
            return call()

    with (
        make_producer(brokers, partitioner_class=Broken()) as producer,
        pytest.raises(FailedToSendMessage) as failure,
    ):
        producer.send([KeyedMessage("t", b"a", b"k"), KeyedMessage("t", b"b")])
    assert str(failure.value) == f"1 of 2 messages were not sent: t: 1 ({text})"
    (cause,) = failure.value.causes.values()
    assert failure.value.__cause__ is cause
    assert isinstance(cause, (KeyError, ValueError))
    assert everything(brokers) == [b"b"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TOPIC, ErrorCode.MESSAGE_TOO_LARGE])
def test_permanent_error_does_not_mention_retries(brokers: BrokerHarness, code: ErrorCode) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(code))
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send(KeyedMessage("u", b"a"))
    assert str(failure.value).startswith(f"1 of 1 messages were not sent: u-0: 1 ({code.name}: ")
    assert failure.value.__cause__ is failure.value.causes["u-0"]


def test_key_without_a_hash_fails_alone(brokers: BrokerHarness) -> None:
    class Text:
        def to_bytes(self, value: Any) -> bytes:
            return str(value).encode()

    with (
        make_producer(brokers, serializer_class=Text) as producer,
        pytest.raises(FailedToSendMessage, match=r"got 1\.5, whose hash in Java is unknown"),
    ):
        producer.send([KeyedMessage("t", "a", 1.5), KeyedMessage("t", "b", 2)])
    assert values(brokers, 2) == [b"b"]


def columns_of(kind: Callable[[list[Any]], Any]) -> tuple[Any, Any]:
    return kind([b"a", b"b", None, b"d"]), kind([b"\x00", None, b"\x01", b"\x00"])


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        lambda cells: pa.array(cells, pa.binary()),
        lambda cells: pa.array(cells, pa.large_binary()),
        lambda cells: pa.chunked_array([pa.array(cells[:1], pa.binary()), pa.array(cells[1:], pa.binary())]),
        lambda cells: pa.array([None, *cells], pa.binary()).slice(1),
    ],
)
def test_values_of_all_forms_are_sent_in_one_call(brokers: BrokerHarness, kind: Any) -> None:
    given, keys = columns_of(kind)
    with make_producer(brokers) as producer:
        producer.send_values("t", given, keys)
        producer.send_values("u", given)
        producer.send_values("u", kind([]))
    assert [(r.key, r.value) for r in records(brokers, 3) if r.key] == [(b"\x00", b"a"), (b"\x00", b"d")]
    assert [r.key for r in records(brokers, 0) if r.key] == [b"\x01"]
    assert len(everything(brokers)) == 4
    assert values(brokers, 0, "u") == [b"a", b"b", None, b"d"]


def test_tables_are_sent_by_column_name(brokers: BrokerHarness) -> None:
    with make_producer(brokers) as producer:
        producer.send_values("u", pa.table({"value": ["a", "ü"], "key": [None, b"k"]}))
        producer.send_values("u", pa.record_batch({"value": [b"c"]}))
        with pytest.raises(ValueError, match=r"got \['text'\]"):
            producer.send_values("u", pa.table({"text": ["a"]}))
        with pytest.raises(ValueError, match="got 2 keys, 1 values"):
            producer.send_values("u", [b"a"], [b"k", b"l"])
    found = [(r.key, r.value) for r in records(brokers, 0, "u")]
    assert found == [(None, b"a"), (b"k", "ü".encode()), (None, b"c")]


def test_list_values_are_encoded_and_keys_hashed_before_encoding(brokers: BrokerHarness) -> None:
    """The String hash of "foobar" is 1268878963 by its absolute value; as bytes it would be 381375282."""
    with make_producer(brokers, serializer_class="kafka.serializer.StringEncoder") as producer:
        producer.send_values("t", ["text", "\ud800"], ["foobar", "foobar"])
        with pytest.raises(TypeError, match="StringEncoder: expected str, got int 5"):
            producer.send_values("t", ["good", 5])
    assert [(r.key, r.value) for r in records(brokers, 3)] == [(b"foobar", b"text"), (b"foobar", b"?")]
    assert len(everything(brokers)) == 2


def test_many_batches_and_pieces_arrive_in_order(brokers: BrokerHarness) -> None:
    given = [b"%06d" % number + b"x" * 200 for number in range(20_000)]
    with make_producer(brokers) as producer:
        producer.send_values("u", given)
        producer.send_values("u", pa.array(given))
    assert values(brokers, 0, "u") == given + given
    assert producer.stats.topic("u").messages == 40_000
    assert producer.stats.all_topics.bytes == 40_000 * 206


def test_error_holds_the_failed_values(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("t", 3))
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send_values("t", pa.array(["a", "b", "c"]), pa.array([b"\x00", b"\x01", b"\x00"]))
    assert list(failure.value.failed) == [KeyedMessage("t", b"a", b"\x00"), KeyedMessage("t", b"c", b"\x00")]


def test_event_handler_replaces_the_default(brokers: BrokerHarness) -> None:
    handler = RecordingEventHandler()
    with make_producer(brokers, event_handler=handler) as producer:
        producer.send(KeyedMessage("t", 1))
        producer.send([KeyedMessage("t", 2)])
        producer.send_values("t", [b"3", b"4"], [None, b"k"])
        producer.send_values("t", pa.array(["5"]))
        handler.error = OSError("broken")
        with pytest.raises(OSError, match="broken"):
            producer.send(KeyedMessage("t", 6))
    assert handler.messages == [1, 2, b"3", b"4", b"5", 6]
    assert handler.batches[2][1].key == b"k"
    assert handler.closed
    assert brokers.requests == []


def test_closed_producer_refuses_messages(brokers: BrokerHarness) -> None:
    producer = make_producer(brokers)
    producer.close()
    producer.close()
    for send in (lambda: producer.send(KeyedMessage("t", b"a")), lambda: producer.send_values("t", [b"a"])):
        with pytest.raises(ProducerClosed):
            send()


def test_properties_and_config_make_the_same_producer(brokers: BrokerHarness) -> None:
    with Producer(ADDRESS, cluster=brokers.client()) as producer:
        assert producer.config.request_required_acks == 0
        assert not producer.step()
        assert producer.queued == 0
