"""``maxOffsetsPerTrigger``: how far one micro-batch may go. Pure.

The limit is shared out by backlog, exactly as Spark's connector does: a partition with ``size`` of ``total``
waiting records advances by ``limit * size / total``, rounded up below 1 so that a small partition is never
starved, rounded down otherwise, and never beyond its end. Several small partitions can thus exceed the limit
by less than one each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

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
