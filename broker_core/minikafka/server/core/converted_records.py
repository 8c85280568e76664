"""Down-conversion of records while an old consumer reads them.

As in Kafka since KIP-283: the length of a partition's records is fixed when the response is built, from a
first piece that is converted at that time. Each further piece is converted by the broker's pool when the
connection has sent the piece before. If the records turn out shorter than that length, the rest is filled
with the beginning of a message that is longer than the rest: consumers discard a partial last message.

The pieces that wait to be sent share one bound (``PIECES_BYTES``) for all connections. Above it, the pieces
of the connections that have read nothing for the longest time are dropped. A dropped piece is converted again
when its connection reads on, so a consumer that reads nothing costs no memory, and one that reads slowly
costs time. A piece that a connection has requested (``prepare``) stays until it was offered to that
connection: otherwise two large pieces would drop each other forever. A piece that finds no room meanwhile is
converted again later.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from weakref import ReferenceType, ref

from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.files import FileSlice
from minikafka.records.down_conversion import START, Cursor, DownConverter, Piece
from minikafka.records.kernels.layout import BATCH_HEADER_BYTES, MESSAGE_FIELDS, entry_size
from minikafka.server.workers.work_pool import WorkPool
from minikafka.wire.frame_parts import LazyPart, Part

_log = logging.getLogger(__name__)

PIECES_BYTES = 64 << 20
"""The limit for all pieces of a broker that wait to be sent. A larger piece is allowed if it is alone."""
PLAIN_BYTES = 256 << 10
"""The part of a response that is kept outside the budget: small partitions as a whole."""

_MESSAGE_HEAD = MESSAGE_FIELDS.struct("offset", "size")
FILLING = _MESSAGE_HEAD.pack(-1, 0x7FFFFFFF)
"""The beginning of a message, in place of entries that older formats cannot express (transaction markers).
An empty response would say that the log ends here. Kafka since 2.0 does the same."""
_LEAST_SIZE = BATCH_HEADER_BYTES
"""The least size that the header of a filling message gives: larger than any header that clients know."""
_ZEROS = bytes(64 << 10)


class PieceBudget:
    """Bounds the memory of the converted pieces of all connections. Thread-safe."""

    def __init__(self, most_bytes: int = PIECES_BYTES) -> None:
        self._most_bytes = most_bytes
        # Re-entrant: the garbage collector may finalize a ConvertedRecords here, which then frees its room.
        self._lock = threading.RLock()
        self._pieces: OrderedDict[int, tuple[ReferenceType[ConvertedRecords], int]] = OrderedDict()
        self._asked_for: dict[int, int] = {}
        """Sizes of the requested pieces that were not offered to their connections yet."""
        self._asked_for_bytes = 0
        self._bytes = 0
        """Bytes of all pieces, including requested ones."""

    @property
    def used_bytes(self) -> int:
        """The bytes of all pieces that are kept."""
        return self._bytes

    def keep(self, owner: ConvertedRecords, size: int, *, asked_for: bool) -> bool:
        """Count a piece of ``owner``, and drop others until there is room.

        A piece with ``asked_for`` is not dropped until ``tried`` is called. If such pieces leave no room,
        return False: nothing is counted or dropped.
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
        """Allow the piece of ``owner``, which is offered to its connection now, to be dropped last."""
        with self._lock:
            size = self._asked_for.pop(id(owner), None)
            if size is not None:
                self._asked_for_bytes -= size
                self._pieces[id(owner)] = ref(owner), size

    def used(self, owner: ConvertedRecords) -> None:
        """Make the piece of ``owner`` the last to be dropped, since a part of it was sent."""
        with self._lock:
            if id(owner) in self._pieces:
                self._pieces.move_to_end(id(owner))

    def forget(self, owner: ConvertedRecords) -> None:
        """Stop counting the piece of ``owner``: it is sent, or not needed any more."""
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
        """``first`` is the piece that begins at ``begin``; it is not empty."""
        self.length = length
        self._converter = converter
        self._pool = pool
        self._budget = budget
        self._cursor: Cursor | None = begin
        """The cursor of the current piece; None once only filling is left."""
        self._size = len(first.data)
        """The size of the current piece, also while it is dropped."""
        self._piece: memoryview | None = first.data
        self._next = first.next
        self._at = 0
        self._closed = False
        self._fault = ""
        """The reason why nothing more can be sent. The connection must end: the response's length is sent."""
        self._untried = False
        """True if the current piece was requested and not offered to its connection yet."""
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
        """Drop the current piece; it is converted again when it is needed."""
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
        """Convert the current piece. With ``needed`` it is used at once and needs no room in the budget."""
        try:
            cursor = self._cursor
            if cursor is not None and not self._closed:
                piece = yield from self._made(cursor)
                self._take(piece, needed=needed)
        except Exception as error:  # noqa: BLE001 - without a fault it would be requested again for ever
            _log.debug("failed to convert records of %s", self._converter.path, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            self._fault = f"failed to convert records of {self._converter.path}: {reason}"
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
            # A fetch from this offset gets the error. This response's length is sent: filling must follow.
            _log.info(
                "failed to convert records of %s, the response ends before them: %s",
                self._converter.path,
                error,
            )
            return Piece(memoryview(b""), None)

    def _take(self, piece: Piece, *, needed: bool) -> None:
        if self._size >= 0 and self._size != len(piece.data):
            self._fault = f"records of {self._converter.path} changed on disk while they were being sent"
        elif not piece.data:
            self._cursor, self._at = None, 0
        elif not self._closed:
            self._size, self._next = len(piece.data), piece.next
            if self._budget.keep(self, self._size, asked_for=True) or needed:
                self._piece, self._untried = piece.data, True


def converted(
    source: FileSlice, magic: int, first_offset: int, plain_bytes: int, pool: WorkPool, budget: PieceBudget
) -> Generator[int, None, Part]:
    """Convert the first piece of a partition's records, in steps, and return the part of the response.

    Records of at most ``plain_bytes`` in all are returned as bytes and do not count for the budget. Raises
    CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE and StorageError if the first records cannot be converted.
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
    # At least one message has to fit: otherwise a consumer would fetch the same offset for ever.
    first = entry_size(piece.data)
    return ConvertedRecords(converter, max(source.length, first), piece, cursor, pool, budget)
