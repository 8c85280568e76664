"""Streams of messages that last: searches, exports and live tails, a few at a time; and exports themselves.

Each is a generator that the server asks for the next part when the browser has taken the last one, and closes
when the browser leaves. So a slow reader slows the stream, and nothing is read for nobody. Each part costs a
change of threads, so an export joins its lines to parts.

An export is CSV or lines of JSON. A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` as
a formula, so such text gets an apostrophe before it.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from minikafka.base.errors import MinikafkaError
from minikafka.base.times import utc_text
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.messages import SEARCH_FETCH_BYTES, Ranges, fetch_sets, records_of
from minikafka.console.settings import STREAMS_MAX, STREAMS_OF_A_SESSION_MAX

CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The first characters of a formula; the last four are the wide forms of the first."""
_ROWS_A_PART = 100


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


def export_records(
    cluster: ClusterClient, ranges: Ranges, *, most: int, isolation: IsolationLevel, timeout_ms: int
) -> Iterator[ConsumerRecord]:
    """Yield the records of the ranges, a partition after the other, at most ``most``."""
    left = most
    for tp, part in ranges.by_partition.items():
        for fetched in fetch_sets(
            cluster, tp, part.start, part.end, isolation, timeout_ms, SEARCH_FETCH_BYTES
        ):
            for record in records_of(fetched, 100):
                yield record
                left -= 1
                if not left:
                    return


def csv_lines(records: Iterator[ConsumerRecord]) -> Iterator[str]:
    """Yield a header, and a line for each record. Bytes that are not UTF-8 are base64 after ``base64:``."""
    yield _csv_line(CSV_COLUMNS)
    for record in records:
        when = utc_text(record.timestamp) or ""
        headers = json.dumps([[name, _text(value)] for name, value in record.headers], ensure_ascii=False)
        texts = [_text(record.key) or "", _text(record.value) or "", headers if record.headers else ""]
        yield _csv_line([record.topic, record.partition, record.offset, when, *map(without_formula, texts)])


def without_formula(text: str) -> str:
    """Return a cell that no spreadsheet takes as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _csv_line(cells: object) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)  # type: ignore[arg-type]
    return out.getvalue()


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode("ascii")


def json_lines(records: Iterator[ConsumerRecord]) -> Iterator[str]:
    """Yield a line of JSON for each record, as ``minikafka consume --format json`` prints it."""
    for record in records:
        row: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
        }
        row |= _json_bytes("key", record.key) | _json_bytes("value", record.value)
        if record.headers:
            row["headers"] = [{"key": name} | _json_bytes("value", value) for name, value in record.headers]
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
