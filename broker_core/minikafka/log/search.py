"""Look-ups in segments: offsets of segments and of messages by time, and the facts that retention needs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from minikafka.log.file_scan import windows
from minikafka.log.retention import SegmentFacts
from minikafka.log.segment import Segment
from minikafka.records.scan.scan import entries_at_or_after, first_at_or_after

EARLIEST = -2
LATEST = -1
LOOK_UP_BYTES = 4 << 20
"""Memory that most look-ups by time need: a window of a segment, and the content of a usual batch."""
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Large:
    """An entry of a segment that needs ``need_bytes`` of memory to be opened."""

    position: int
    size: int
    need_bytes: int


def offsets_before(
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    timestamp_ms: int,
    max_count: int,
    now_ms: int | None,
) -> list[int]:
    """See ``Log.offsets_before``. The time of a segment is its file's last modification, as in 0.10.1."""
    offsets = [max(start_offset, segment.base_offset) for segment in segments]
    ended = segments[-1].size > 0
    if timestamp_ms == EARLIEST:
        return offsets[:1][:max_count]
    if timestamp_ms != LATEST:
        ended = ended and now_ms is not None and now_ms <= timestamp_ms
        while not ended and offsets and segments[len(offsets) - 1].file.modified_ms() > timestamp_ms:
            offsets.pop()
    if ended:
        offsets.append(end_offset)
    return offsets[::-1][:max_count]


def offset_for_timestamp(
    segments: Sequence[Segment], start_offset: int, timestamp_ms: int
) -> tuple[int, int] | None:
    """See ``Log.offset_for_timestamp``."""
    steps = steps_to_timestamp(segments, start_offset, timestamp_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[int, int] | None = end.value
            return found


def steps_to_timestamp(
    segments: Sequence[Segment], start_offset: int, timestamp_ms: int
) -> Generator[int, None, tuple[int, int] | None]:
    """See ``Log.steps_to_timestamp``. Segments are read from where their time index says."""
    for segment in segments:
        if segment.max_timestamp()[0] < timestamp_ms:
            continue
        _, begin = segment.index().lookup(max(start_offset, segment.times().lookup(timestamp_ms)))
        found = _look(segment, begin, start_offset, timestamp_ms)
        while isinstance(found, _Large):
            # A look-up that waits for memory holds none: the entry is read again.
            yield found.need_bytes
            data = segment.file.read_at(found.position, found.size)
            record = first_at_or_after(data, timestamp_ms, start_offset)
            if record is not None:
                return record
            del data
            yield LOOK_UP_BYTES
            found = _look(segment, found.position + found.size, start_offset, timestamp_ms)
        if found is not None:
            return found
    return None


def _look(
    segment: Segment, begin: int, start_offset: int, timestamp_ms: int
) -> tuple[int, int] | _Large | None:
    """Find the message from ``begin`` on, or an entry that may contain it but is too large to open now."""
    for window in windows(
        segment.file, begin, segment.size, segment.base_offset, check_crc=False, window_bytes=_WINDOW_BYTES
    ):
        if window.result.max_timestamp_ms < timestamp_ms:
            continue
        for entry in entries_at_or_after(window.data, timestamp_ms, start_offset):
            need_bytes = entry.need_bytes
            if need_bytes > LOOK_UP_BYTES - _WINDOW_BYTES:
                return _Large(window.position + entry.position, len(entry.data), need_bytes)
            found = first_at_or_after(entry.data, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def segment_facts(segments: Sequence[Segment], end_offset: int) -> list[SegmentFacts]:
    """Return the SegmentFacts of each segment, for retention, of a log that ends at ``end_offset``."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return [
        SegmentFacts(
            segment.base_offset, end, segment.size, segment.last_time_ms(), segment.file.modified_ms()
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
