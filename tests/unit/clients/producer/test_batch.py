"""``clients/producer/batch``: what is encoded, kept for retries, and divided."""

from __future__ import annotations

import threading

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.producer.batch import RecordBatch, SetBatch, message_bytes
from minikafka.clients.producer.delivery import Outcome
from minikafka.records.message_set import CLASSIC_CODECS, Codec, Record, build_message_set, iterate

TP = TopicPartition("t", 0)


def record_batch(count: int) -> RecordBatch:
    batch = RecordBatch(TP, Outcome(threading.Condition()), 5)
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
    deliveries = list(batch.deliveries)
    batch.failures = 2
    halves = batch.split()
    assert halves is not None
    first, second = halves
    assert [r.value for r in iterate(first.encode(1, Codec.NONE))] == [b"0", b"1"]
    assert [r.value for r in iterate(second.encode(1, Codec.NONE))] == [b"2", b"3", b"4"]
    assert (first.count, second.count, first.failures, first.created_ms) == (2, 3, 2, 5)
    assert first.size_bytes + second.size_bytes == batch.size_bytes
    second.outcome.base_offset, second.outcome.done = 70, True
    assert [d.done for d in deliveries] == [False, False, True, True, True]
    assert [d.result().offset for d in deliveries[2:]] == [70, 71, 72]


def test_one_record_cannot_be_divided() -> None:
    assert record_batch(1).split() is None


def test_an_encoded_set_goes_out_as_it_is() -> None:
    data = build_message_set([Record(None, b"a"), Record(None, b"b")])
    batch = SetBatch(TP, Outcome(threading.Condition()), 0, data, 2)
    assert batch.encode(1, Codec.GZIP) is data
    assert batch.split() is None
    assert (batch.size_bytes, batch.deliveries[0].count) == (len(data), 2)
    assert str(batch) == "2 records for t-0"
    assert str(record_batch(1)) == "1 record for t-0"


def test_an_encoded_set_of_a_newer_format_than_the_brokers_is_refused() -> None:
    newer = build_message_set([Record(None, b"a")], magic=1)
    batch = SetBatch(TP, Outcome(threading.Condition()), 0, newer, 1)
    with pytest.raises(BrokerError, match="message set of magic 1 was given for t-0") as caught:
        batch.encode(0, Codec.NONE)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    older = build_message_set([Record(None, b"a")], magic=0)
    assert SetBatch(TP, batch.outcome, 0, older, 1).encode(1, Codec.NONE) is older
