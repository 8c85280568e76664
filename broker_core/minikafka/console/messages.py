"""Reads a few messages of a topic: the newest or the oldest, or from an offset or a time on.

A topic is never read whole: each partition gives at most as many messages as the page shows, in small
fetches, until the page is full, its time is up, or it has read ``PAGE_BYTES_MAX``. The first fetches of
partitions with one leader share requests. Only the messages that a page shows are kept and rendered, not
those that were compared.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import FetchSettings
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.fetch.read_ranges import ReadRange, find_ranges
from minikafka.clients.fetch.shared_fetch import Beginning, FirstFetch, SharedFetch
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched
from minikafka.clients.group.rows import Rows
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.console.payloads import Payload, payload, visible
from minikafka.console.schemas import Schemas

PAGE_BYTES_MAX = 32 << 20
"""The most bytes that one page fetches."""
FETCH_BYTES = 256 * 1024
FIRST_FETCH_BYTES_MIN = 4 * 1024
"""The least that the first fetch of each of many partitions gets."""
RESPONSE_BYTES = 2 << 20
"""The most of a response to a request for many partitions."""
SEARCH_FETCH_BYTES = 1 << 20
WINDOWS_MAX = 4
"""Looks back for the newest messages, each ten times as long: offsets may be without a message."""
HEADERS_SHOWN = 20
"""Headers of a message in a list."""
HEADER_NAME_SHOWN = 200
_BATCH_ROWS = 100
Span = tuple[int, int]
"""The first offset to read, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a page shows it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Payload
    value: Payload
    headers: tuple[tuple[str, Payload], ...]
    more_headers: int = 0
    """Headers that are not in ``headers``."""

    @classmethod
    def of(cls, record: ConsumerRecord, schemas: Schemas | None = None, *, whole: bool = False) -> Message:
        """Return a record as it is shown: in a list, or as a whole. schemas: those of keys and values."""
        most = None if whole else HEADERS_SHOWN
        headers = tuple(
            (visible(name if whole else name[:HEADER_NAME_SHOWN]), payload(value, whole=whole))
            for name, value in record.headers[:most]
        )
        return cls(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            payload(record.key, schemas, whole=whole),
            payload(record.value, schemas, whole=whole),
            headers,
            len(record.headers) - len(headers),
        )


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of a partition to read, and the first and last that there are."""

    start: int
    end: int
    log_start: int
    log_end: int


@dataclass(slots=True)
class Ranges:
    """The ranges of partitions, and notes about what is not known."""

    by_partition: dict[TopicPartition, LogRange] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return sum(part.end - part.start for part in self.by_partition.values())

    def last(self, count: int) -> Ranges:
        """Return the last ``count`` offsets of each partition."""
        newest_of = {
            tp: replace(part, start=max(part.start, part.end - count))
            for tp, part in self.by_partition.items()
        }
        return Ranges(newest_of, list(self.notes))


def log_ranges(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    wanted: ReadRange,
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Ranges:
    """Return a range in each partition whose leader answers; it ends at the end of the log at the latest."""
    failed: list[MinikafkaError] = []
    found = find_ranges(cluster, partitions, wanted, deadline, isolation, failed=failed)
    return Ranges(
        {
            tp: LogRange(
                part.start, part.log_end if part.end is None else part.end, part.log_start, part.log_end
            )
            for tp, part in found.items()
        },
        list(dict.fromkeys(f"some partitions are missing: {error}" for error in failed)),
    )


class Reader:
    """Reads ranges within one deadline and one budget of bytes, and notes what stopped it."""

    def __init__(
        self,
        cluster: ClusterClient,
        deadline: Deadline,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        schemas: Schemas | None = None,
    ) -> None:
        self._schemas = schemas
        self._cluster = cluster
        self._deadline = deadline
        self._isolation = isolation
        self._left_bytes = PAGE_BYTES_MAX
        self.notes: list[str] = []
        self._failed: set[TopicPartition] = set()
        """Partitions that were not read to the end, for a reason in ``notes``."""
        self.is_cut = False
        """True if the time or the bytes were used up."""

    def message(self, record: ConsumerRecord) -> Message:
        """Return a record as the page shows it: without its schemas once the time is up, with one note."""
        note = "the time for a page is up, so that schemas were not used for all messages; show fewer"
        schemas = self._schemas
        if schemas is not None and self._deadline.expired:
            schemas = None
            if note not in self.notes:
                self.notes.append(note)
        return Message.of(record, schemas)

    def forward(
        self, spans: Mapping[TopicPartition, Span], most: int
    ) -> Iterator[tuple[TopicPartition, list[ConsumerRecord], int]]:
        """Yield of each partition the first records of a span, and the offset after what was read."""
        for tp, first in self._firsts(spans):
            start, end = spans[tp]
            found = list(islice(self._records(tp, start, end, most, first), most))
            at = found[-1].offset + 1 if found else start
            yield tp, found, at if len(found) == most or self.is_cut or tp in self._failed else end

    def backward(
        self, spans: Mapping[TopicPartition, Span], most: int
    ) -> Iterator[tuple[TopicPartition, list[ConsumerRecord]]]:
        """Yield the last records of spans, the newest first; the older ones of a partition may follow.

        The range grows for those with too few, as offsets of compacted records and of markers have no
        message.
        """
        missing = dict.fromkeys(spans, most)
        stops = {tp: end for tp, (_, end) in spans.items()}
        window = most
        for _ in range(WINDOWS_MAX):
            looks = {tp: (max(spans[tp][0], stop - window), stop) for tp, stop in stops.items()}
            for tp, first in self._firsts(looks):
                start, stop = looks[tp]
                found = self._last_records(tp, start, stop, missing[tp], first)
                yield tp, found
                missing[tp] -= len(found)
                stops[tp] = start
                if not missing[tp] or start == spans[tp][0] or tp in self._failed:
                    del stops[tp]
            if not stops or self.is_cut:
                return
            window *= 10

    def _last_records(
        self, tp: TopicPartition, start: int, end: int, most: int, first: FirstFetch | None
    ) -> list[ConsumerRecord]:
        kept = deque(self._records(tp, start, end, _BATCH_ROWS, first), maxlen=most)
        return list(reversed(kept))

    def _firsts(
        self, spans: Mapping[TopicPartition, Span]
    ) -> Iterator[tuple[TopicPartition, FirstFetch | None]]:
        """Yield partitions with the first fetch of their spans where it was shared, until the time or the
        bytes are used up.
        """
        starts = {tp: start for tp, (start, end) in spans.items() if start < end}
        yield from ((tp, None) for tp in spans if tp not in starts)
        # Half of the time and the bytes for a page at most, so that partitions may be read on.
        timeout_ms = self._deadline.remaining_ms() // 2
        firsts = first_fetches(self._cluster, starts, self._isolation, timeout_ms, PAGE_BYTES_MAX // 2)
        for found in firsts:
            self.is_cut = self.is_cut or self._deadline.expired or self._left_bytes <= 0
            if self.is_cut:
                return
            yield found

    def _records(
        self, tp: TopicPartition, start: int, end: int, rows: int, first: FirstFetch | None
    ) -> Iterator[ConsumerRecord]:
        if start >= end or self.is_cut:
            return
        timeout_ms = self._deadline.remaining_ms()
        try:
            for fetched in fetch_sets(
                self._cluster, tp, start, end, self._isolation, timeout_ms, FETCH_BYTES, first
            ):
                self._left_bytes -= len(fetched.data)
                yield from records_of(fetched, rows)
                if self._deadline.expired or self._left_bytes <= 0:
                    self.is_cut = True
                    return
        except OffsetOutOfRange as error:
            self._note_failure(tp, f"offset {error.offset} was deleted meanwhile; load the page again")
        except MinikafkaError as error:
            self._note_failure(tp, str(error))

    def _note_failure(self, tp: TopicPartition, why: str) -> None:
        self._failed.add(tp)
        self.notes.append(f"{tp}: {why}")


def first_fetches(
    cluster: ClusterClient,
    starts: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    timeout_ms: int,
    most_bytes: int,
) -> Iterator[tuple[TopicPartition, FirstFetch | None]]:
    """Yield each partition once, with what was fetched from its start on: by one request to each leader for
    all of them, with a part of ``most_bytes`` each. None where nothing was, which comes last: a leader that
    does not answer takes the time of nobody else.
    """
    if len(starts) < 2:
        yield from ((tp, None) for tp in starts)
        return
    size = min(FETCH_BYTES, max(FIRST_FETCH_BYTES_MIN, most_bytes // len(starts)))
    settings = FetchSettings(
        partition_max_bytes=size,
        max_bytes=RESPONSE_BYTES,
        message_max_bytes=RESPONSE_BYTES,
        max_wait_ms=0,
        isolation=isolation,
        retry_backoff=cluster.backoff,
    )
    beginnings = {tp: Beginning(start, size) for tp, start in starts.items()}
    unread: list[TopicPartition] = []
    for tp, first in SharedFetch(cluster, beginnings, settings, timeout_ms=max(1, timeout_ms)):
        if first is None:
            unread.append(tp)
        else:
            yield tp, first
    yield from ((tp, None) for tp in unread)


def fetch_sets(
    cluster: ClusterClient,
    tp: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel,
    timeout_ms: int,
    max_bytes: int,
    first: FirstFetch | None = None,
) -> Iterator[Fetched]:
    """Yield the message sets of a range as they are fetched. first: the first one, if it was fetched."""
    fetcher = RangeFetcher(
        cluster,
        tp,
        start,
        end,
        max_bytes=max_bytes,
        timeout_ms=max(1, timeout_ms),
        isolation=isolation,
        first=first,
    )
    at = start
    for data in fetcher:
        after = min(fetcher.next_offset, end)
        yield Fetched(tp, data, at, after, end)
        at = after


def deleted_text(tp: TopicPartition, start: int, end: int, what: str) -> str:
    """Return the note that offsets from ``start`` to before ``end`` were deleted while ``what`` ran."""
    span = f"message {start} was" if end - start == 1 else f"messages {start} to {end - 1} were"
    return f"{tp}: {span} deleted, by retention or a trim, while the {what} ran"


def records_of(fetched: Fetched, rows: int) -> Iterator[ConsumerRecord]:
    """Yield the records of a set, made a few at a time."""
    for batch in batches_of(fetched, rows):
        yield from batch


def batches_of(fetched: Fetched, rows: int) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of a set, a few at a time, so that a large set is not copied whole."""
    decoder = Rows(fetched, headers=True)
    while decoder.available():
        batch = decoder.records(max(1, rows))
        yield batch
        decoder.skip(len(batch))


@dataclass(slots=True)
class MessagePage:
    """Messages in the order shown, and the positions from which the pages beside this one read."""

    messages: list[Message] = field(default_factory=list)
    older: dict[TopicPartition, int] = field(default_factory=dict)
    """The ends of what is older; empty if there is nothing."""
    newer: dict[TopicPartition, int] = field(default_factory=dict)
    """The starts of what is newer; empty if there is nothing."""
    notes: list[str] = field(default_factory=list)


def newest(
    reader: Reader, ranges: Ranges, limit: int, ends: Mapping[TopicPartition, int] | None = None
) -> MessagePage:
    """Return the newest messages, or those before ``ends``, the newest first."""
    page = MessagePage(notes=list(ranges.notes))
    stops = {
        tp: min((ends or {}).get(tp, part.log_end), part.end) for tp, part in ranges.by_partition.items()
    }
    share = _share(limit, len(stops), page)
    shown: list[ConsumerRecord] = []
    spans = {tp: (ranges.by_partition[tp].log_start, stop) for tp, stop in stops.items()}
    for _, found in reader.backward(spans, share):
        shown = list(heapq.merge(shown, found, key=lambda record: (-record.timestamp, record.partition)))[
            :limit
        ]
    oldest = dict(stops)
    for record in shown:
        oldest[record.topic_partition] = min(oldest[record.topic_partition], record.offset)
    if any(stop > ranges.by_partition[tp].log_start for tp, stop in oldest.items()):
        page.older = oldest
    if ends is not None and any(stops[tp] < part.log_end for tp, part in ranges.by_partition.items()):
        page.newer = stops
    _finish(page, reader, shown)
    return page


def onward(
    reader: Reader, ranges: Ranges, limit: int, starts: Mapping[TopicPartition, int] | None = None
) -> MessagePage:
    """Return the first messages of the ranges, or from ``starts`` on, the oldest first."""
    page = MessagePage(notes=list(ranges.notes))
    begins = {
        tp: max((starts or {}).get(tp, part.start), part.log_start)
        for tp, part in ranges.by_partition.items()
    }
    share = _share(limit, len(begins), page)
    shown: list[ConsumerRecord] = []
    after = dict(begins)
    spans = {tp: (begin, ranges.by_partition[tp].end) for tp, begin in begins.items()}
    for tp, found, read_to in reader.forward(spans, share):
        after[tp] = read_to
        merged = list(heapq.merge(shown, found, key=lambda record: (record.timestamp, record.partition)))
        shown = merged[:limit]
        for record in reversed(merged[limit:]):  # these are on the next page
            after[record.topic_partition] = record.offset
    if any(at < ranges.by_partition[tp].end for tp, at in after.items()):
        page.newer = after
    if any(begin > ranges.by_partition[tp].log_start for tp, begin in begins.items()):
        page.older = begins
    _finish(page, reader, shown)
    return page


def _share(limit: int, partitions: int, page: MessagePage) -> int:
    """Return the messages to read of each partition: all of them could be the newest, within reason."""
    most = 10_000
    if partitions * limit <= most:
        return limit
    share = max(1, most // partitions)
    page.notes.append(
        f"{share} messages of each of the {partitions} partitions were compared; choose a partition for more"
    )
    return share


def _finish(page: MessagePage, reader: Reader, shown: list[ConsumerRecord]) -> None:
    page.messages = [reader.message(record) for record in shown]
    page.notes += reader.notes
    if reader.is_cut:
        page.notes.append("the time for a page is up, so that messages are missing here; choose a partition")


def one_message(
    cluster: ClusterClient, tp: TopicPartition, offset: int, deadline: Deadline
) -> ConsumerRecord:
    """Return one record. Raises BrokerError if there is none at this offset."""
    for fetched in fetch_sets(
        cluster, tp, offset, offset + 1, IsolationLevel.READ_UNCOMMITTED, deadline.remaining_ms(), FETCH_BYTES
    ):
        for record in records_of(fetched, 1):
            if record.offset == offset:
                return record
    raise BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{tp} has no message at offset {offset}: it was compacted, or is a marker of a transaction",
    )
