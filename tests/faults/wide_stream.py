"""``wide_stream.py DIRECTORY SERVERS TOPIC SEED``: reads a topic of many partitions by a stream, to its end.

The sink writes a file for each batch, and notes if a batch that runs again has other rows. The stream is
started again whenever it has failed, each time with other tasks: by work or by partition, for a number of
cores by chance. When the file ``total`` says how many records the topic has, and the commit log has all of
them, the program compares the sink with a batch read and ends with 0. All state is in files, so that the same
command goes on after a kill.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import pyspark_minikafka  # noqa: F401  # sets PYSPARK_PYTHON
from tests.faults.hooked_source import append, keep_batch

PATIENCE_S = 300


class WideStream:
    """The query, its sink and its checkpoint."""

    def __init__(self, directory: str, servers: str, topic: str, seed: str) -> None:
        self.directory = Path(directory)
        self.checkpoint = self.directory / "checkpoint"
        self.options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        starts = append(self.directory / "starts", "x")
        self.chance = random.Random(f"{seed} {starts}")
        self.counts: dict[Path, int] = {}
        """Rows of the batches that are in the commit log."""
        # A task whose process is killed runs again.
        builder = SparkSession.builder.master("local[2,9]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF")
        builder = builder.config("spark.sql.streaming.minBatchesToRetain", "100000")
        self.spark = builder.config("spark.local.dir", str(self.directory / "scratch")).getOrCreate()

    def run(self) -> None:
        """Read until everything is there; then compare."""
        total, query = self.directory / "total", self._start()
        deadline = time.monotonic() + PATIENCE_S
        while not total.exists() or self._committed() < int(total.read_text()):
            assert time.monotonic() < deadline, f"{self._committed()} records came in {PATIENCE_S} s"
            if not query.isActive:
                append(self.directory / "failures", f"{str(query.exception())[:200]}\n")
                query = self._start()
            time.sleep(0.05)
        query.stop()
        found = sorted(row for path in self._batches() for row in json.loads(path.read_text()))
        frame = self.spark.read.format("minikafka").options(**self.options).load()
        answer = sorted(map(_as_json, frame.select("partition", "offset", "value").collect()))
        if found != answer:
            came, there = Counter(map(tuple, found)), Counter(map(tuple, answer))
            lost, repeated = list(there - came)[:20], list(came - there)[:20]
            append(self.directory / "wrong", f"{len(found)} rows, not {len(answer)}: {lost=} {repeated=}\n")
        self.spark.stop()

    def _start(self) -> StreamingQuery:
        options = self.options | {
            "minikafka.tasks": self.chance.choice(["work", "work", "partition"]),
            "minikafka.cores": str(self.chance.randrange(1, 20)),
            "maxOffsetsPerTrigger": str(self.chance.randrange(500, 5_000)),
        }
        frame = self.spark.readStream.format("minikafka").options(**options).load()
        writer = frame.writeStream.foreachBatch(self._write)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def _write(self, frame: DataFrame, number: int) -> None:
        rows = sorted(map(_as_json, frame.select("partition", "offset", "value").collect()))
        keep_batch(self.directory, number, rows)

    def _batches(self) -> list[Path]:
        """Return the files of the batches that are in the commit log."""
        commits = self.checkpoint / "commits"
        numbers = [path.name for path in commits.iterdir()] if commits.exists() else []
        return [self.directory / f"batch-{number}" for number in numbers if number.isdecimal()]

    def _committed(self) -> int:
        for path in self._batches():
            if path not in self.counts:
                self.counts[path] = len(json.loads(path.read_text()))
        return sum(self.counts.values())


def _as_json(row: Row) -> list[object]:
    return [row.partition, row.offset, bytes(row.value).decode()]


if __name__ == "__main__":
    WideStream(*sys.argv[1:]).run()
