"""``clients/fetch/log_sample``: the mean bytes of an offset."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.log_sample import LogSample, measure, sample_log
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness

TP = TopicPartition("t", 0)


def entries(*values: bytes, base_offset: int = 0, magic: int = 2, codec: Codec = Codec.NONE) -> memoryview:
    records = [Record(None, value, 1) for value in values]
    return memoryview(bytes(build_message_set(records, base_offset=base_offset, magic=magic, codec=codec)))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_all_entries_count(magic: int) -> None:
    data = entries(*[b"x" * 100] * 50, magic=magic)
    assert measure(data, 0) == LogSample(len(data) / 50, is_compressed=False)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_codec_is_seen(magic: int) -> None:
    found = measure(entries(*[b"x" * 100] * 50, magic=magic, codec=Codec.LZ4), 0)
    assert found is not None
    assert found.is_compressed


def test_offsets_without_a_record_count_too() -> None:
    data = entries(b"x" * 100, base_offset=1_000)
    assert measure(data, 900) == LogSample(len(data) / 101, is_compressed=False)


def test_offsets_of_the_batch_before_the_position_count() -> None:
    data = entries(*[b"x"] * 10, base_offset=100)
    assert measure(data, 108) == LogSample(len(data) / 10, is_compressed=False)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_cut_off_entry_is_left_out(magic: int) -> None:
    data = entries(b"x" * 100, magic=magic)
    longer = bytes(data) + bytes(entries(b"y" * 900, base_offset=1, magic=magic))[:-1]
    assert measure(memoryview(longer), 0) == LogSample(len(data), is_compressed=False)


@pytest.mark.parametrize("data", [b"", b"\0" * 5, b"\0" * 200, b"\xff" * 200, bytes(entries(b"x"))[:-1]])
def test_no_complete_entry_gives_no_sample(data: bytes) -> None:
    assert measure(memoryview(data), 0) is None


def test_a_log_is_looked_at_with_one_request_that_does_not_wait() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    brokers.fill(TP, *[b"x" * 500] * 300, magic=2)
    client = brokers.client()
    found = sample_log(client, TP, 0, client.deadline())
    assert found is not None
    assert 500 < found.bytes_per_offset < 600
    (request,) = brokers.asked(ApiKey.FETCH)
    assert (request.max_wait_ms, request.max_bytes) == (0, 64 * 1024)
    assert sample_log(client, TP, 300, client.deadline()) is None


def test_the_error_of_a_broker_is_raised() -> None:
    client = BrokerHarness(1, {"t": 1}).client(creates_topics=False)
    with pytest.raises(BrokerError):
        sample_log(client, TopicPartition("t", 9), 0, client.deadline())


def test_an_offset_out_of_range_gives_no_sample() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    client = brokers.client()
    assert sample_log(client, TP, 77, client.deadline()) is None
    brokers.kill(1)
    with pytest.raises(MinikafkaError):
        sample_log(client, TP, 0, client.deadline(50))
