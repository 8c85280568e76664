"""``exactly_once_stream.py ARGUMENTS``: copies a topic to another one by a stream with shuffles, to its end.

ARGUMENTS: a JSON object with ``directory``, ``servers``, ``source``, ``target``, ``delivery``, ``total`` (the
rows of the source), ``batch_rows`` and ``seed``. The stream is started again whenever it has failed, each
time with other numbers of tasks. When the commit log has all rows, the program ends with 0. All state is in
files, so that the same command continues after a kill.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import pyspark_minikafka  # noqa: F401  # sets PYSPARK_PYTHON
from pyspark_minikafka.offsets import StreamOffset
from tests.faults.hooked_source import append

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
PATIENCE_S = 7_200
"""For a program that nobody kills any more; the test waits less."""
COLUMNS = ("cast(key as string) key", "cast(cast(cast(value as string) as long) * 3 + 1 as string) value")
"""The answer has three times each number, and one more."""


def last_batch(folder: Path) -> int:
    """Return the last batch of a log of the checkpoint; -1 for none."""
    names = os.listdir(folder) if folder.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


class ExactlyOnceStream:
    """The query and its checkpoint."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.directory = Path(given["directory"])
        self.checkpoint = self.directory / "checkpoint"
        starts = append(self.directory / "starts", "x")
        self.chance = random.Random(f"{given['seed']} {starts}")
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "OFF",
            "spark.driver.memory": "1g",
            "spark.sql.streaming.minBatchesToRetain": "100000",
            "spark.local.dir": str(self.directory / "scratch"),
        }
        builder = SparkSession.builder.master("local[2,9]")  # a task whose process is killed runs again
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()

    def run(self) -> None:
        """Write until everything is committed."""
        query = self._start()
        deadline = time.monotonic() + PATIENCE_S
        while self._committed() < self.given["total"]:
            assert time.monotonic() < deadline, f"{self._committed()} rows were written in {PATIENCE_S} s"
            if not query.isActive:
                append(self.directory / "failures", f"{str(query.exception())[:200]!r}\n")
                query = self._start()
            time.sleep(0.05)
        query.stop()
        self.spark.stop()

    def _committed(self) -> int:
        """The number of rows that the commit log has."""
        last = last_batch(self.checkpoint / "commits")
        if last < 0:
            return 0
        text = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()[2]
        return sum(StreamOffset.from_json(json.loads(text)).positions.values())

    def _start(self) -> StreamingQuery:
        source = {
            "kafka.bootstrap.servers": self.given["servers"],
            "subscribe": self.given["source"],
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.given["batch_rows"]),
            "minikafka.cores": str(self.chance.randrange(1, 9)),
        }
        sink = {
            "kafka.bootstrap.servers": self.given["servers"],
            "topic": self.given["target"],
            "minikafka.delivery": self.given["delivery"],
            "checkpointLocation": str(self.checkpoint),
        }
        if self.given["delivery"] == EXACTLY_ONCE:
            sink["minikafka.sink.id"] = self.given["target"]
        rows = self.spark.readStream.format("minikafka").options(**source).load().selectExpr(*COLUMNS)
        rows = rows.repartition(self.chance.randrange(1, 7), "value").repartition(self.chance.randrange(1, 5))
        return rows.writeStream.format("minikafka").options(**sink).start()


if __name__ == "__main__":
    ExactlyOnceStream(json.loads(sys.argv[1])).run()
