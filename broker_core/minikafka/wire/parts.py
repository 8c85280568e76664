"""What an encoded message is made of: pieces of memory and slices of files, in the order of sending.

Records are never copied into a message. They stand in it as the view or the file slice that they came as,
so that the network can hand a slice to ``sendfile``.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.errors import StorageError
from minikafka.base.files import Buffer, FileSlice

Part = bytes | bytearray | memoryview | FileSlice
"""One piece of a message."""


def part_size(part: Part) -> int:
    """Bytes of one part."""
    if isinstance(part, FileSlice):
        return part.length
    return part.nbytes if isinstance(part, memoryview) else len(part)


def total_size(parts: Iterable[Part]) -> int:
    """Bytes of all parts together."""
    return sum(map(part_size, parts))


def buffer_of(part: Part | None) -> memoryview:
    """The bytes of a part: a view where it is memory, read from the file where it is a slice, empty for None.

    Raises StorageError when the file has become shorter than the slice.
    """
    if part is None:
        return memoryview(b"")
    if isinstance(part, FileSlice):
        data: Buffer = part.read()
        if len(data) < part.length:
            raise StorageError(
                f"{part.file.path} ends {part.length - len(data)} bytes before the end of a slice of it "
                f"({part.length} bytes from position {part.position})"
            )
        return memoryview(data)
    return memoryview(part).cast("B")


def join(parts: Iterable[Part]) -> bytes:
    """All parts as one piece of memory, file slices read: for tests and for the network in memory."""
    return b"".join(map(buffer_of, parts))
