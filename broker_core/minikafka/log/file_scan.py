"""Scans of a segment file in windows, and the report of what recovery found and truncated.

A segment is never read into memory as a whole: ``scan_file`` reads it in windows of ``WINDOW_BYTES``. Most
windows end within a message; the next window begins at that message. A message larger than a window is
only read whole after its CRC was computed piece by piece, so that a damaged size field cannot make the
broker allocate a gigabyte.

Damage is: a size that does not fit the file or a message, an offset that does not increase, an unknown magic
byte, a wrong CRC, fields that do not fit the message. The log ends at the first damage; the bytes from there
on are copied to a file ending in ``.corrupt`` beside the segment, then truncated (``Log`` does so).

Bytes that were not flushed are written back in place (``rewrite_from``). After a failed fsync the kernel
marks the pages that it could not write as clean: the next process reads them, flushes nothing, and would
append after a hole. Written again, they are flushed, or the flush fails. A power cut in between leaves the
old bytes or the same bytes.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import File, Files
from minikafka.log.index.offset_index import Entries
from minikafka.log.layout import CORRUPT_SUFFIX
from minikafka.records.format import batch
from minikafka.records.format.checksums import crc32c
from minikafka.records.kernels.layout import BATCH_COVERED_AT, BATCH_CRC_AT, MAGIC_AT, MESSAGE_CRC_AT
from minikafka.records.scan.scan import ScanResult, scan

WINDOW_BYTES = 8 << 20
_ZEROS = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Window:
    """Whole messages read from a segment. ``data`` begins at file position ``position``."""

    position: int
    data: memoryview
    result: ScanResult


@dataclass(frozen=True, slots=True)
class RemovedBytes:
    """Bytes removed from the end of a log at open."""

    path: str
    position: int
    length: int
    reason: str
    saved_to: str

    def __str__(self) -> str:
        return (
            f"{self.path}: removed {self.length} bytes from position {self.position}: {self.reason}; "
            f"saved in {self.saved_to}"
        )


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The repairs that were made when a log was opened. ``str()`` returns one line."""

    directory: str
    cuts: tuple[RemovedBytes, ...]
    end_offset: int
    """The log end offset after recovery."""

    @property
    def bytes_cut(self) -> int:
        """The number of bytes that were removed."""
        return sum(cut.length for cut in self.cuts)

    def __str__(self) -> str:
        return "; ".join(str(cut) for cut in self.cuts) + f"; log end offset is now {self.end_offset}"


@dataclass(frozen=True, slots=True)
class FileScan:
    """The content of a segment file from the position where the scan began. Positions are in the file."""

    valid_bytes: int
    """The position where the last valid message ends."""
    next_offset: int
    max_timestamp: tuple[int, int]
    """The largest timestamp, and the last offset of the first entry that has it; -1 when there is none."""
    problem: str | None
    """The reason why the scan stopped before the end, with the position."""
    entries: tuple[Entries, ...]
    """Entries for the offset index, an array for each window."""
    time_entries: tuple[Entries, ...]
    """Entries for the time index."""


def windows(
    file: File,
    begin: int,
    end: int,
    base_offset: int,
    *,
    interval_bytes: int = 4096,
    check_crc: bool = True,
    window_bytes: int | None = None,
) -> Iterator[Window]:
    """Yield the valid entries between two positions of a segment, up to the first damage.

    The segment starts at ``base_offset``; ``begin`` is the position of an entry. The result of the last
    window says in ``problem`` why nothing follows. Each window has at most ``window_bytes`` (default:
    WINDOW_BYTES), or one larger entry.
    """
    usual = WINDOW_BYTES if window_bytes is None else window_bytes
    position, wanted, indexed, newest = begin, usual, begin, (-1, base_offset)
    next_offset: int | None = None
    while position < end:
        asked = min(wanted, end - position)
        data = memoryview(file.read_at(position, asked))
        result = scan(
            data,
            base_offset=base_offset,
            next_offset=next_offset,
            position=position,
            last_indexed=indexed,
            max_timestamp=newest,
            index_interval_bytes=interval_bytes,
            check_crc=check_crc,
        )
        at_end = position + asked >= end or len(data) < asked
        if not at_end and result.incomplete and result.valid_bytes == 0:
            if _is_whole(file, position, result.wanted_bytes, end):
                wanted = result.wanted_bytes
                continue
            at_end = True
        yield Window(position, data[: result.valid_bytes], result)
        if at_end or (result.problem is not None and not result.incomplete):
            return
        position += result.valid_bytes
        next_offset, indexed, wanted = result.next_offset, result.last_indexed, usual
        newest = result.max_timestamp_ms, result.max_timestamp_at


def _is_whole(file: File, position: int, size: int, end: int) -> bool:
    """Return whether an entry larger than a window ends before ``end`` and has the right CRC."""
    if position + size > end:
        return False
    head = file.read_at(position, BATCH_COVERED_AT)
    is_batch = head[MAGIC_AT] == batch.MAGIC
    crc_at, covered_at = (BATCH_CRC_AT, BATCH_COVERED_AT) if is_batch else (MESSAGE_CRC_AT, MAGIC_AT)
    stored = int.from_bytes(head[crc_at : crc_at + 4], "big")
    computed, at = 0, position + covered_at
    while at < position + size:
        piece = file.read_at(at, min(WINDOW_BYTES, position + size - at))
        if not piece:
            return False
        computed = crc32c(piece, computed) if is_batch else zlib.crc32(piece, computed)
        at += len(piece)
    return computed == stored


def scan_file(
    file: File,
    begin: int,
    end: int,
    base_offset: int,
    *,
    interval_bytes: int = 4096,
    check_crc: bool = True,
    rewrite_from: int | None = None,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> FileScan:
    """Scan a segment between two positions (see ``windows``). ``advance`` gets the bytes of each window.

    ``rewrite_from``: the valid entries from this offset on are written back; the caller flushes them. They
    are the bytes that were checked: a page that is read again may come from the disk with other content.
    """
    valid, next_offset, newest = begin, base_offset, (-1, base_offset)
    problem: str | None = None
    entries: list[Entries] = []
    time_entries: list[Entries] = []
    for window in windows(file, begin, end, base_offset, interval_bytes=interval_bytes, check_crc=check_crc):
        result = window.result
        valid = window.position + result.valid_bytes
        next_offset = result.next_offset
        newest = result.max_timestamp_ms, result.max_timestamp_at
        entries.append(result.index_entries)
        time_entries.append(result.time_entries)
        problem = result.problem
        advance(result.valid_bytes)
        if rewrite_from is not None and next_offset > rewrite_from:
            _rewrite(file, window, rewrite_from)
    if valid < end and problem is None:
        problem = f"unexpected end of file, at position {valid}"
    return FileScan(
        valid, next_offset, newest, problem if valid < end else None, tuple(entries), tuple(time_entries)
    )


def _rewrite(file: File, window: Window, from_offset: int) -> None:
    """Write a window back, from the last index entry at or before ``from_offset``."""
    offsets, positions = window.result.index_entries.T
    number = int(offsets.searchsorted(from_offset, side="right")) - 1
    begin = int(positions[number]) - window.position if number >= 0 else 0
    file.write_at(window.position + begin, window.data[begin:])


def save_bytes(files: Files, file: File, position: int, end: int) -> str:
    """Copy ``[position, end)`` of a segment to a new flushed file beside it, and return the file's path.

    Blocks of zeros become holes: a file that Kafka preallocated has up to a gigabyte of them. Raises
    StorageError.
    """
    path = free_path(files, file.path)
    copy = files.open(path, create=True)
    try:
        for begin in range(position, end, len(_ZEROS)):
            piece = file.read_at(begin, min(len(_ZEROS), end - begin))
            if piece != _ZEROS[: len(piece)]:
                copy.write_at(begin - position, piece)
        if copy.size() != end - position:
            copy.truncate(end - position)
        copy.sync()
    except StorageError as error:
        with contextlib.suppress(StorageError, FileNotFoundError):
            files.remove(path)  # recovery is retried: incomplete copies must not fill the disk
        raise StorageError(
            f"cannot save {end - position} damaged bytes at the end of {file.path} before truncating it: "
            f"{error}; free disk space, or truncate the file by hand"
        ) from error
    finally:
        copy.close()
    return path


def only_zeros(file: File, begin: int, end: int) -> bool:
    """Return whether all bytes between two positions are zero."""
    for at in range(begin, end, len(_ZEROS)):
        piece = file.read_at(at, min(len(_ZEROS), end - at))
        if piece != _ZEROS[: len(piece)]:
            return False
    return True


def free_path(files: Files, path: str) -> str:
    """Return a path for the damaged bytes of ``path`` that is not in use yet."""
    number, candidate = 1, path + CORRUPT_SUFFIX
    while files.exists(candidate):
        number += 1
        candidate = f"{path}.{number}{CORRUPT_SUFFIX}"
    return candidate
