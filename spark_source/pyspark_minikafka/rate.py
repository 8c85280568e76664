"""``maxOffsetsPerTrigger``: how far one micro-batch may go. Pure.

The limit is shared out by backlog, exactly as Spark's connector does: a partition with ``size`` of ``total``
waiting records advances by ``limit * size / total``, rounded up below 1 so that a small partition is never
starved, rounded down otherwise, and never beyond its end. Several small partitions can thus exceed the limit
by less than one each.

A batch that would be smaller than ``minOffsetsPerTrigger`` waits, but not longer than ``maxTriggerDelay``
after the one before it. The first batch of a run does not wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition

LONG_MAX = 2**63 - 1


def limited(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The end offsets of a batch of about ``limit`` records.

    start: where each partition is; one that is missing, or beyond its end, keeps its end.
    end: the available end offsets; the result has the same partitions.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if tp in start and end[tp] > start[tp]}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(end)
    ends = dict(end)
    for tp, size in sizes.items():
        share = limit * (size / total)
        rounded = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(end[tp], start[tp] + min(rounded, LONG_MAX))
    return ends


@dataclass(slots=True)
class Patience:
    """The time of the last batch, in ms of any clock; None before the first."""

    last_ms: int | None = None

    def holds_back(
        self,
        least: int,
        max_delay_ms: int,
        now_ms: int,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> bool:
        """Return whether the batch from ``start`` to ``end`` must wait for more records.

        New partitions count from offset 0. When it is not, the next delay begins now.
        """
        waiting = sum(offset - start.get(tp, 0) for tp, offset in end.items())
        if self.last_ms is not None and now_ms - self.last_ms < max_delay_ms and waiting < least:
            return True
        self.last_ms = now_ms
        return False


def newest(
    count: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where the last ``count`` offsets before ``end`` begin, in proportion to the partitions' sizes.

    All of them when there are no more; exactly ``count`` otherwise.
    """
    sizes = {tp: end[tp] - start[tp] for tp in sorted(end)}
    total = sum(sizes.values())
    if total <= count:
        return dict(start)
    shares = {tp: count * size // total for tp, size in sizes.items()}
    # What rounding left goes where most of a record was cut off.
    by_rest = sorted(sizes, key=lambda tp: (-(count * sizes[tp] % total), tp))
    for tp in by_rest[: count - sum(shares.values())]:
        shares[tp] += 1
    return {tp: end[tp] - share for tp, share in shares.items()}
