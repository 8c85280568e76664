"""The result of a task that has staged its rows. It is pickled, as Spark commits in a worker of its own."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.clients.produce.batch_copier import StagedBatch
from pyspark_minikafka.writing.batch_writer import Written


class Staged(Written):
    """The result of a write task whose rows are in the staging topic.

    query_id: of the streaming query; empty for a batch write.
    """

    def __init__(self, rows: int, sent_bytes: int, query_id: str, batches: Iterable[StagedBatch]) -> None:
        super().__init__(rows, sent_bytes)
        self.query_id = query_id
        self.batches = tuple(batches)
