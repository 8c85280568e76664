"""Records that are converted down while an old consumer reads them.

As with Kafka since KIP-283: the length of what a partition gives is fixed when the answer is made, from a
first piece that is converted then. Each further piece is converted when the connection has taken the one
before, by the broker's pool. What cannot be filled in the end is the beginning of a message that is longer
than the rest: consumers throw a cut-off last message away.

Pieces that wait to be sent share one bound (``PIECES_BYTES``) for all connections: above it those are dropped
whose connections took nothing for the longest time. They are made again when a connection goes on, so a
consumer that reads nothing costs nothing, and one that reads slowly costs time. A piece that a connection
asked for (``prepare``) stays until that connection was tried with it, or two large ones would drop each other
for ever; another that finds no room meanwhile is made again.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from weakref import ReferenceType, ref

from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.files import FileSlice
from minikafka.records.down_conversion import START, Cursor, DownConverter, Piece
from minikafka.server.workers.work_pool import WorkPool
from minikafka.wire.frame_parts import LazyPart, Part

_log = logging.getLogger(__name__)

PIECES_BYTES = 64 << 20
"""All pieces of a broker that wait to be sent; one that is larger may be there alone."""
PLAIN_BYTES = 256 << 10
"""So much of one answer is kept as it is, without a count: small partitions as a whole."""

_MESSAGE_HEAD = struct.Struct(">qi")
FILLING = _MESSAGE_HEAD.pack(-1, 0x7FFFFFFF)
"""The beginning of a message, in place of entries of which older formats have nothing (marks of
transactions): an empty answer would say that the log ends here. Kafka from 2.0 on does the same."""
_LEAST_SIZE = 61
"""No message that clients know is as large in its head, where less than that is to be filled."""
_ZEROS = bytes(64 << 10)


class PieceBudget:
    """Bounds the pieces of all connections. Thread-safe."""

    def __init__(self, most_bytes: int = PIECES_BYTES) -> None:
        self._most_bytes = most_bytes
        # Re-entrant: the collector may end a part of records here, which then gives its room back.
        self._lock = threading.RLock()
        self._pieces: OrderedDict[int, tuple[ReferenceType[ConvertedRecords], int]] = OrderedDict()
        self._asked_for: dict[int, int] = {}
        """Sizes of pieces whose connections were not tried with them yet."""
        self._asked_for_bytes = 0
        self._bytes = 0
        """Of all, those that were asked for included."""

    @property
    def used_bytes(self) -> int:
        """Bytes of all pieces that are kept."""
        return self._bytes

    def keep(self, owner: ConvertedRecords, size: int, *, asked_for: bool) -> bool:
        """Count a piece of ``owner``, and drop others until there is room. ``asked_for``: it is not dropped
        until it was ``tried``. False, and nothing is counted or dropped, where such pieces leave no room.
        """
        dropped = []
        with self._lock:
            self.forget(owner)
            if self._asked_for and self._asked_for_bytes + size > self._most_bytes:
                return False
            while self._pieces and self._bytes + size > self._most_bytes:
                _, (reference, other_bytes) = self._pieces.popitem(last=False)
                self._bytes -= other_bytes
                other = reference()
                if other is not None:
                    other.drop()
                    dropped.append(other)
            if asked_for:
                self._asked_for[id(owner)] = size
                self._asked_for_bytes += size
            else:
                self._pieces[id(owner)] = ref(owner), size
            self._bytes += size
        return True

    def tried(self, owner: ConvertedRecords) -> None:
        """Its connection takes of its piece what it can now: the piece may be dropped, as the last of all."""
        with self._lock:
            size = self._asked_for.pop(id(owner), None)
            if size is not None:
                self._asked_for_bytes -= size
                self._pieces[id(owner)] = ref(owner), size

    def used(self, owner: ConvertedRecords) -> None:
        """A part of its piece was sent: it is the last to be dropped."""
        with self._lock:
            if id(owner) in self._pieces:
                self._pieces.move_to_end(id(owner))

    def forget(self, owner: ConvertedRecords) -> None:
        """Its piece is sent, or not needed any more."""
        with self._lock:
            _, size = self._pieces.pop(id(owner), (None, 0))
            asked_for = self._asked_for.pop(id(owner), 0)
            self._asked_for_bytes -= asked_for
            self._bytes -= size + asked_for


class ConvertedRecords(LazyPart):
    """The records of one partition in an older format."""

    def __init__(
        self,
        converter: DownConverter,
        length: int,
        first: Piece,
        begin: Cursor,
        pool: WorkPool,
        budget: PieceBudget,
    ) -> None:
        """``first`` is the piece that begins at ``begin``, and has something in it."""
        self.length = length
        self._converter = converter
        self._pool = pool
        self._budget = budget
        self._cursor: Cursor | None = begin
        """Of the present piece; None once the rest is filling."""
        self._size = len(first.data)
        """Of the present piece, also while it is dropped."""
        self._piece: memoryview | None = first.data
        self._next = first.next
        self._at = 0
        self._closed = False
        self._fault = ""
        """Why nothing more can be sent: the connection has to end, as the length of its answer is told."""
        self._untried = False
        """Whether the present piece was asked for and its connection did not see it yet."""
        if not budget.keep(self, self._size, asked_for=False):
            self._piece = None

    def ready(self) -> memoryview | None:
        if self._cursor is None:
            head = _MESSAGE_HEAD.pack(-1, max(self._at + self.length + 1, _LEAST_SIZE))
            return memoryview(head[self._at :] + _ZEROS)[: self.length]
        if self._fault:
            raise StorageError(self._fault)
        piece = self._piece
        if self._untried:
            self._untried = False
            self._budget.tried(self)
        return None if piece is None else piece[self._at : self._at + self.length]

    def sent(self, count: int) -> None:
        self.length -= count
        self._at += count
        if self._cursor is not None and self._at == self._size:
            self._budget.forget(self)
            self._cursor, self._piece, self._at, self._size = self._next, None, 0, -1
        elif self._cursor is not None:
            self._budget.used(self)

    def prepare(self, done: Callable[[], None]) -> None:
        self._pool.submit(self._steps(done))

    def close(self) -> None:
        self._closed = True
        self._piece = None
        self._untried = False
        self._budget.forget(self)

    def __del__(self) -> None:
        self.close()

    def drop(self) -> None:
        """Keep the present piece no longer; it is made again."""
        self._piece = None

    def cut(self, length: int) -> None:
        self.length = min(self.length, length)

    def read(self) -> bytes:
        out = bytearray()
        while self.length:
            data = self.ready()
            if data is None:
                for _ in self._steps(lambda: None, needed=True):
                    pass
                continue
            out += data
            self.sent(len(data))
        return bytes(out)

    def _steps(self, done: Callable[[], None], *, needed: bool = False) -> Iterator[int]:
        """The job that makes the present piece. ``needed``: it is used at once, so it needs no room."""
        try:
            cursor = self._cursor
            if cursor is not None and not self._closed:
                piece = yield from self._made(cursor)
                self._take(piece, needed=needed)
        except Exception as error:  # noqa: BLE001 - without a fault it would be asked for again, for ever
            _log.debug("a piece of records was not converted", exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            self._fault = f"records of {self._converter.path} cannot be converted: {reason}"
        finally:
            done()

    def _made(self, cursor: Cursor) -> Generator[int, None, Piece]:
        try:
            while True:
                piece = yield from self._converter.steps(cursor)
                if piece.data or piece.next is None or self._size >= 0:
                    return piece
                self._cursor = cursor = piece.next
        except (BrokerError, StorageError) as error:
            # Who asks from there on is told. Its length is known already: something must fill it.
            _log.info("converted records end early: %s", error)
            return Piece(memoryview(b""), None)

    def _take(self, piece: Piece, *, needed: bool) -> None:
        if self._size >= 0 and self._size != len(piece.data):
            self._fault = "records that are being sent have changed on the disk"
        elif not piece.data:
            self._cursor, self._at = None, 0
        elif not self._closed:
            self._size, self._next = len(piece.data), piece.next
            if self._budget.keep(self, self._size, asked_for=True) or needed:
                self._piece, self._untried = piece.data, True


def converted(
    source: FileSlice,
    magic: int,
    first_offset: int,
    plain_bytes: int,
    pool: WorkPool,
    budget: PieceBudget,
) -> Generator[int, None, Part]:
    """Steps to what a partition gives: its first piece is converted. All of at most ``plain_bytes`` is given
    as it is, and does not count for the budget.

    CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE and StorageError where that is what it begins with.
    """
    converter = DownConverter(source, magic, first_offset)
    cursor = START
    piece = yield from converter.steps(cursor)
    while not piece.data and piece.next is not None:
        cursor = piece.next
        piece = yield from converter.steps(cursor)
    size = len(piece.data)
    if not size:
        return FILLING
    if piece.next is None:
        if size <= plain_bytes:
            return piece.data
        return ConvertedRecords(converter, size, piece, cursor, pool, budget)
    # At least one message has to fit, or a consumer would ask for the same for ever.
    first = 12 + int.from_bytes(piece.data[8:12], "big")
    return ConvertedRecords(converter, max(source.length, first), piece, cursor, pool, budget)
