"""``clients/consumer/streams``: delivery of messages, consumed positions, and the end of an iteration."""

from __future__ import annotations

import logging
import pickle
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.base.errors import (
    BrokerError,
    ConsumerTimeout,
    CorruptMessage,
    ErrorCode,
    MessageSizeTooLarge,
    UndecodableMessage,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import PAGE_ROWS
from minikafka.clients.consumer.message_and_metadata import MessageAndMetadata
from minikafka.clients.consumer.streams import ConsumerIterator
from minikafka.clients.serializer import IntegerEncoder, LongDecoder, StringDecoder, as_decoder
from minikafka.embedded.process import wait_until
from minikafka.records import columns
from minikafka.records.format.batch import ControlType, build_control_batch
from minikafka.records.format.message_set import Codec, Record, TimestampType, build_message_set
from tests.support.consumer_streams import StreamHarness, fill, message_set, offsets, stats, stream_harness


@pytest.fixture
def harness() -> Iterator[StreamHarness]:
    with stream_harness() as harness:
        yield harness


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_of_every_format_are_delivered_in_order(
    harness: StreamHarness, magic: int, codec: Codec
) -> None:
    info = fill(harness.partition(3, 10), 5, magic=magic, codec=codec)
    fill(info, 2, magic=magic, codec=codec)
    found = harness.drain()
    assert offsets(found) == list(range(10, 17))
    assert [message.message for message in found] == [b"%d" % offset for offset in range(10, 17)]
    assert {(m.topic, m.partition, m.key) for m in found} == {("t", 3, b"k")}
    if magic:
        assert [m.timestamp_ms for m in found] == [1_010 + n for n in range(7)]
        assert found[0].timestamp_type is TimestampType.CREATE_TIME
    else:
        assert {(m.timestamp_ms, m.timestamp_type) for m in found} == {(-1, TimestampType.NO_TIMESTAMP_TYPE)}


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_chunk_of_many_pages_is_delivered_whole(magic: int, codec: Codec) -> None:
    count = 5 * PAGE_ROWS + 7
    with stream_harness() as harness:
        info = fill(harness.partition(), count, magic=magic, codec=codec)
        found = harness.drain()
        assert offsets(found) == list(range(count))
        assert found[-1].message == b"%d" % (count - 1)
        assert info.consumed_offset == count
        assert stats().topic("t").messages.count == count


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_all_sizes_are_delivered(magic: int, codec: Codec) -> None:
    sizes = [0, 1, 300_000, 70_000, 10, 65_536, 200_000, 0, *range(0, 40_000, 1_000)]
    records = [Record(b"%d" % size * 3, b"v" * size, 1_000) for size in sizes]
    with stream_harness() as harness:
        data = build_message_set(records, magic=magic, codec=codec)
        assert harness.partition().enqueue(memoryview(data), len(sizes))
        found = harness.drain()
        assert [(m.key, m.message) for m in found] == [(r.key, r.value) for r in records]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_compressed_messages_before_the_fetch_offset_are_skipped(harness: StreamHarness, magic: int) -> None:
    info = harness.partition(offset=3)
    assert info.enqueue(message_set(0, 5, magic=magic, codec=Codec.GZIP), 5)
    assert offsets(harness.drain()) == [3, 4]


def test_chunk_may_have_messages_of_several_formats() -> None:
    sets = [
        message_set(0, 2, magic=0),
        message_set(2, 2, codec=Codec.GZIP),
        message_set(4, 2),
        message_set(6, 2, magic=2),
        message_set(8, 2, magic=2, codec=Codec.LZ4),
        message_set(10, 2, magic=1),
    ]
    with stream_harness() as harness:
        assert harness.partition().enqueue(memoryview(b"".join(sets)), 12)
        assert offsets(harness.drain()) == list(range(12))


def test_null_keys_and_values_are_none_and_not_decoded() -> None:
    records = [Record(None, b"v"), Record(b"k", None), Record(b"", b"")]
    with stream_harness() as harness:
        assert harness.partition().enqueue(memoryview(build_message_set(records)), 3)
        assert [(m.key, m.message) for m in harness.drain()] == [(None, b"v"), (b"k", None), (b"", b"")]


def test_keys_and_values_are_decoded_on_access(harness: StreamHarness) -> None:
    fill(harness.partition(), 2)
    text = StringDecoder()
    iterator = ConsumerIterator(harness.queue, 0, text, text, "c")
    first: MessageAndMetadata[str, str] = next(iterator)
    assert (first.key, first.message, first.raw_message) == ("k", "0", b"0")


@pytest.mark.parametrize("part", ["key", "message"])
def test_decoder_error_names_the_message(harness: StreamHarness, part: str) -> None:
    fill(harness.partition(3, 10), 1)
    iterator = ConsumerIterator(harness.queue, 0, LongDecoder(), LongDecoder(), "c")
    message = next(iterator)
    with pytest.raises(UndecodableMessage, match=r"^t-3 at offset 10: LongDecoder failed on the ") as raised:
        getattr(message, part)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 3, 10)
    assert isinstance(raised.value.__cause__, struct.error)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_function_decodes_and_is_named_in_its_error() -> None:
    def decode_number(data: bytes) -> int:
        return int(data.decode())

    with stream_harness() as harness:
        fill(harness.partition(), 2)
        number = as_decoder(decode_number)
        iterator = ConsumerIterator(harness.queue, 0, number, number, "c")
        message = next(iterator)
        assert message.message == 0
        with pytest.raises(UndecodableMessage, match="decode_number failed on the key of 1 bytes"):
            assert message.key


def test_message_knows_its_topic_partition(harness: StreamHarness) -> None:
    fill(harness.partition(3), 1)
    (message,) = harness.take(1)
    assert message.topic_partition == TopicPartition("t", 3)


def test_stream_is_its_own_iterator(harness: StreamHarness) -> None:
    fill(harness.partition(), 2)
    stream = harness.stream
    assert isinstance(stream, Iterator)
    assert [next(stream).offset, next(iter(stream)).offset] == [0, 1]


def test_headers_are_read_on_access() -> None:
    headers = (("a", b"1"), ("b", None), ("a", IntegerEncoder().to_bytes(7)))
    records = [Record(b"k", b"v", headers=headers), Record(b"k", b"v")]
    with stream_harness() as harness:
        assert harness.partition().enqueue(memoryview(build_message_set(records, magic=2)), 2)
        assert [m.headers for m in harness.drain()] == [headers, ()]


def test_transaction_markers_are_skipped_and_count_as_consumed() -> None:
    mark = build_control_batch(
        ControlType.COMMIT,
        coordinator_epoch=0,
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=2,
    )
    with stream_harness() as harness:
        info = harness.partition()
        assert info.enqueue(memoryview(bytes(message_set(0, 2, magic=2)) + mark), 3)
        assert offsets(harness.drain()) == [0, 1]
        assert info.consumed_offset == 3


# --- consumed messages


def test_message_counts_once_the_next_is_requested(harness: StreamHarness) -> None:
    info = fill(harness.partition(offset=5), 2)
    harness.take(1)
    assert info.consumed_offset == 5
    harness.take(1)
    assert info.consumed_offset == 6
    with pytest.raises(ConsumerTimeout):
        harness.take(1)
    assert info.consumed_offset == 7


def test_each_partition_of_a_stream_has_its_own_position(harness: StreamHarness) -> None:
    a, b = harness.partition(0, 10), harness.partition(1, 20)
    fill(a, 1)
    fill(b, 1)
    fill(a, 1)
    harness.take(2)
    assert (a.consumed_offset, b.consumed_offset) == (11, 20)
    harness.take(1)
    assert (a.consumed_offset, b.consumed_offset) == (11, 21)


def test_mark_delivered_consumed_counts_all_delivered_messages(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 3)
    harness.take(2)
    harness.stream.iterator().mark_delivered_consumed()
    assert info.consumed_offset == 2
    harness.take(1)
    assert info.consumed_offset == 2


# --- timeouts and the end


def test_undecodable_message_counts_once_the_next_is_requested(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 2)
    iterator = ConsumerIterator(harness.queue, 0, LongDecoder(), LongDecoder(), "c")
    with pytest.raises(UndecodableMessage):
        _ = next(iterator).message
    iterator.mark_delivered_consumed()
    assert (info.consumed_offset, iterator.processing_partition) == (0, info)
    next(iterator)
    assert info.consumed_offset == 1


def test_iterator_raises_at_its_timeout_and_continues_later() -> None:
    with stream_harness(timeout_ms=1) as harness:
        for _ in range(2):
            with pytest.raises(ConsumerTimeout, match="no message within 1 ms"):
                harness.take(1)
        fill(harness.partition(), 1)
        assert offsets(harness.take(1)) == [0]


def test_iterator_without_timeout_waits() -> None:
    with stream_harness(timeout_ms=-1) as harness:
        found: list[int] = []
        reader = threading.Thread(target=lambda: found.extend(offsets(harness.take(1))))
        reader.start()
        fill(harness.partition(), 1)
        reader.join()
        assert found == [0]


def test_shutdown_command_ends_the_iteration_for_good() -> None:
    with stream_harness(timeout_ms=-1) as harness:
        fill(harness.partition(), 2)
        harness.take(1)
        harness.queue.close()
        assert offsets(list(harness.stream)) == [1]
        assert list(harness.stream) == []


def test_next_loop_continues_where_the_last_one_ended(harness: StreamHarness) -> None:
    fill(harness.partition(), 3)
    for message in harness.stream:
        assert message.offset == 0
        break
    assert offsets(harness.drain()) == [1, 2]


# --- a rebalance


def test_cleared_chunk_is_not_delivered(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 3)
    fill(info, 3)
    harness.take(1)
    harness.stream.clear()
    assert len(harness.queue) == 0
    assert harness.queue.has_room
    assert harness.drain() == []
    assert info.consumed_offset == 1
    assert stats().topic("t").messages.count == 1


def test_messages_after_a_clear_are_delivered(harness: StreamHarness) -> None:
    fill(harness.partition(), 3)
    harness.take(1)
    harness.stream.clear()
    fill(harness.partition(offset=1), 2)
    assert offsets(harness.drain()) == [1, 2]


def test_waiting_iterator_gets_messages_after_a_clear() -> None:
    with stream_harness(timeout_ms=-1) as harness:
        found: list[int] = []
        reader = threading.Thread(target=lambda: found.extend(offsets(harness.take(1))))
        reader.start()
        harness.stream.clear()
        fill(harness.partition(offset=7), 1)
        reader.join()
        assert found == [7]


def test_repeated_clears_deliver_only_new_messages() -> None:
    rounds, count = 200, 40
    with stream_harness(timeout_ms=-1) as harness:
        begin, wrong, taken = [0], [], [0]

        def read() -> None:
            for message in harness.stream:
                # The clear waits until this message was followed by another request.
                if not begin[0] <= message.offset < begin[0] + count:
                    wrong.append((begin[0], message.offset))
                taken[0] += 1

        reader = threading.Thread(target=read)
        info = fill(harness.partition(), count)
        reader.start()
        for round_ in range(1, rounds):
            harness.stream.clear()
            assert wait_until(lambda: harness.stream.iterator().processing_partition is None, 60)
            assert begin[0] <= info.consumed_offset <= begin[0] + count
            begin[0] = round_ * count
            info = fill(harness.partition(offset=begin[0]), count)
        harness.queue.close()
        reader.join()
        assert wrong == []
        assert 0 < taken[0] <= rounds * count


def test_last_message_is_in_process_until_the_next_request(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 1)
    assert harness.stream.iterator().processing_partition is None
    harness.take(1)
    harness.stream.clear()
    assert harness.stream.iterator().processing_partition is info
    assert harness.drain() == []
    assert harness.stream.iterator().processing_partition is None
    assert info.consumed_offset == 1


def test_message_in_process_of_a_released_partition_does_not_count(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 2)
    harness.take(1)
    harness.stream.clear()
    harness.stream.iterator().forget_processing()
    assert harness.drain() == []
    assert info.consumed_offset == 0


def test_message_in_process_of_a_kept_partition_counts_later(harness: StreamHarness) -> None:
    info = fill(harness.partition(), 2)
    harness.take(1)
    harness.stream.clear()
    harness.stream.iterator().forget_processing([info])
    assert (info.consumed_offset, harness.stream.iterator().next_fetch_offset(info)) == (0, 1)
    assert harness.drain() == []
    assert (info.consumed_offset, harness.stream.iterator().next_fetch_offset(info)) == (1, 1)


class FakeLease:
    is_valid = True


def test_iterator_delivers_nothing_without_a_valid_lease() -> None:
    lease = FakeLease()
    with stream_harness(lease=lease) as harness:
        info = fill(harness.partition(), 3)
        harness.take(1)
        lease.is_valid = False
        for _ in range(2):
            with pytest.raises(ConsumerTimeout, match="ZooKeeper does not respond"):
                harness.take(1)
        assert info.consumed_offset == 1
        lease.is_valid = True
        assert offsets(harness.drain()) == [1, 2]


def test_iterator_continues_when_the_lease_is_renewed() -> None:
    lease = FakeLease()
    lease.is_valid = False
    with stream_harness(timeout_ms=-1, lease=lease) as harness:
        fill(harness.partition(), 1)
        found: list[int] = []
        reader = threading.Thread(target=lambda: found.extend(offsets(harness.take(1))))
        reader.start()
        lease.is_valid = True
        reader.join()
        assert found == [0]


def test_shutdown_ends_the_wait_for_the_lease() -> None:
    lease = FakeLease()
    lease.is_valid = False
    with stream_harness(timeout_ms=-1, lease=lease) as harness:
        harness.queue.close()
        assert list(harness.stream) == []


# --- gaps, resets and damage


def test_gap_before_a_chunk_is_logged_as_possible_loss(
    harness: StreamHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = fill(harness.partition(), 1)
        info.fetched_offset = 5
        fill(info, 1)
        assert offsets(harness.drain()) == [0, 5]
        assert caplog.messages == [
            "t-0: consumed up to offset 1, but fetched messages begin at 5: messages may be lost"
        ]


def test_gap_inside_a_chunk_is_not_logged(harness: StreamHarness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = harness.partition()
        assert info.enqueue(memoryview(bytes(message_set(0, 1)) + bytes(message_set(4, 1))), 5)
        fill(info, 1)
        assert offsets(harness.drain()) == [0, 4, 5]
        assert caplog.messages == []


def test_reset_partition_delivers_fetched_messages_first(
    harness: StreamHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = fill(harness.partition(offset=10), 2)
        assert info.reset(4)
        fill(info, 1)
        assert offsets(harness.take(2)) == [10, 11]
        assert offsets(harness.take(1)) == [4]
        assert info.consumed_offset == 4
        assert caplog.messages == []


def test_reset_without_queued_messages_takes_effect_at_once(harness: StreamHarness) -> None:
    info = harness.partition(offset=-1)
    assert info.reset(7)
    assert (info.consumed_offset, info.fetched_offset, len(harness.queue)) == (7, 7, 0)
    assert info.reset(9)
    assert (info.consumed_offset, info.fetched_offset, len(harness.queue)) == (9, 9, 0)


def test_full_queue_accepts_neither_messages_nor_a_reset() -> None:
    with stream_harness(max_chunks=1) as harness:
        info = fill(harness.partition(), 2)
        assert not info.enqueue(message_set(2, 1), 3)
        assert not info.reset(50)
        assert info.fetched_offset == 2


def damaged(first: int, count: int, at: int, magic: int = 1) -> memoryview:
    """Return a set in which the message (magic 2: the batch) with offset ``at`` has a wrong checksum."""
    sets = [bytearray(message_set(offset, 1, magic=magic)) for offset in range(first, first + count)]
    sets[at - first][-1] ^= 1
    return memoryview(b"".join(sets))


@pytest.mark.parametrize("magic", [1, 2])
def test_damaged_message_raises_its_position_until_skipped(harness: StreamHarness, magic: int) -> None:
    info = harness.partition(2)
    assert info.enqueue(damaged(0, 4, 1, magic), 4)
    fill(info, 1)
    iterator = harness.stream
    assert offsets(harness.take(1)) == [0]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="CORRUPT_MESSAGE: t-2 at offset 1: ") as raised:
            harness.take(1)
        error = raised.value
        assert (error.topic, error.partition, error.offset, error.after_offset) == ("t", 2, 1, 2)
        assert info.consumed_offset == 1
    assert iterator.skip_corrupt() == 2
    assert info.consumed_offset == 2
    assert offsets(harness.drain()) == [2, 3, 4]
    assert stats().topic("t").skipped.count == 1


def test_damaged_compressed_set_delivers_nothing() -> None:
    broken = bytearray(message_set(1, 3, codec=Codec.GZIP))
    broken[-3] ^= 1
    with stream_harness() as harness:
        data = bytes(message_set(0, 1)) + bytes(broken) + bytes(message_set(4, 1))
        assert harness.partition().enqueue(memoryview(data), 5)
        assert offsets(harness.take(1)) == [0]
        with pytest.raises(CorruptMessage) as raised:
            harness.take(1)
        assert raised.value.offset == 1
        assert harness.stream.iterator().skip_corrupt() == 4
        assert offsets(harness.drain()) == [4]


def test_skip_without_a_damaged_message_is_refused(harness: StreamHarness) -> None:
    with pytest.raises(ValueError, match="no damaged message"):
        harness.stream.iterator().skip_corrupt()


def test_damaged_message_cleared_by_a_rebalance_is_not_skipped(harness: StreamHarness) -> None:
    info = harness.partition()
    assert info.enqueue(memoryview(b""), 1, CorruptMessage("t", 0, 0, 1, "damaged"))
    with pytest.raises(CorruptMessage):
        harness.take(1)
    harness.stream.clear()
    assert harness.stream.iterator().skip_corrupt() == 1
    assert info.consumed_offset == 0
    with pytest.raises(ValueError, match="no damaged message"):
        harness.stream.iterator().skip_corrupt()


def test_queued_error_is_raised_after_earlier_messages() -> None:
    error = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-0")
    with stream_harness() as harness:
        info = fill(harness.partition(), 1)
        assert info.enqueue(memoryview(b""), 1, error)
        assert offsets(harness.take(1)) == [0]
        for _ in range(2):
            with pytest.raises(BrokerError) as raised:
                harness.take(1)
            assert raised.value is error
        assert info.consumed_offset == 1
        harness.stream.clear()
        with pytest.raises(ConsumerTimeout):
            harness.take(1)


def test_damage_reported_by_a_fetcher_can_be_skipped(harness: StreamHarness) -> None:
    info = harness.partition()
    assert info.enqueue(memoryview(b""), 1, CorruptMessage("t", 0, 0, 1, "damaged"))
    fill(info, 1)
    with pytest.raises(CorruptMessage):
        harness.take(1)
    assert harness.stream.iterator().skip_corrupt() == 1
    assert offsets(harness.drain()) == [1]
    assert info.consumed_offset == 2


@pytest.mark.parametrize(
    "error", [CorruptMessage("t", 1, 2, 3, "why"), MessageSizeTooLarge("t", 1, 2, 300, 100)]
)
def test_errors_of_streams_survive_pickling(error: BrokerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_error_for_a_too_large_message_names_the_setting() -> None:
    assert str(MessageSizeTooLarge("t", 1, 2, 300, 100)) == (
        "MESSAGE_TOO_LARGE: the message of t-1 at offset 2 has 300 bytes, which exceeds "
        "fetch.message.max.bytes=100: increase fetch.message.max.bytes"
    )


def test_no_message_is_lost_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = columns.decode_pieces

    def failing(*arguments: Any, **options: Any) -> Iterator[columns.Columns]:
        monkeypatch.setattr(columns, "decode_pieces", decode)
        raise MemoryError
        yield from decode(*arguments, **options)

    monkeypatch.setattr(columns, "decode_pieces", failing)
    with stream_harness() as harness:
        fill(harness.partition(), 3)
        with pytest.raises(MemoryError):
            harness.take(1)
        assert offsets(harness.take(3)) == [0, 1, 2]
