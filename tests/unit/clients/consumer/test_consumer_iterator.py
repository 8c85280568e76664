"""``clients/consumer/streams``: delivery of messages, when they count, and the end of an iteration."""

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
from minikafka.clients.consumer.chunks import PAGE_ROWS
from minikafka.clients.consumer.message_and_metadata import MessageAndMetadata
from minikafka.clients.consumer.streams import ConsumerIterator
from minikafka.clients.serializer import IntegerEncoder, LongDecoder, StringDecoder
from minikafka.embedded.process import wait_until
from minikafka.records import columns
from minikafka.records.format.batch import ControlType, build_control_batch
from minikafka.records.format.message_set import Codec, Record, TimestampType, build_message_set
from tests.support.consumer_streams import fill, message_set, offsets, one_stream, stats


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_of_every_format_come_in_their_order(magic: int, codec: Codec) -> None:
    with one_stream() as one:
        info = one.partition(3, 10)
        fill(info, 5, magic=magic, codec=codec)
        fill(info, 2, magic=magic, codec=codec)
        found = one.drain()
        assert offsets(found) == list(range(10, 17))
        assert [message.message for message in found] == [b"%d" % offset for offset in range(10, 17)]
        assert {(m.topic, m.partition, m.key) for m in found} == {("t", 3, b"k")}
        if magic:
            assert [m.timestamp_ms for m in found] == [1_010 + n for n in range(7)]
            assert found[0].timestamp_type is TimestampType.CREATE_TIME
        else:
            assert {(m.timestamp_ms, m.timestamp_type) for m in found} == {
                (-1, TimestampType.NO_TIMESTAMP_TYPE)
            }


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_chunk_of_many_pages_comes_whole(magic: int, codec: Codec) -> None:
    count = 5 * PAGE_ROWS + 7
    with one_stream() as one:
        info = one.partition()
        fill(info, count, magic=magic, codec=codec)
        found = one.drain()
        assert offsets(found) == list(range(count))
        assert found[-1].message == b"%d" % (count - 1)
        assert info.consumed_offset == count
        assert stats().topic("t").messages.count == count


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_all_sizes_come_as_they_are(magic: int, codec: Codec) -> None:
    sizes = [0, 1, 300_000, 70_000, 10, 65_536, 200_000, 0, *range(0, 40_000, 1_000)]
    records = [Record(b"%d" % size * 3, b"v" * size, 1_000) for size in sizes]
    with one_stream() as one:
        data = build_message_set(records, magic=magic, codec=codec)
        assert one.partition().enqueue(memoryview(data), len(sizes))
        found = one.drain()
        assert [(m.key, m.message) for m in found] == [(r.key, r.value) for r in records]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_compressed_messages_before_the_fetch_offset_are_skipped(magic: int) -> None:
    with one_stream() as one:
        info = one.partition(offset=3)
        assert info.enqueue(message_set(0, 5, magic=magic, codec=Codec.GZIP), 5)
        assert offsets(one.drain()) == [3, 4]


def test_formats_may_follow_each_other_in_a_chunk() -> None:
    sets = [
        message_set(0, 2, magic=0),
        message_set(2, 2, codec=Codec.GZIP),
        message_set(4, 2),
        message_set(6, 2, magic=2),
        message_set(8, 2, magic=2, codec=Codec.LZ4),
        message_set(10, 2, magic=1),
    ]
    with one_stream() as one:
        assert one.partition().enqueue(memoryview(b"".join(sets)), 12)
        assert offsets(one.drain()) == list(range(12))


def test_null_keys_and_values_are_none_and_no_decoder_sees_them() -> None:
    records = [Record(None, b"v"), Record(b"k", None), Record(b"", b"")]
    with one_stream() as one:
        assert one.partition().enqueue(memoryview(build_message_set(records)), 3)
        assert [(m.key, m.message) for m in one.drain()] == [(None, b"v"), (b"k", None), (b"", b"")]


def test_decoders_work_when_the_message_is_looked_at() -> None:
    with one_stream() as one:
        fill(one.partition(), 2)
        text = StringDecoder()
        iterator = ConsumerIterator(one.queue, 0, text, text, "c")
        first: MessageAndMetadata[str, str] = next(iterator)
        assert (first.key, first.message, first.raw_message) == ("k", "0", b"0")


@pytest.mark.parametrize("what", ["key", "message"])
def test_decoder_error_names_the_message(what: str) -> None:
    with one_stream() as one:
        fill(one.partition(3, 10), 1)
        iterator = ConsumerIterator(one.queue, 0, LongDecoder(), LongDecoder(), "c")
        message = next(iterator)
        with pytest.raises(
            UndecodableMessage, match=r"^t-3 at offset 10: LongDecoder failed on the "
        ) as raised:
            getattr(message, what)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 3, 10)
        assert isinstance(raised.value.__cause__, struct.error)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_headers_are_read_when_they_are_asked_for() -> None:
    headers = (("a", b"1"), ("b", None), ("a", IntegerEncoder().to_bytes(7)))
    records = [Record(b"k", b"v", headers=headers), Record(b"k", b"v")]
    with one_stream() as one:
        assert one.partition().enqueue(memoryview(build_message_set(records, magic=2)), 2)
        assert [m.headers for m in one.drain()] == [headers, ()]


def test_marks_of_transactions_are_passed_over_and_count_as_consumed() -> None:
    mark = build_control_batch(
        ControlType.COMMIT,
        coordinator_epoch=0,
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=2,
    )
    with one_stream() as one:
        info = one.partition()
        assert info.enqueue(memoryview(bytes(message_set(0, 2, magic=2)) + mark), 3)
        assert offsets(one.drain()) == [0, 1]
        assert info.consumed_offset == 3


# --- when a message counts


def test_a_message_counts_once_the_next_one_is_asked_for() -> None:
    with one_stream() as one:
        info = one.partition(offset=5)
        fill(info, 2)
        one.take(1)
        assert info.consumed_offset == 5
        one.take(1)
        assert info.consumed_offset == 6
        with pytest.raises(ConsumerTimeout):
            one.take(1)
        assert info.consumed_offset == 7


def test_partitions_of_one_stream_are_counted_each_for_itself() -> None:
    with one_stream() as one:
        a, b = one.partition(0, 10), one.partition(1, 20)
        fill(a, 1)
        fill(b, 1)
        fill(a, 1)
        one.take(2)
        assert (a.consumed_offset, b.consumed_offset) == (11, 20)
        one.take(1)
        assert (a.consumed_offset, b.consumed_offset) == (11, 21)


def test_all_that_was_handed_out_counts_when_the_caller_says_so() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 3)
        one.take(2)
        one.stream.iterator().mark_delivered_consumed()
        assert info.consumed_offset == 2
        one.take(1)
        assert info.consumed_offset == 2


# --- waiting, and the end


def test_undecodable_message_counts_once_the_next_is_requested() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 2)
        iterator = ConsumerIterator(one.queue, 0, LongDecoder(), LongDecoder(), "c")
        with pytest.raises(UndecodableMessage):
            _ = next(iterator).message
        iterator.mark_delivered_consumed()
        assert (info.consumed_offset, iterator.processing_partition) == (0, info)
        next(iterator)
        assert info.consumed_offset == 1


def test_without_a_message_in_time_it_raises_and_goes_on_later() -> None:
    with one_stream(timeout_ms=1) as one:
        for _ in range(2):
            with pytest.raises(ConsumerTimeout, match="no message within 1 ms"):
                one.take(1)
        fill(one.partition(), 1)
        assert offsets(one.take(1)) == [0]


def test_iterator_without_timeout_waits() -> None:
    with one_stream(timeout_ms=-1) as one:
        found: list[int] = []
        reading = threading.Thread(target=lambda: found.extend(offsets(one.take(1))))
        reading.start()
        fill(one.partition(), 1)
        reading.join()
        assert found == [0]


def test_the_shutdown_command_ends_the_iteration_for_good() -> None:
    with one_stream(timeout_ms=-1) as one:
        fill(one.partition(), 2)
        one.take(1)
        one.queue.close()
        assert offsets(list(one.stream)) == [1]
        assert list(one.stream) == []


def test_a_loop_that_was_left_is_gone_on_with_by_the_next() -> None:
    with one_stream() as one:
        fill(one.partition(), 3)
        for message in one.stream:
            assert message.offset == 0
            break
        assert offsets(one.drain()) == [1, 2]


# --- a rebalance


def test_after_the_chunk_was_cleared_nothing_of_it_is_handed_out() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 3)
        fill(info, 3)
        one.take(1)
        one.stream.clear()
        assert len(one.queue) == 0
        assert one.queue.has_room
        assert one.drain() == []
        assert info.consumed_offset == 1
        assert stats().topic("t").messages.count == 1


def test_messages_after_a_clear_are_delivered() -> None:
    with one_stream() as one:
        fill(one.partition(), 3)
        one.take(1)
        one.stream.clear()
        fill(one.partition(offset=1), 2)
        assert offsets(one.drain()) == [1, 2]


def test_waiting_iterator_gets_messages_after_a_clear() -> None:
    with one_stream(timeout_ms=-1) as one:
        found: list[int] = []
        reading = threading.Thread(target=lambda: found.extend(offsets(one.take(1))))
        reading.start()
        one.stream.clear()
        fill(one.partition(offset=7), 1)
        reading.join()
        assert found == [7]


def test_repeated_clears_deliver_only_new_messages() -> None:
    rounds, count = 200, 40
    with one_stream(timeout_ms=-1) as one:
        begin, wrong, taken = [0], [], [0]

        def read() -> None:
            for message in one.stream:
                # Nothing moves on before this one was followed by another request.
                if not begin[0] <= message.offset < begin[0] + count:
                    wrong.append((begin[0], message.offset))
                taken[0] += 1

        reading = threading.Thread(target=read)
        info = one.partition()
        fill(info, count)
        reading.start()
        for round_ in range(1, rounds):
            one.stream.clear()
            assert wait_until(lambda: one.stream.iterator().processing_partition is None, 60)
            assert begin[0] <= info.consumed_offset <= begin[0] + count
            begin[0] = round_ * count
            info = one.partition(offset=begin[0])
            fill(info, count)
        one.queue.close()
        reading.join()
        assert wrong == []
        assert 0 < taken[0] <= rounds * count


def test_last_message_is_in_process_until_the_next_request() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 1)
        assert one.stream.iterator().processing_partition is None
        one.take(1)
        one.stream.clear()
        assert one.stream.iterator().processing_partition is info
        assert one.drain() == []
        assert one.stream.iterator().processing_partition is None
        assert info.consumed_offset == 1


def test_message_in_process_does_not_count_if_its_partition_goes() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 2)
        one.take(1)
        one.stream.clear()
        one.stream.iterator().forget_processing()
        assert one.drain() == []
        assert info.consumed_offset == 0


def test_a_message_in_work_counts_later_where_its_partition_is_kept() -> None:
    with one_stream() as one:
        info = one.partition()
        fill(info, 2)
        one.take(1)
        one.stream.clear()
        one.stream.iterator().forget_processing([info])
        assert (info.consumed_offset, one.stream.iterator().next_fetch_offset(info)) == (0, 1)
        assert one.drain() == []
        assert (info.consumed_offset, one.stream.iterator().next_fetch_offset(info)) == (1, 1)


class FakeLease:
    is_valid = True


def test_nothing_is_handed_out_while_the_lease_is_not_valid() -> None:
    lease = FakeLease()
    with one_stream(lease=lease) as one:
        info = one.partition()
        fill(info, 3)
        one.take(1)
        lease.is_valid = False
        for _ in range(2):
            with pytest.raises(ConsumerTimeout, match="ZooKeeper does not respond"):
                one.take(1)
        assert info.consumed_offset == 1
        lease.is_valid = True
        assert offsets(one.drain()) == [1, 2]


def test_iterator_continues_when_the_lease_is_renewed() -> None:
    lease = FakeLease()
    lease.is_valid = False
    with one_stream(timeout_ms=-1, lease=lease) as one:
        fill(one.partition(), 1)
        found: list[int] = []
        reading = threading.Thread(target=lambda: found.extend(offsets(one.take(1))))
        reading.start()
        lease.is_valid = True
        reading.join()
        assert found == [0]


def test_the_shutdown_ends_the_wait_for_the_lease() -> None:
    lease = FakeLease()
    lease.is_valid = False
    with one_stream(timeout_ms=-1, lease=lease) as one:
        one.queue.close()
        assert list(one.stream) == []


# --- what is not as it should be


def test_a_gap_before_a_chunk_is_reported_as_possible_loss(caplog: pytest.LogCaptureFixture) -> None:
    with one_stream() as one, caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = one.partition()
        fill(info, 1)
        info.fetched_offset = 5
        fill(info, 1)
        assert offsets(one.drain()) == [0, 5]
        assert caplog.messages == [
            "t-0: consumed up to offset 1, but fetched messages begin at 5: messages may be lost"
        ]


def test_a_gap_that_compaction_left_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    with one_stream() as one, caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = one.partition()
        assert info.enqueue(memoryview(bytes(message_set(0, 1)) + bytes(message_set(4, 1))), 5)
        fill(info, 1)
        assert offsets(one.drain()) == [0, 4, 5]
        assert caplog.messages == []


def test_reset_partition_delivers_fetched_messages_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with one_stream() as one, caplog.at_level(logging.ERROR, "minikafka.clients"):
        info = one.partition(offset=10)
        fill(info, 2)
        assert info.reset(4)
        fill(info, 1)
        assert offsets(one.take(2)) == [10, 11]
        assert offsets(one.take(1)) == [4]
        assert info.consumed_offset == 4
        assert caplog.messages == []


def test_reset_without_queued_messages_takes_effect_at_once() -> None:
    with one_stream() as one:
        info = one.partition(offset=-1)
        assert info.reset(7)
        assert (info.consumed_offset, info.fetched_offset, len(one.queue)) == (7, 7, 0)
        assert info.reset(9)
        assert (info.consumed_offset, info.fetched_offset, len(one.queue)) == (9, 9, 0)


def test_a_full_queue_takes_neither_messages_nor_a_reset() -> None:
    with one_stream(max_chunks=1) as one:
        info = one.partition()
        fill(info, 2)
        assert not info.enqueue(message_set(2, 1), 3)
        assert not info.reset(50)
        assert info.fetched_offset == 2


def damaged(first: int, count: int, at: int, magic: int = 1) -> memoryview:
    """A set of which the message (magic 2: the batch) with offset ``at`` has a wrong checksum."""
    sets = [bytearray(message_set(offset, 1, magic=magic)) for offset in range(first, first + count)]
    sets[at - first][-1] ^= 1
    return memoryview(b"".join(sets))


@pytest.mark.parametrize("magic", [1, 2])
def test_a_damaged_message_is_raised_with_its_place_until_it_is_skipped(magic: int) -> None:
    with one_stream() as one:
        info = one.partition(2)
        assert info.enqueue(damaged(0, 4, 1, magic), 4)
        fill(info, 1)
        iterator = one.stream.iterator()
        assert offsets(one.take(1)) == [0]
        for _ in range(2):
            with pytest.raises(CorruptMessage, match="CORRUPT_MESSAGE: t-2 at offset 1: ") as raised:
                one.take(1)
            error = raised.value
            assert (error.topic, error.partition, error.offset, error.after_offset) == ("t", 2, 1, 2)
            assert info.consumed_offset == 1
        assert iterator.skip_corrupt() == 2
        assert info.consumed_offset == 2
        assert offsets(one.drain()) == [2, 3, 4]
        assert stats().topic("t").skipped.count == 1


def test_damaged_compressed_set_delivers_nothing() -> None:
    broken = bytearray(message_set(1, 3, codec=Codec.GZIP))
    broken[-3] ^= 1
    with one_stream() as one:
        data = bytes(message_set(0, 1)) + bytes(broken) + bytes(message_set(4, 1))
        assert one.partition().enqueue(memoryview(data), 5)
        assert offsets(one.take(1)) == [0]
        with pytest.raises(CorruptMessage) as raised:
            one.take(1)
        assert raised.value.offset == 1
        assert one.stream.iterator().skip_corrupt() == 4
        assert offsets(one.drain()) == [4]


def test_there_is_nothing_to_skip_where_nothing_is_damaged() -> None:
    with one_stream() as one, pytest.raises(ValueError, match="no damaged message"):
        one.stream.iterator().skip_corrupt()


def test_damaged_message_cleared_by_a_rebalance_is_not_skipped() -> None:
    with one_stream() as one:
        info = one.partition()
        assert info.enqueue(memoryview(b""), 1, CorruptMessage("t", 0, 0, 1, "damaged"))
        with pytest.raises(CorruptMessage):
            one.take(1)
        one.stream.clear()
        assert one.stream.iterator().skip_corrupt() == 1
        assert info.consumed_offset == 0
        with pytest.raises(ValueError, match="no damaged message"):
            one.stream.iterator().skip_corrupt()


def test_an_error_in_the_queue_is_raised_behind_what_came_before_it() -> None:
    error = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-0")
    with one_stream() as one:
        info = one.partition()
        fill(info, 1)
        assert info.enqueue(memoryview(b""), 1, error)
        assert offsets(one.take(1)) == [0]
        for _ in range(2):
            with pytest.raises(BrokerError) as raised:
                one.take(1)
            assert raised.value is error
        assert info.consumed_offset == 1
        one.stream.clear()
        with pytest.raises(ConsumerTimeout):
            one.take(1)


def test_a_damaged_place_that_a_fetcher_met_can_be_skipped_too() -> None:
    with one_stream() as one:
        info = one.partition()
        assert info.enqueue(memoryview(b""), 1, CorruptMessage("t", 0, 0, 1, "damaged"))
        fill(info, 1)
        with pytest.raises(CorruptMessage):
            one.take(1)
        assert one.stream.iterator().skip_corrupt() == 1
        assert offsets(one.drain()) == [1]
        assert info.consumed_offset == 2


@pytest.mark.parametrize(
    "error", [CorruptMessage("t", 1, 2, 3, "why"), MessageSizeTooLarge("t", 1, 2, 300, 100)]
)
def test_errors_of_streams_travel_between_processes(error: BrokerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_message_that_is_too_large_says_what_to_do() -> None:
    assert str(MessageSizeTooLarge("t", 1, 2, 300, 100)) == (
        "MESSAGE_TOO_LARGE: the message of t-1 at offset 2 has 300 bytes, which exceeds "
        "fetch.message.max.bytes=100: increase fetch.message.max.bytes"
    )


def test_after_an_unexpected_error_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = columns.decode_pieces

    def failing(*given: Any, **more: Any) -> Iterator[columns.Columns]:
        monkeypatch.setattr(columns, "decode_pieces", decode)
        raise MemoryError
        yield from decode(*given, **more)

    monkeypatch.setattr(columns, "decode_pieces", failing)
    with one_stream() as stream:
        fill(stream.partition(), 3)
        with pytest.raises(MemoryError):
            stream.take(1)
        assert offsets(stream.take(3)) == [0, 1, 2]
