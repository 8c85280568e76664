"""What an encoded message is made of: pieces of memory and slices of files, in the order of sending.

Records are never copied into a message. They stand in it as the view or the file slice that they came as,
so that the network can hand a slice to ``sendfile``; or as a ``LazyPart``, which has a length now and its
bytes when they are sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from minikafka.base.errors import StorageError
from minikafka.base.files import Buffer, FileSlice


class LazyPart(ABC):
    """A part of a known length whose bytes are made piece by piece while they are sent.

    One thread at a time uses it: whoever sends it.
    """

    length: int

    @abstractmethod
    def ready(self) -> memoryview | None:
        """The next bytes; None where they have to be made first (``prepare``). Raises StorageError."""

    @abstractmethod
    def prepare(self, done: Callable[[], None]) -> None:
        """Make the next bytes, perhaps on another thread, and call ``done`` once, from there."""

    @abstractmethod
    def sent(self, count: int) -> None:
        """So many of the bytes that were ready are not needed any more."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more of it is needed. A second call does nothing."""

    @abstractmethod
    def read(self) -> bytes:
        """All bytes, made here and now."""

    @abstractmethod
    def cut(self, length: int) -> None:
        """Have it end after ``length`` bytes, if it has more. Before anything of it is sent."""


Part = bytes | bytearray | memoryview | FileSlice | LazyPart
"""One piece of a message."""


def part_size(part: Part) -> int:
    """Bytes of one part."""
    if isinstance(part, (FileSlice, LazyPart)):
        return part.length
    return part.nbytes if isinstance(part, memoryview) else len(part)


def total_size(parts: Iterable[Part]) -> int:
    """Bytes of all parts together."""
    return sum(map(part_size, parts))


def buffer_of(part: Part | None) -> memoryview:
    """The bytes of a part: a view where it is memory, read from the file where it is a slice, empty for None;
    made where it is lazy.

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
    if isinstance(part, LazyPart):
        return memoryview(part.read())
    return memoryview(part).cast("B")


def join(parts: Iterable[Part]) -> bytes:
    """All parts as one piece of memory, file slices read: for tests and for the network in memory."""
    return b"".join(map(buffer_of, parts))
