from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import FileSlice, RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from minikafka.records.scan.stream import MessageSet
from tests.oracles import messages as oracle
from tests.support.records import BATCH_CASES, CASES, expected, row_of, segment, some_records

Source = bytes | FileSlice


def in_memory(data: bytes) -> Source:
    return data


def in_a_file(data: bytes) -> Source:
    """Bytes in the middle of a file."""
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.write_at(0, b"before" + data + b"behind")
    return FileSlice(file, 6, len(data))


either = pytest.mark.parametrize("source", [in_memory, in_a_file])
Make = Callable[[bytes], Source]


class SlowChannel(io.RawIOBase):
    """A channel that accepts ``most`` bytes at a time, and in total."""

    def __init__(self, most: int, room: int) -> None:
        self.data = b""
        self._most = most
        self._room = room

    def write(self, data: memoryview) -> int | None:  # type: ignore[override]
        taken = bytes(data[: min(self._most, self._room - len(self.data))])
        self.data += taken
        return len(taken) or None


class PipeChannel:
    """A channel that copies slices with the system's ``sendfile``."""

    def __init__(self, target: int) -> None:
        self._target = target

    def write(self, data: memoryview) -> int:
        raise AssertionError(f"{len(data)} bytes were read")

    def write_slice(self, piece: FileSlice) -> int:
        descriptor = piece.file.descriptor()
        assert descriptor is not None
        return os.sendfile(self._target, descriptor, piece.position, piece.length)


@either
@pytest.mark.parametrize("name", CASES | BATCH_CASES)
@pytest.mark.parametrize("window", [1, 300, 1 << 20])
def test_recorded_segments_are_read_with_any_window(source: Make, name: str, window: int) -> None:
    found = MessageSet(source(segment(name)), window_bytes=window)
    assert [row_of(record) for record in found if not record.control] == expected(name)
    assert found.size_bytes == found.valid_bytes == len(segment(name))


@either
def test_a_set_can_be_iterated_again(source: Make) -> None:
    found = MessageSet(source(build_message_set(some_records(3))))
    assert list(found) == list(found)


@either
def test_wrappers_are_given_as_they_are_where_that_is_asked(source: Make) -> None:
    data = build_message_set(some_records(5), codec=Codec.GZIP) * 2
    found = list(MessageSet(source(data), window_bytes=50).records(deep=False))
    assert [(r.offset, r.codec) for r in found] == [(4, Codec.GZIP)] * 2
    assert found == list(iterate(data, deep=False))


@either
def test_bulk_pieces_are_whole_entries_within_the_size(source: Make) -> None:
    parts = [build_message_set([Record(None, bytes(size))]) for size in (10, 10, 500, 10, 10, 10)]
    pieces = [bytes(piece) for piece in MessageSet(source(b"".join(parts))).bulk(100)]
    assert pieces == [parts[0] + parts[1], parts[2], parts[3] + parts[4], parts[5]]


@either
@pytest.mark.parametrize("cut", [1, 30, 11])
def test_a_cut_off_last_entry_is_left_out_or_reported(source: Make, cut: int) -> None:
    good = build_message_set(some_records(3))
    data = good + build_batch(some_records(2))[:-cut] if cut != 11 else good + bytes(11)
    found = MessageSet(source(data))
    assert len(list(found)) == 3
    assert (found.size_bytes, found.valid_bytes) == (len(data), len(good))
    strict = iter(MessageSet(source(data), whole=True))
    assert [next(strict).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BrokerError, match=f"not complete, at position {len(good)}"):
        next(strict)


@either
def test_the_windows_grow_only_to_the_bound(source: Make) -> None:
    data = build_message_set(some_records(1)) + build_message_set([Record(None, bytes(5_000))])
    size = len(data) - len(build_message_set(some_records(1)))
    assert len(list(MessageSet(source(data), window_bytes=100, max_entry_bytes=size))) == 2
    with pytest.raises(
        BrokerError, match=f"an entry of {size} bytes exceeds the limit of {size - 1}"
    ) as raised:
        list(MessageSet(source(data), window_bytes=100, max_entry_bytes=size - 1))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@either
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (bytes(8) + b"\xff" * 4 + bytes(30), "size field"),
        (oracle.entry(0, magic=1, value=b"x")[:16] + b"\x07" + bytes(22), "magic byte"),
    ],
)
def test_damage_is_reported_after_the_valid_messages(source: Make, bad: bytes, text: str) -> None:
    good = build_message_set(some_records(20))
    found = iter(MessageSet(source(good + bad + good), window_bytes=100))
    assert [next(found).offset for _ in range(20)] == list(range(20))
    with pytest.raises(BrokerError, match=f"{text}.*position {len(good)}"):
        next(found)


@either
def test_wrong_checksum_is_reported_with_its_piece(source: Make) -> None:
    good = build_message_set(some_records(2))
    data = bytearray(good * 2)
    data[-1] ^= 1
    with pytest.raises(
        BrokerError, match=f"checksum.*position {len(good) // 2} of the data from byte {len(good)} on"
    ):
        list(MessageSet(source(bytes(data)), window_bytes=len(good)))
    with pytest.raises(BrokerError, match=r"checksum.*position \d+$"):
        list(MessageSet(source(bytes(data))))


def test_messages_with_largest_offset_and_time_are_read() -> None:
    last = 2**63 - 1
    data = oracle.entry(last, magic=1, timestamp=last, value=b"x") * 3
    assert [record.offset for record in MessageSet(data)] == [last] * 3


def test_a_large_file_is_never_held_as_a_whole() -> None:
    data = build_message_set([Record(None, bytes(10_000))] * 400)
    source = in_a_file(data)
    tracemalloc.start()
    try:
        count = sum(1 for _ in MessageSet(source, window_bytes=1 << 16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 400
    assert peak < len(data) // 8


@either
def test_all_of_it_is_written_to_a_channel_the_cut_off_entry_too(source: Make) -> None:
    data = build_message_set(some_records(30))[:-3]
    channel = io.BytesIO()
    assert MessageSet(source(data), window_bytes=100).write_to(channel, 0, 1 << 30) == len(data)
    assert channel.getvalue() == data


@either
def test_a_channel_that_takes_little_is_given_the_rest_later(source: Make) -> None:
    data = build_message_set(some_records(30))
    channel = SlowChannel(7, 50)
    found = MessageSet(source(data))
    written = [found.write_to(channel, len(channel.data), len(data)) for _ in range(9)]
    assert written == [7] * 7 + [1, 0]
    assert channel.data == data[:50]


@either
def test_a_part_of_it_is_written_from_a_position_on(source: Make) -> None:
    data = build_message_set(some_records(30))
    channel = io.BytesIO()
    found = MessageSet(source(data), window_bytes=40)
    assert found.write_to(channel, 100, 90) == 90
    assert found.write_to(channel, len(data), 90) == found.write_to(channel, 0, 0) == 0
    assert channel.getvalue() == data[100:190]
    with pytest.raises(ValueError, match="invalid position -1"):
        found.write_to(channel, -1, 5)


def test_slice_channel_gets_file_data_unread(tmp_path: Path) -> None:
    data = build_message_set(some_records(30))
    files = RealFiles()
    source = files.open(str(tmp_path / "segment"), create=True)
    source.write_at(0, b"x" + data)
    target = files.open(str(tmp_path / "target"), create=True)
    descriptor = target.descriptor()
    assert descriptor is not None
    found = MessageSet(FileSlice(source, 1, len(data)))
    assert found.write_to(PipeChannel(descriptor), 10, 70) == 70
    assert target.read_at(0, 1000) == data[10:80]
    source.close()
    target.close()


def test_a_file_that_has_become_shorter_ends_the_set() -> None:
    data = build_message_set(some_records(10))
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.write_at(0, data)
    found = MessageSet(FileSlice(file, 0, len(data)))
    file.truncate(len(data) // 2 + 3)
    assert len(list(found)) == 5
    file.truncate(0)
    assert list(found) == []
    assert found.write_to(io.BytesIO(), 0, 100) == 0
