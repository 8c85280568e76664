"""Looking through segments: offsets by time, of segments and of messages; what retention asks for."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.log.recovery import windows
from minikafka.log.retention import SegmentFacts
from minikafka.log.segment import Segment
from minikafka.records.scan import first_at_or_after

EARLIEST = -2
LATEST = -1


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
    """See ``Log.offset_for_timestamp``. Segments are read from where their time index says."""
    for segment in segments:
        if segment.newest()[0] < timestamp_ms:
            continue
        _, begin = segment.index().lookup(max(start_offset, segment.times().lookup(timestamp_ms)))
        for window in windows(segment.file, begin, segment.size, segment.base_offset, check_crc=False):
            if window.result.max_timestamp_ms >= timestamp_ms:
                found = first_at_or_after(window.data, timestamp_ms, start_offset)
                if found is not None:
                    return found
    return None


def facts_of(segments: Sequence[Segment], end_offset: int) -> list[SegmentFacts]:
    """What retention is to know of the segments of a log that ends at ``end_offset``."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return [
        SegmentFacts(
            segment.base_offset, end, segment.size, segment.last_time_ms(), segment.file.modified_ms()
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
