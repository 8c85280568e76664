"""The search for messages: a text or a regular expression, over the partitions of a topic in turn.

The pattern is matched on whole columns, by RE2: it takes linear time, so nobody can block the console with an
expensive expression. Objects are made of matching messages only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from minikafka.base.errors import ConfigError, MinikafkaError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.base.times import utc_text
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import Anchor, ReadRange
from minikafka.clients.fetch.shared_fetch import FirstFetch
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched
from minikafka.clients.group.rows import Rows
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.messages import (
    SEARCH_FETCH_BYTES,
    Message,
    Ranges,
    deleted_text,
    fetch_sets,
    first_fetches,
)
from minikafka.console.schemas import Schemas

OPEN_PARTITIONS_MAX = 8
"""Partitions that are searched in turn; each has one fetch under way."""
FIRST_BYTES_MAX = 16 << 20
"""The most bytes of the first fetches of all partitions, unless they are many."""
FIRST_TIMEOUT_MS = 1_000
"""The longest wait for the first fetches at one leader; its partitions are fetched by themselves then."""
PROGRESS_S = 0.5
PATTERN_MAX = 1_000
FIELDS = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The text or regular expression (RE2, which takes linear time) that is looked for."""

    text: str
    is_regex: bool = False
    ignore_case: bool = False
    fields: tuple[str, ...] = FIELDS

    def check(self) -> None:
        """Raise ConfigError for a pattern that cannot be used."""
        if not self.text:
            raise ConfigError("text", None, "required: the text or regular expression to look for")
        if len(self.text) > PATTERN_MAX:
            raise ConfigError("text", self.text[:20] + "…", f"must have at most {PATTERN_MAX} characters")
        try:
            self._matches(pa.array(["a"]))
        except pa.ArrowInvalid as error:
            raise ConfigError("text", self.text, f"is not a regular expression: {error}") from None

    def rows(self, batch: pa.RecordBatch) -> list[int]:
        """Return the numbers of the rows that match in one of the fields."""
        found: set[int] = set()
        for name in self.fields:
            column = batch.column(name)
            if name == "headers":
                found.update(self._header_rows(column))
            else:
                found.update(_true_rows(self._matches(_as_text(column))))
        return sorted(found)

    def _header_rows(self, column: pa.ListArray) -> list[int]:
        entries = column.flatten()
        if not len(entries):
            return []
        rows = pc.list_parent_indices(column)
        hits = set(_true_rows(self._matches(entries.field(0).cast(pa.string()))))
        hits.update(_true_rows(self._matches(_as_text(entries.field(1)))))
        return [rows[entry].as_py() for entry in hits]

    def _matches(self, column: pa.Array) -> pa.Array:
        match = pc.match_substring_regex if self.is_regex else pc.match_substring
        return match(column, self.text, ignore_case=self.ignore_case)


def _as_text(column: pa.Array) -> pa.Array:
    """Return binary values as text, without a copy or a check: the matcher passes over other bytes."""
    return column.view(pa.string())


def _true_rows(mask: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a search. ``note``: what it could not read, or why it ended."""

    searched: int
    """Offsets that were read."""
    total: int
    found: int
    elapsed_s: float
    note: str = ""
    is_end: bool = False


def empty_reason(ranges: Ranges, wanted: ReadRange) -> str:
    """Return the reason for which a range has no offsets; an empty text if it has some, or if a partition is
    missing in it.
    """
    parts = ranges.by_partition
    if ranges.offsets or ranges.notes:
        return ""
    if all(part.log_start == part.log_end for part in parts.values()):
        return "there are no messages"
    if all(part.start == part.log_end for part in parts.values()):
        if wanted.start.anchor is Anchor.OFFSET:
            tp, longest = max(parts.items(), key=lambda item: item[1].log_end)
            last = longest.log_end - 1
            return f"offset {wanted.start.value} is after the last message ({tp} ends with offset {last})"
        if wanted.start.anchor is Anchor.TIME:
            return f"no message is of {utc_text(wanted.start.value)} or later"
    if wanted.end is not None and wanted.end.anchor is Anchor.TIME:
        return f"no message from there on is before {utc_text(wanted.end.value)}"
    return "no message is in it"


def search(
    cluster: ClusterClient,
    ranges: Ranges,
    pattern: Pattern,
    *,
    most: int,
    seconds: float,
    isolation: IsolationLevel,
    ended: Callable[[], str] = str,
    schemas: Schemas | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Message | Progress]:
    """Yield messages that match, of all partitions in turn, and the progress in between.

    It ends with the ranges, after ``most`` messages, after ``seconds``, or once ``ended`` returns a reason.
    Where the log was deleted meanwhile, it goes on at the new start.
    """
    started = reported = monotonic()
    searched = found = 0

    def progress(note: str = "", *, is_end: bool = False) -> Progress:
        return Progress(searched, ranges.offsets, found, monotonic() - started, note, is_end)

    for note in ranges.notes:
        yield progress(note)

    def timeout_ms() -> int:
        return max(1_000, int((seconds - (monotonic() - started)) * 1000))

    def reason() -> str:
        if found >= most:
            return f"the limit of {most} messages is reached"
        return f"the limit of {seconds:g} s is reached" if monotonic() - started >= seconds else ended()

    for fetched in _sets_in_turn(cluster, ranges, isolation, timeout_ms):
        if isinstance(fetched, str):
            yield progress(fetched)
        else:
            try:
                for record in matching(fetched, pattern):
                    found += 1
                    yield Message.of(record, schemas)
                    if reason():  # values by their schemas take time
                        break
            except MinikafkaError as error:
                yield progress(f"{fetched.topic_partition}: {error}")
            searched += fetched.next_offset - fetched.start_offset
        if why := reason():
            yield progress(why, is_end=True)
            return
        if monotonic() - reported >= PROGRESS_S:
            reported = monotonic()
            yield progress()
    yield progress("", is_end=True)


def _sets_in_turn(
    cluster: ClusterClient, ranges: Ranges, isolation: IsolationLevel, timeout_ms: Callable[[], int]
) -> Iterator[Fetched | str]:
    """Yield the sets of a few partitions in turn, until all are read, and notes about what could not be."""
    starts = {tp: part.start for tp, part in ranges.by_partition.items() if part.start < part.end}
    firsts = first_fetches(cluster, starts, isolation, FIRST_TIMEOUT_MS, FIRST_BYTES_MAX)
    opened: deque[tuple[TopicPartition, Iterator[Fetched]]] = deque()

    def open_at(tp: TopicPartition, start: int, first: FirstFetch | None = None) -> None:
        end = ranges.by_partition[tp].end
        sets = fetch_sets(cluster, tp, start, end, isolation, timeout_ms(), SEARCH_FETCH_BYTES, first)
        opened.append((tp, sets))

    while True:
        for tp, first in islice(firsts, OPEN_PARTITIONS_MAX - len(opened)):
            open_at(tp, starts[tp], first)
        if not opened:
            return
        tp, sets = opened.popleft()
        try:
            fetched = next(sets, None)
        except OffsetOutOfRange as error:
            if error.start_offset <= error.offset:
                yield f"{tp}: {error}"
            else:
                begin = min(error.start_offset, ranges.by_partition[tp].end)
                yield deleted_text(tp, error.offset, begin, "search")
                open_at(tp, begin)
        except MinikafkaError as error:
            yield f"{tp}: {error}"
        else:
            if fetched is not None:
                opened.append((tp, sets))
                yield fetched


def matching(fetched: Fetched, pattern: Pattern) -> Iterator[ConsumerRecord]:
    rows = Rows(fetched, headers=True)
    while count := rows.available():
        # Looks at the columns, and makes objects only of rows that match.
        before = rows.position
        batch = rows.batch(count, headers=True)
        for row in pattern.rows(batch):
            yield _record(batch, row)
        if rows.position == before:
            return


def _record(batch: pa.RecordBatch, row: int) -> ConsumerRecord:
    taken = batch.slice(row, 1).to_pydict()
    headers = tuple((header["key"], header["value"]) for header in taken["headers"][0] or ())
    time_of = batch.column("timestamp").cast(pa.int64())[row].as_py()
    return ConsumerRecord(
        taken["topic"][0],
        taken["partition"][0],
        taken["offset"][0],
        -1 if time_of is None else time_of,
        taken["key"][0],
        taken["value"][0],
        headers,
    )
