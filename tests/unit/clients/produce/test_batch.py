"""``clients/produce/batch``: batches are encoded, kept for retries, and split."""

from __future__ import annotations

import threading

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import EncodedBatch, ProducerSequence, RecordListBatch, message_bytes
from minikafka.clients.produce.send_future import ProduceRequestResult, RecordMetadata, SendFuture
from minikafka.records.format.message_set import CLASSIC_CODECS, Codec, Record, build_message_set, iterate

TP = TopicPartition("t", 0)


def record_batch(count: int) -> RecordListBatch:
    batch = RecordListBatch(TP, ProduceRequestResult(threading.Condition()), 5)
    for number in range(count):
        value = b"%d" % number
        batch.append(Record(b"k", value, 1_000 + number), message_bytes(b"k", value))
    return batch


def test_sizes_are_those_of_the_encoded_messages() -> None:
    for key, value in [(None, None), (b"", b""), (b"key", b"value" * 100)]:
        data = build_message_set([Record(key, value, 1)])
        assert message_bytes(key, value) == len(data)
    batch = record_batch(12)
    assert batch.size_bytes == len(batch.encode(1, Codec.NONE))


def test_headers_need_a_format_that_has_them() -> None:
    record = Record(b"k", b"v", 1, (("name", b"value"), ("none", None)))
    batch = RecordListBatch(TP, ProduceRequestResult(threading.Condition()), 5)
    batch.append(record, message_bytes(b"k", b"v", record.headers))
    assert message_bytes(b"k", b"v", record.headers) >= message_bytes(b"k", b"v") + len("namevaluenone")
    (stored,) = iterate(batch.encode(2, Codec.NONE))
    assert stored.headers == record.headers
    with pytest.raises(BrokerError, match="headers for t-0: its broker has only magic 1") as caught:
        batch.encode(1, Codec.NONE)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CLASSIC_CODECS)
def test_records_are_encoded_in_order_in_the_format_that_is_asked_for(magic: int, codec: Codec) -> None:
    stored = list(iterate(record_batch(20).encode(magic, codec)))
    assert [r.value for r in stored] == [b"%d" % n for n in range(20)]
    assert {(r.magic, r.codec) for r in stored} == {(magic, codec)}
    assert [r.timestamp_ms for r in stored] == ([-1] * 20 if magic == 0 else [1_000 + n for n in range(20)])


def test_the_encoding_is_kept_for_retries_in_the_same_format() -> None:
    batch = record_batch(3)
    assert batch.encode(1, Codec.GZIP) is batch.encode(1, Codec.GZIP)
    assert bytes(batch.encode(0, Codec.NONE))[16] == 0


def test_a_batch_is_divided_in_order_and_deliveries_follow() -> None:
    batch = record_batch(5)
    futures = list(batch.futures)
    batch.group.failures = 2
    halves = batch.split()
    assert halves is not None
    first, second = halves
    assert [r.value for r in iterate(first.encode(1, Codec.NONE))] == [b"0", b"1"]
    assert [r.value for r in iterate(second.encode(1, Codec.NONE))] == [b"2", b"3", b"4"]
    assert (first.count, second.count, first.group.failures, first.created_ms) == (2, 3, 2, 5)
    assert first.size_bytes + second.size_bytes == batch.size_bytes
    second.produce_result.base_offset, second.produce_result.done = 70, True
    assert [d.done for d in futures] == [False, False, True, True, True]
    assert [d.result().offset for d in futures[2:]] == [70, 71, 72]


def test_one_record_cannot_be_divided() -> None:
    assert record_batch(1).split() is None


def test_an_encoded_set_goes_out_as_it_is() -> None:
    data = build_message_set([Record(None, b"a"), Record(None, b"b")])
    batch = EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 0, data, 2)
    assert batch.encode(1, Codec.GZIP) is data
    assert (batch.size_bytes, batch.futures[0].count) == (len(data), 2)
    assert str(batch) == "2 records for t-0"
    assert str(record_batch(1)) == "1 record for t-0"


def test_a_set_that_is_not_sealed_gets_numbers_and_checksum_in_place() -> None:
    data = open_set(b"a", b"b")
    batch = EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 0, data, 2, sealed=False)
    batch.producer_sequence = ProducerSequence(5, 6, 7)
    for _ in range(2):
        assert batch.encode(2, Codec.NONE) is data
        assert [(r.producer_id, r.producer_epoch, r.sequence) for r in iterate(data)] == [
            (5, 6, 7),
            (5, 6, 8),
        ]


def test_numbers_that_were_taken_back_do_not_stay_in_a_set() -> None:
    data = open_set(b"a")
    batch = EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 0, data, 1, sealed=False)
    for stamp in (None, ProducerSequence(5, 6, 7), ProducerSequence(8, 0, 0), None):
        batch.producer_sequence = stamp
        (found,) = iterate(batch.encode(2, Codec.NONE))
        assert (found.producer_id, found.producer_epoch, found.sequence) == (stamp or (-1, -1, -1))[:3]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_before_magic_2_goes_out_as_it_is_sealed_or_not(magic: int) -> None:
    data = build_message_set([Record(None, b"a")], magic=magic)
    batch = EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 0, data, 1, sealed=False)
    assert batch.encode(1, Codec.NONE) is data


def open_set(*values: bytes) -> bytearray:
    """A batch without a checksum."""
    data = bytearray(build_message_set([Record(None, value) for value in values], magic=2))
    data[17:21] = bytes(4)
    return data


def test_a_set_with_headers_is_refused_for_an_older_leader() -> None:
    newer = build_message_set([Record(None, b"a", 5, (("h", b"1"),))], magic=2)
    batch = EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 0, newer, 1)
    with pytest.raises(BrokerError, match=r"message set of magic 2 for t-0 .* magic 1") as caught:
        batch.encode(1, Codec.NONE)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    older = build_message_set([Record(None, b"a")], magic=0)
    assert EncodedBatch(TP, batch.produce_result, 0, older, 1).encode(1, Codec.NONE) is older


def set_batch(magic: int, codec: Codec, count: int) -> EncodedBatch:
    records = [Record(b"k%d" % number, b"%d" % number, 1_000 + number) for number in range(count)]
    data = build_message_set(records, magic=magic, codec=codec)
    return EncodedBatch(TP, ProduceRequestResult(threading.Condition()), 5, data, count)


@pytest.mark.parametrize(
    ("magic", "codec"), [*((m, c) for m in (0, 1) for c in CLASSIC_CODECS), *((2, c) for c in Codec)]
)
def test_an_encoded_set_is_divided_into_sets_of_its_kind(magic: int, codec: Codec) -> None:
    whole = set_batch(magic, codec, 5)
    whole.group.failures = 2
    halves = whole.split()
    assert halves is not None
    found = [list(iterate(half.encode(magic, codec))) for half in halves]
    assert [[r.value for r in half] for half in found] == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert [[r.key for r in half] for half in found] == [[b"k0", b"k1"], [b"k2", b"k3", b"k4"]]
    times = [r.timestamp_ms for half in found for r in half]
    assert times == ([-1] * 5 if magic == 0 else [1_000, 1_001, 1_002, 1_003, 1_004])
    assert {(r.magic, r.codec) for half in found for r in half} == {(magic, codec)}
    assert [half.count for half in halves] == [2, 3]
    assert {(half.group.failures, half.created_ms) for half in halves} == {(2, 5)}


def test_a_divided_set_is_delivered_when_all_its_parts_are() -> None:
    whole = set_batch(1, Codec.NONE, 5)
    (future,) = whole.futures
    completed: list[SendFuture] = []
    future.on_done(completed.append)
    halves = whole.split()
    assert halves is not None
    quarters = halves[1].split()
    assert quarters is not None
    for position, part in enumerate((quarters[1], halves[0], quarters[0])):
        assert not future.done
        part.produce_result.base_offset, part.produce_result.done = 70 + position, True
        for part_future in part.futures:
            callback = part_future.take_callback()
            assert callback is not None
            callback(part_future)
    assert future.result() == RecordMetadata(TP, 71, 5)
    assert completed == [future]


def test_a_divided_set_fails_with_any_part_of_it() -> None:
    whole = set_batch(1, Codec.NONE, 4)
    (future,) = whole.futures
    first, second = whole.split() or pytest.fail("not divided")
    second.produce_result.error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    first.produce_result.done = second.produce_result.done = True
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        future.result()


def test_a_set_of_one_record_cannot_be_divided() -> None:
    assert set_batch(2, Codec.NONE, 1).split() is None


def test_a_divided_set_keeps_headers_and_nulls() -> None:
    records = [Record(None, None, 5, (("h", b"1"), ("n", None))), Record(b"k", b"", 6, ())]
    halves = EncodedBatch(
        TP, ProduceRequestResult(threading.Condition()), 5, build_message_set(records, magic=2), 2
    ).split()
    assert halves is not None
    found = [record for half in halves for record in iterate(half.encode(2, Codec.NONE))]
    assert [(r.key, r.value, r.headers) for r in found] == [(r.key, r.value, r.headers) for r in records]
