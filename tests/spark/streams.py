"""Streaming queries of one checkpoint, and the values that they have read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.spark.conftest import Kafka

PATIENCE_S = 90


class Running:
    """One run of a query, and what it has written so far."""

    def __init__(self, query: StreamingQuery, batches: dict[int, list[str]], checkpoint: Path) -> None:
        self.query = query
        self.batches = batches
        self.checkpoint = checkpoint

    @property
    def values(self) -> list[str]:
        return [value for number in sorted(self.batches) for value in self.batches[number]]

    def wait_for(self, count: int) -> list[str]:
        """Until so many values have come; everything that came, sorted."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.values) < count:
            if not self.query.isActive:
                raise AssertionError(f"the query has ended: {self.query.exception()}")
            assert time.monotonic() < deadline, f"{len(self.values)} of {count} values came"
            time.sleep(0.05)
        return sorted(self.values)

    def failure(self) -> str:
        """Until the query has failed; why."""
        with pytest.raises(Exception) as caught:
            self.query.awaitTermination(PATIENCE_S)
        return str(caught.value)

    def ended(self) -> list[str]:
        """Until the query has ended by itself; everything that came."""
        assert self.query.awaitTermination(PATIENCE_S)
        return self.values

    def stop(self) -> None:
        """Stop the query once Spark has noted all that was written, or it would do it again."""
        committed = self.checkpoint / "commits" / str(max(self.batches, default=-1))
        wait_until(lambda: not self.batches or committed.exists() or not self.query.isActive)
        self.query.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Streams:
    """Starts queries that collect values, all on one checkpoint, and stops what is left."""

    def __init__(self, spark: SparkSession, kafka: Kafka, checkpoint: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self.checkpoint = checkpoint
        self._started: list[Running] = []

    def start(
        self,
        *,
        trigger: dict[str, Any] | None = None,
        before: Callable[[int, list[str]], None] | None = None,
        source: str = "minikafka",
        **options: str,
    ) -> Running:
        """Start a query; ``before(batch id, values)`` may raise to fail a batch that was read."""
        given = {name.replace("__", "."): value for name, value in options.items()}
        given.setdefault("kafka.bootstrap.servers", self.kafka.servers)
        batches: dict[int, list[str]] = {}

        def collect(frame: DataFrame, number: int) -> None:
            values = [bytes(row.value).decode() for row in frame.select("value").collect()]
            if before is not None:
                before(number, values)
            batches[number] = values

        writer = self.spark.readStream.format(source).options(**given).load().writeStream
        writer = writer.foreachBatch(collect).option("checkpointLocation", str(self.checkpoint))
        if trigger is not None:
            writer = writer.trigger(**trigger)
        self._started.append(Running(writer.start(), batches, self.checkpoint))
        return self._started[-1]

    def offsets(self) -> list[dict[str, Any]]:
        """The source's offset of every batch in the checkpoint."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[2]) for path in files]

    def close(self) -> None:
        for running in self._started:
            running.query.stop()
