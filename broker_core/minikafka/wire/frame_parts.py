"""The parts of an encoded message: memory and file slices, in the order of sending.

Records are never copied into a message. A message holds the view or the file slice that they came as, so that
the network can pass a slice to ``sendfile``; or a ``LazyPart``, whose length is known now and whose bytes are
produced when they are sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from minikafka.base.errors import StorageError
from minikafka.base.files import Buffer, FileSlice


class LazyPart(ABC):
    """A part of known length whose bytes are produced in pieces while they are sent.

    Only the thread that sends it uses it, one at a time.
    """

    length: int

    @abstractmethod
    def ready(self) -> memoryview | None:
        """Return the next bytes, or None if ``prepare`` must be called first. Raises StorageError."""

    @abstractmethod
    def prepare(self, done: Callable[[], None]) -> None:
        """Produce the next bytes, perhaps on another thread, and call ``done`` once on that thread."""

    @abstractmethod
    def sent(self, count: int) -> None:
        """Release the first ``count`` of the ready bytes."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. A second call does nothing."""

    @abstractmethod
    def read(self) -> bytes:
        """Produce and return all bytes."""

    @abstractmethod
    def cut(self, length: int) -> None:
        """Truncate to ``length`` bytes. Call before anything is sent."""


Part = bytes | bytearray | memoryview | FileSlice | LazyPart
"""One piece of a message."""


def part_size(part: Part) -> int:
    """Return the size of a part in bytes."""
    # Memory first: most parts are, and a check for the abstract LazyPart takes longer than all else here.
    if isinstance(part, memoryview):
        return part.nbytes
    return len(part) if isinstance(part, (bytes, bytearray)) else part.length


def total_size(parts: Iterable[Part]) -> int:
    """Return the total size of ``parts`` in bytes."""
    return sum(map(part_size, parts))


def buffer_of(part: Part | None) -> memoryview:
    """Return the bytes of a part: a view of memory, a slice read from its file, a lazy part produced; empty
    for None.

    Raises StorageError when the file is shorter than the slice.
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
    """Return all parts as one ``bytes``, with file slices read. For tests and the network in memory."""
    return b"".join(map(buffer_of, parts))
