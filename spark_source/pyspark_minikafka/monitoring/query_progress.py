"""The progress of a query's minikafka sources, from the JSON that Spark reports of each batch. Pure.

    "sources": [{"description": D, "startOffset": S, "endOffset": E, "latestOffset": L, "numInputRows": N}, …]

D names the source only with the Scala shim (``minikafka[subscribe=orders]``); otherwise it is Spark's class
for Python sources, so that a source is recognised by its offsets too. S is null for the first batch of a new
query, whose end contains its start (``offsets``). L is where the logs ended when the batch was planned;
without ``maxOffsetsPerTrigger`` that is E. It is null for a batch that was planned before a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from pyspark_minikafka.offsets import BadStreamOffset, StreamOffset
from pyspark_minikafka.planning.transaction_waits import TransactionWait, Waits, parse_waits

_DESCRIPTIONS = ("minikafka[", "org.apache.spark.sql.execution.datasources.v2.python.")
_HEADINGS = ("TOPIC", "PARTITION", "START", "END", "LATEST", "LAG", "BEHIND")
_TOPICS_NAMED = 3
_UNKNOWN = "-"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds, the longest unit first. A duration of less than two of a unit is shown in a shorter one."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of a query in one partition.

    start, end   the offsets of the last batch: it read the records from start to before end; start is None
                 in the first batch after a partition was found
    latest       the end of the log; None for a partition that does not exist any more, and, as Spark reports
                 it, for a batch that was planned before a restart
    behind_ms    the age of the first record that was not read, by its timestamp, 0 without such a record;
                 None if it was not looked up
    waits        the open transaction up to which the query has read, if it waits for one (read_committed)
    """

    topic: str
    partition: int
    start: int | None
    end: int
    latest: int | None
    behind_ms: int | None = None
    waits: TransactionWait | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def lag(self) -> int | None:
        """The number of offsets between ``end`` and ``latest``, which is the number of records that were not
        read, unless the topic is compacted. None if that is unknown: without ``latest``, and if the log ends
        before ``end``, because the topic was created again or a new leader is behind.
        """
        if self.latest is None or self.latest < self.end:
            return None
        return self.latest - self.end


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The progress of one minikafka source of a query: rows of the last batch and Spark's rates."""

    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    partitions: tuple[PartitionProgress, ...]


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The progress of a streaming query. ``print`` shows it as a table.

    batch        the number of the last batch; None before the first one has ended
    timestamp    the start of that batch, in UTC
    sources      its minikafka sources; other sources are left out
    """

    query_id: str
    name: str | None
    batch: int | None = None
    timestamp: str | None = None
    sources: tuple[SourceProgress, ...] = ()

    @property
    def partitions(self) -> tuple[PartitionProgress, ...]:
        """The partitions of all sources."""
        return tuple(partition for source in self.sources for partition in source.partitions)

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known; None if there are none."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def worst(self) -> PartitionProgress | None:
        """The partition with the largest lag; None if no partition has one."""
        behind = [partition for partition in self.partitions if partition.lag]
        return max(behind, key=lambda partition: partition.lag or 0, default=None)

    @property
    def waiting(self) -> tuple[PartitionProgress, ...]:
        """The partitions in which the query waits for the end of a transaction."""
        return tuple(partition for partition in self.partitions if partition.waits is not None)

    @property
    def rows(self) -> int:
        """The rows that the last batch has read from all minikafka sources."""
        return sum(source.rows for source in self.sources)

    @property
    def title(self) -> str:
        """The query's name, or its id."""
        return f"query {self.name or self.query_id}"

    def __str__(self) -> str:
        if self.batch is None:
            return f"{self.title}: no batch yet"
        if not self.sources:
            return f"{self.title}: batch {self.batch}, no minikafka source"
        read = sum(source.input_rows_per_second for source in self.sources)
        processed = sum(source.processed_rows_per_second for source in self.sources)
        head = (
            f"{self.title}: batch {self.batch}, {_counted(self.rows, 'row')}, {read:,.1f} rows/s in, "
            f"{processed:,.1f} rows/s processed, lag {_lag_text(self.lag)}"
        )
        return "\n".join([head, *_table(self.partitions), *map(wait_text, self.waiting)])


def query_progress(query_id: str, name: str | None, document: Mapping[str, Any] | None) -> QueryProgress:
    """Return the progress that ``document``, Spark's JSON of a batch, tells. None: no batch has ended."""
    if document is None:
        return QueryProgress(query_id, name)
    sources = (_source(reported) for reported in document["sources"])
    return QueryProgress(
        query_id,
        name,
        document["batchId"],
        document["timestamp"],
        tuple(source for source in sources if source is not None),
    )


def summary(found: QueryProgress, rows_per_second: float) -> str:
    """Return the line of the log about ``found``."""
    text = (
        f"{found.title}: topics {_topics_text(found.partitions)}, {rows_per_second:,.0f} rows/s, "
        f"lag {_lag_text(found.lag)}"
    )
    worst = found.worst
    text = text if worst is None else f"{text}, most in {worst.topic_partition}: {worst.lag:,}"
    waiting = found.waiting
    if not waiting:
        return text
    longest = max(waiting, key=lambda partition: 0 if partition.waits is None else partition.waits.for_ms)
    more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
    return f"{text}; {wait_text(longest)}{more}"


def wait_text(partition: PartitionProgress) -> str:
    """Return the sentence about a partition that waits for a transaction."""
    waits = partition.waits
    assert waits is not None
    return (
        f"{partition.topic_partition} waits for the transaction of {waits.producer} at offset "
        f"{waits.offset}, for {duration_text(waits.for_ms)}"
    )


def _source(reported: Mapping[str, Any]) -> SourceProgress | None:
    """Return the progress of a source; None if it is none of ours."""
    if not reported["description"].startswith(_DESCRIPTIONS):
        return None
    start, end, latest = (_offset(reported.get(f"{name}Offset")) for name in ("start", "end", "latest"))
    if end is None:
        return None
    begins = (end.batch_start if start is None else start.positions) or {}
    ends = {} if latest is None else latest.positions
    waits = _waits(reported.get("latestOffset"))
    partitions = (
        PartitionProgress(tp.topic, tp.partition, begins.get(tp), offset, ends.get(tp), None, waits.get(tp))
        for tp, offset in sorted(end.positions.items())
    )
    return SourceProgress(
        reported["numInputRows"],
        reported.get("inputRowsPerSecond") or 0.0,
        reported.get("processedRowsPerSecond") or 0.0,
        tuple(partitions),
    )


def _waits(reported: object) -> Waits:
    try:
        document = json.loads(reported) if isinstance(reported, str) else reported
        return parse_waits(document) if isinstance(document, Mapping) else {}
    except ValueError:
        return {}


def _offset(reported: object) -> StreamOffset | None:
    try:
        # Spark Connect reports the JSON of an offset as text.
        document = json.loads(reported) if isinstance(reported, str) else reported
        return StreamOffset.from_json(document) if isinstance(document, Mapping) else None
    except (ValueError, BadStreamOffset):
        return None  # of another Python source


def _lag_text(lag: int | None) -> str:
    """Return ``1 record``, ``2,000 records`` or ``unknown``."""
    return "unknown" if lag is None else _counted(lag, "record")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration_text(milliseconds: int) -> str:
    """Return a duration in a unit that keeps the number short: ``4.2 s``, ``3 min``, ``12 h``, ``5 d``."""
    seconds = milliseconds / 1_000
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _topics_text(partitions: Iterable[PartitionProgress]) -> str:
    """Return the names of the topics, or of the first ones and how many more there are."""
    return first_of(sorted({partition.topic for partition in partitions}), _TOPICS_NAMED)


def _table(partitions: Sequence[PartitionProgress]) -> list[str]:
    rows = [_HEADINGS, *map(_cells, partitions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]

    def line(row: Sequence[str]) -> str:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *cells])

    return [line(row) for row in rows]


def _cells(partition: PartitionProgress) -> tuple[str, ...]:
    numbers = (partition.partition, partition.start, partition.end, partition.latest, partition.lag)
    behind = _UNKNOWN if partition.behind_ms is None else duration_text(partition.behind_ms)
    return (partition.topic, *(_UNKNOWN if n is None else str(n) for n in numbers), behind)
