"""The tasks of a planned read: one for each range. ``reading`` runs them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from pyspark_minikafka.location import Target
from pyspark_minikafka.planning.ranges import OffsetRange


class RangePartition(InputPartition):
    """One task: a range of one topic partition, and its brokers. Small, because it is pickled."""

    def __init__(self, offsets: OffsetRange, target: Target) -> None:
        super().__init__(None)
        self.offsets = offsets
        self.target = target

    def __repr__(self) -> str:
        return f"RangePartition({self.offsets})"


def input_partitions(ranges: Iterable[OffsetRange], target: Target) -> list[InputPartition]:
    """Return one task for each range."""
    return [RangePartition(offsets, target) for offsets in ranges]
