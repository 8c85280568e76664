"""Streams of messages that last: searches, exports and live tails, a few at a time; and exports themselves.

Each is a generator that the server asks for the next part when the browser has taken the last one, and closes
when the browser leaves. So a slow reader slows the stream, and nothing is read for nobody. Each part costs a
change of threads, so an export joins its lines to parts.

An export is CSV or lines of JSON (``base.row_formats``).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from minikafka.base.errors import MinikafkaError, OffsetOutOfRange
from minikafka.base.row_formats import CSV_COLUMNS, csv_line, json_line, message_cells, message_row
from minikafka.base.secrets import redact_text
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.messages import SEARCH_FETCH_BYTES, Ranges, batches_of, deleted_text, fetch_sets
from minikafka.console.settings import STREAMS_MAX, STREAMS_OF_A_SESSION_MAX

_ROWS_A_BATCH = 100
_PART_CHARACTERS = 64 * 1024
T = TypeVar("T")


class TooManyStreams(MinikafkaError):
    """All streams of this console are in use."""


class GaveWay(MinikafkaError):
    """A stream that was ended for a newer one."""


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one stream. Its parts must end soon after ``ended`` gives a reason."""

    session_id: str
    address: str
    closing: threading.Event
    """Set when the console ends."""
    drop: Callable[[], object] = lambda: None
    """Frees what the stream holds, in any thread."""
    _reason: str = ""

    def ended(self) -> str:
        """Return the reason for which the stream must end; an empty text while it may go on."""
        return self._reason or ("the console was stopped" if self.closing.is_set() else "")

    def until_ended(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items. Raises GaveWay, or MinikafkaError if the console ends."""
        for item in items:
            yield item
            if reason := self.ended():
                raise (GaveWay if self._reason else MinikafkaError)(reason)

    def give_way(self, most: int) -> None:
        """End the stream for a newer one."""
        self._reason = (
            f"ended for a newer search, export or live tail: {most} run at the same time, and this was the "
            f"oldest of a browser at {self.address or 'its address'}"
        )


class StreamSlots:
    """The slots of streams, and the bounds of their numbers. Thread-safe.

    A session has a part of them, so that the tabs of one browser do not keep others out. A program without
    cookies has a new session with each request. So, if all slots are taken, a stream of the address that has
    the most of them gives way; among equals that of the newcomer. There it is the oldest of the session with
    the most. As many again may be ending: one that nobody reads is dropped then.
    """

    def __init__(self, most: int = STREAMS_MAX, most_of_a_session: int = STREAMS_OF_A_SESSION_MAX) -> None:
        self._most = most
        self._most_of_a_session = most_of_a_session
        self._lock = threading.Lock()
        self._open: list[Slot] = []
        """The oldest first."""
        self._ending: list[Slot] = []
        """Those that gave way, the oldest first."""
        self.closing = threading.Event()

    def take(self, session_id: str, address: str = "") -> Slot:
        """Return a slot for a stream of a session, at an address. Raises TooManyStreams."""
        slot = Slot(session_id, address, self.closing)
        with self._lock:
            if sum(other.session_id == session_id for other in self._open) >= self._most_of_a_session:
                raise self._too_many(self._most_of_a_session, "of this browser")
            if len(self._open) >= self._most:
                oldest = self._replaceable(address)
                self._open.remove(oldest)
                self._ending.append(oldest)
                oldest.give_way(self._most)
            self._open.append(slot)
            dropped = [self._ending.pop(0) for _ in range(len(self._ending) - self._most)]
        for stream in dropped:
            stream.drop()
        return slot

    def _replaceable(self, newcomer: str) -> Slot:
        taken = Counter(slot.address for slot in self._open)
        most = max(taken, key=lambda address: (taken[address], address == newcomer))
        if taken[most] <= 1 and most != newcomer:
            raise self._too_many(self._most, "of all browsers")
        there = [slot for slot in self._open if slot.address == most]
        of_session = Counter(slot.session_id for slot in there)
        return max(there, key=lambda slot: of_session[slot.session_id])

    def _too_many(self, count: int, whose: str) -> TooManyStreams:
        return TooManyStreams(
            f"{count} searches, exports and live tails {whose} are under way; end one of them first"
        )

    def release(self, slot: Slot) -> None:
        """Give a slot back, also one that was taken away."""
        with self._lock:
            for slots in (self._open, self._ending):
                if slot in slots:
                    slots.remove(slot)


class Stream(StreamingResponse):
    """A response in parts. It holds a slot until the last part is sent, or the browser has left.

    make_parts: returns the parts, which end when the slot says so.
    """

    def __init__(
        self,
        slots: StreamSlots,
        visitor: tuple[str, str],
        make_parts: Callable[[Slot], Iterator[str]],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._slots = slots
        self._slot = slots.take(*visitor)
        self._parts = self._made(make_parts)
        self._slot.drop = self._drop
        super().__init__(self._parts, media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts. A browser may leave before the first one: the generator is not begun then."""
        try:
            if scope["method"] == "HEAD":
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                await send({"type": "http.response.body", "body": b""})
            else:
                await super().__call__(scope, receive, send)
        finally:
            self._slots.release(self._slot)
            self._parts.close()

    def _made(self, make_parts: Callable[[Slot], Iterator[str]]) -> Generator[str, None, None]:
        yield from make_parts(self._slot)

    def _drop(self) -> None:
        with suppress(ValueError):  # a part is being made: it is the last one
            self._parts.close()


def export_batches(
    cluster: ClusterClient, ranges: Ranges, *, most: int, isolation: IsolationLevel, timeout_ms: int
) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of the ranges, a partition after the other, at most ``most``.

    A batch is empty where a fetch had no record, so that a browser can leave in between. Where the log was
    deleted meanwhile, it goes on at the new start, with a note in ``ranges``.
    """
    left = most
    for tp, part in ranges.by_partition.items():
        at = part.start
        while at < part.end:
            try:
                for fetched in fetch_sets(
                    cluster, tp, at, part.end, isolation, timeout_ms, SEARCH_FETCH_BYTES
                ):
                    yield []
                    for batch in batches_of(fetched, _ROWS_A_BATCH):
                        yield batch[:left]
                        left -= len(batch)
                        if left <= 0:
                            return
                    at = fetched.next_offset
                break
            except OffsetOutOfRange as error:
                if error.start_offset <= at:
                    raise
                begin = min(error.start_offset, part.end)
                ranges.notes.append(deleted_text(tp, at, begin, "export"))
                at = begin


def csv_parts(batches: Iterable[list[ConsumerRecord]], notes: Iterable[str] = ()) -> Iterator[str]:
    """Yield a header, and a line for each record, as ``minikafka consume --format csv`` prints them.

    notes: about data that is missing, complete after the last batch; they are lines at the end, as the error
    is that ends an export.
    """
    yield csv_line(CSV_COLUMNS)
    yield from _parts(batches, _csv_record, lambda note: csv_line([f"# incomplete: {note}"]), notes)


def json_parts(batches: Iterable[list[ConsumerRecord]], notes: Iterable[str] = ()) -> Iterator[str]:
    """Yield a line of JSON for each record, as ``minikafka consume --format json`` prints it.

    notes: as for ``csv_parts``; lines with an ``error`` only.
    """
    yield from _parts(
        batches, _json_record, lambda note: json_line({"error": f"incomplete: {note}"}) + "\n", notes
    )


def _parts(
    batches: Iterable[list[ConsumerRecord]],
    line_of: Callable[[ConsumerRecord], str],
    line_of_note: Callable[[str], str],
    notes: Iterable[str],
) -> Iterator[str]:
    """Yield the lines of each batch as one part, or as several large ones."""
    problems: list[str] = []
    try:
        for batch in batches:
            lines, size = [], 0
            for record in batch:
                lines.append(line_of(record))
                size += len(lines[-1])
                if size >= _PART_CHARACTERS:
                    yield "".join(lines)
                    lines, size = [], 0
            yield "".join(lines)
    except MinikafkaError as error:
        problems.append(redact_text(" ".join(str(error).split())))
    yield "".join(map(line_of_note, [*notes, *problems]))


def _csv_record(record: ConsumerRecord) -> str:
    return csv_line(message_cells(*record))


def _json_record(record: ConsumerRecord) -> str:
    return json_line(message_row(*record)) + "\n"
