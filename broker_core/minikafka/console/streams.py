"""Streams of messages that last: searches, exports and live tails, a few at a time; and exports themselves.

Each is a generator that the server asks for the next part when the browser has taken the last one, and closes
when the browser leaves. So a slow reader slows the stream, and nothing is read for nobody. Each part costs a
change of threads, so an export joins its lines to parts.

An export is CSV or lines of JSON (``base.row_formats``).
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from minikafka.base.errors import MinikafkaError, OffsetOutOfRange
from minikafka.base.row_formats import csv_line, json_line, message_row
from minikafka.base.secrets import redact_text
from minikafka.base.times import utc_text
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.messages import SEARCH_FETCH_BYTES, Ranges, batches_of, fetch_sets
from minikafka.console.settings import STREAMS_MAX, STREAMS_OF_A_SESSION_MAX

CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ROWS_A_BATCH = 100
_PART_CHARACTERS = 64 * 1024


class TooManyStreams(MinikafkaError):
    """All streams of this console are in use."""


class StreamSlots:
    """Counts the streams, of all sessions and of each, and ends them with the console. Thread-safe."""

    def __init__(self, most: int = STREAMS_MAX, most_of_a_session: int = STREAMS_OF_A_SESSION_MAX) -> None:
        self._most = most
        self._most_of_a_session = most_of_a_session
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self.closing = threading.Event()

    def take(self, session_id: str) -> None:
        """Take a slot for a session. Raises TooManyStreams."""
        with self._lock:
            if self._taken[session_id] >= self._most_of_a_session:
                whose, count = "of this browser", self._most_of_a_session
            elif self._taken.total() >= self._most:
                whose, count = "of all browsers", self._most
            else:
                self._taken[session_id] += 1
                return
        raise TooManyStreams(
            f"{count} searches, exports and live tails {whose} are under way; end one of them first"
        )

    def release(self, session_id: str) -> None:
        """Give a slot back."""
        with self._lock:
            self._taken[session_id] -= 1
            self._taken += Counter()  # drops sessions without a slot


class Stream(StreamingResponse):
    """A response in parts. It holds a slot until the last part is sent, or the browser has left."""

    def __init__(
        self,
        slots: StreamSlots,
        session_id: str,
        parts: Iterator[str],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._slots = slots
        self._session_id = session_id
        self._parts = self._until_closing(parts)
        super().__init__(self._parts, media_type=media_type, headers=headers)
        slots.take(session_id)

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
            self._slots.release(self._session_id)
            self._parts.close()

    def _until_closing(self, parts: Iterator[str]) -> Generator[str, None, None]:
        for part in parts:
            yield part
            if self._slots.closing.is_set():
                return


def export_batches(
    cluster: ClusterClient, ranges: Ranges, *, most: int, isolation: IsolationLevel, timeout_ms: int
) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of the ranges, a partition after the other, at most ``most``.

    A batch is empty where a fetch had no record, so that a browser can leave in between. Where the log was
    deleted meanwhile, it goes on at the new start.
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
                at = error.start_offset


def csv_parts(batches: Iterable[list[ConsumerRecord]], notes: Iterable[str] = ()) -> Iterator[str]:
    """Yield a header, and a line for each record. Bytes that are not UTF-8 are base64 after ``base64:``.

    notes: about data that is missing; they are lines at the end, as the error is that ends an export.
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
    problems = list(notes)
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
    yield "".join(map(line_of_note, problems))


def _csv_record(record: ConsumerRecord) -> str:
    headers = [[name, _text(value)] for name, value in record.headers]
    when, key, value = utc_text(record.timestamp), _text(record.key), _text(record.value)
    return csv_line([record.topic, record.partition, record.offset, when, key, value, headers])


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode("ascii")


def _json_record(record: ConsumerRecord) -> str:
    return json_line(message_row(*record)) + "\n"
