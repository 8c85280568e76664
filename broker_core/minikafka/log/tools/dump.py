"""The records of a segment file, one by one, for ``minikafka log dump``. Other files: ``dump_files``.

Reads the file in windows and never as a whole; each entry is decoded by itself, so that its file position is
known. A damaged entry with a valid size is reported and skipped when a plausible entry follows; otherwise the
file ends there. The file is only read: a segment that a broker writes to meanwhile may end in a half-written
entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from minikafka.base.errors import BrokerError
from minikafka.base.files import File, Files
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.kernels.layout import ENTRY_HEADER_BYTES, MESSAGE_FIELDS, MIN_SIZE

WINDOW_BYTES = 1 << 20
_HEADER = MESSAGE_FIELDS.struct("offset", "size")


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged bytes of a file: position, length and reason. The length is 0 when bytes are missing.

    In a segment, damage without a valid entry after it reaches to the end of the file.
    """

    path: str
    position: int
    length: int
    reason: str

    def __str__(self) -> str:
        if not self.length:
            return f"{self.path}: {self.reason}"
        return f"{self.path}: {self.length} bytes from position {self.position} are damaged: {self.reason}"


def dump_records(files: Files, path: str, *, deep: bool = True) -> Iterator[StoredRecord | Damage]:
    """Yield the records in the file, in order, and ``Damage``; compressed sets are opened when ``deep``.

    Raises FileNotFoundError when there is no such file, StorageError when it cannot be read.
    """
    with closing(files.open(path, read_only=True)) as file:
        yield from _records(file, deep)


def _records(file: File, deep: bool) -> Iterator[StoredRecord | Damage]:
    end = file.size()
    window = FileWindow(file, end)
    position = 0
    while position < end:
        size, reason = entry_size(window, position, end)
        if reason is not None:
            yield Damage(file.path, position, end - position, reason)
            return
        try:
            yield from list(iterate(window.take(position, size), deep=deep))
        except BrokerError as error:
            damage = damaged_entry(window, position, end, f"{error.detail} of the entry")
            yield damage
            size = damage.length
        position += size


def damaged_entry(window: FileWindow, position: int, end: int, reason: str) -> Damage:
    """Return the damage of an entry of valid size: its bytes, or all bytes from it on if no plausible entry
    follows.
    """
    behind = position + entry_size(window, position, end)[0]
    if behind < end and entry_size(window, behind, end)[1] is not None:
        behind = end
    return Damage(window.path, position, behind - position, reason)


def entry_size(window: FileWindow, position: int, end: int) -> tuple[int, str | None]:
    """Return the size with header of the entry at ``position``, and a reason if there cannot be one."""
    if end - position < ENTRY_HEADER_BYTES:
        return 0, f"{end - position} bytes, fewer than an entry header has ({ENTRY_HEADER_BYTES})"
    offset, size = _HEADER.unpack(window.take(position, ENTRY_HEADER_BYTES))
    if size < MIN_SIZE:
        return 0, f"the size field holds {size}, the smallest message has {MIN_SIZE} bytes"
    if position + ENTRY_HEADER_BYTES + size > end:
        missing = position + ENTRY_HEADER_BYTES + size - end
        return 0, f"the size field holds {size}, but {missing} bytes are missing at the end of the file"
    if offset < 0:
        return 0, f"the offset field holds {offset}"
    return ENTRY_HEADER_BYTES + size, None


class FileWindow:
    """Reads a file through a window: the part that was read last."""

    def __init__(self, file: File, end: int) -> None:
        self.path = file.path
        self._file = file
        self._end = end
        self._at = 0
        self._data = memoryview(b"")

    def take(self, position: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``position``, all of them inside the file."""
        if not self._at <= position <= position + size <= self._at + len(self._data):
            self._at = position
            length = max(size, min(WINDOW_BYTES, self._end - position))
            self._data = memoryview(self._file.read_at(position, length))
        return self._data[position - self._at : position - self._at + size]
