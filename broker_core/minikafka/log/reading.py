"""What a read of a log gives: a slice of a file, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.base.files import Buffer, FileSlice
from minikafka.base.values import fast_value
from minikafka.log.segment import Segment


@fast_value
class LogRead:
    """What a read found. ``slice`` is None when there is nothing to send (yet)."""

    slice: FileSlice | None
    first_offset: int
    """Last offset of the first entry in the slice, or what was asked for."""
    segment: Segment | None = None
    more: bool = False
    """Whether something that could be read follows the slice."""

    @property
    def size_bytes(self) -> int:
        """Bytes in the slice."""
        return 0 if self.slice is None else self.slice.length

    def windows(self) -> Iterator[Buffer]:
        """The whole entries of the slice, in pieces of some size. StorageError."""
        if self.slice is not None and self.segment is not None:
            yield from self.segment.windows(self.slice.position, self.slice.position + self.slice.length)

    def is_classic(self) -> bool:
        """Whether the slice has nothing of magic 2. Reads it where nobody knows yet; StorageError."""
        if self.slice is None or self.segment is None:
            return True
        return self.segment.is_classic(self.slice.position, self.slice.position + self.slice.length)

    def has_transactions(self) -> bool:
        """Whether a batch in the slice belongs to a transaction, or ends one. StorageError, BrokerError."""
        if self.slice is None or self.segment is None:
            return False
        return self.segment.has_transactions(self.slice.position, self.slice.position + self.slice.length)

    def has_zstd(self) -> bool:
        """Whether a batch in the slice is compressed with zstd. Reads its headers; StorageError."""
        if self.slice is None or self.segment is None or self.is_classic():
            return False
        return self.segment.has_zstd(self.slice.position, self.slice.position + self.slice.length)
