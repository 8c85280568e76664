"""The limits of a micro-batch: ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``. Pure.

The maximum is divided by backlog, exactly as Spark's connector does: a partition with ``size`` of ``total``
waiting records advances by ``limit * size / total``, rounded up below 1 so that a small partition is never
starved, rounded down otherwise, and never beyond its end. Several small partitions can thus exceed the limit
by less than one each.

A batch smaller than ``minOffsetsPerTrigger`` waits, but not longer than ``maxTriggerDelay`` after the
previous batch. The first batch of a run does not wait.
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
    """Return the end offsets of a batch of about ``limit`` records.

    start: the position in each partition; one that is missing, or beyond its end, keeps its end.
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
class TriggerDelay:
    """The delay of batches that are too small.

    last_ms: the time of the last batch, in ms of any clock; None before the first.
    """

    last_ms: int | None = None

    def must_wait(
        self,
        least: int,
        max_delay_ms: int,
        now_ms: int,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> bool:
        """Return True if the batch from ``start`` to ``end`` must wait for more records.

        New partitions count from offset 0. If it need not wait, the next delay begins now.
        """
        waiting = sum(offset - start.get(tp, 0) for tp, offset in end.items())
        if self.last_ms is not None and now_ms - self.last_ms < max_delay_ms and waiting < least:
            return True
        self.last_ms = now_ms
        return False


def newest(
    count: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the first of the last ``count`` offsets before ``end``, in proportion to the partitions' sizes.

    If there are fewer than ``count``, that is ``start``; otherwise exactly ``count`` offsets follow.
    """
    sizes = {tp: end[tp] - start[tp] for tp in sorted(end)}
    total = sum(sizes.values())
    if total <= count:
        return dict(start)
    shares = {tp: count * size // total for tp, size in sizes.items()}
    # The remainder of the rounding goes to the partitions that lost the largest fractions.
    by_rest = sorted(sizes, key=lambda tp: (-(count * sizes[tp] % total), tp))
    for tp in by_rest[: count - sum(shares.values())]:
        shares[tp] += 1
    return {tp: end[tp] - share for tp, share in shares.items()}
