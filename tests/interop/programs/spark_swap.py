"""``spark_swap.py BOOTSTRAP JAR,JAR…``: one streaming query, by Spark's connector or by ours, as a test says.

run JSON    {format, sources: [{option: value}], checkpoint, to, trigger, fails, dies, stops}: run a query of
            the union of its sources to its end. Each batch is written to the file to/BATCH, a line a record:
            TOPIC PARTITION OFFSET; a batch that is repeated overwrites its file. ``fails``, ``dies`` and
            ``stops`` name the batch in whose middle an error comes, this program and its JVM are killed, or
            the query is stopped. Answers with the error's text, if there is one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lines import Client, decode, reply, serve
from spark_kafka_session import session

import pyspark_minikafka  # noqa: F401  # has Spark find the format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOTSTRAP, JARS = sys.argv[1:]


class SparkSwap(Client):
    """The command."""

    def __init__(self) -> None:
        super().__init__()
        self._spark = session(JARS)

    def run(self, word: str) -> None:
        """Run a query to its end."""
        asked = json.loads(decode(word) or b"")
        frames = [self._source(asked["format"], options) for options in asked["sources"]]
        folder = Path(asked["to"])
        folder.mkdir(parents=True, exist_ok=True)
        ready = threading.Event()

        def write(frame: DataFrame, number: int) -> None:
            rows = frame.select("topic", "partition", "offset").collect()
            if number == asked.get("fails"):
                raise RuntimeError("the sink is away")
            if number == asked.get("dies"):
                self._die()
            if number == asked.get("stops"):
                ready.wait()
                threading.Thread(target=query.stop, daemon=True).start()
                time.sleep(1)
                raise RuntimeError("what a stopped query had begun comes to nothing")
            text = "".join(f"{row.topic} {row.partition} {row.offset}\n" for row in rows)
            (folder / f"{number}.new").write_text(text)
            (folder / f"{number}.new").rename(folder / str(number))

        writer = reduce(lambda one, other: one.union(other), frames).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", asked["checkpoint"])
        if asked.get("trigger", True):
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        ready.set()
        try:
            query.awaitTermination()
        except Exception as problem:  # noqa: BLE001  # the test decides what an error means
            reply(str(problem).replace("\n", " "))

    def _source(self, name: str, options: dict[str, Any]) -> DataFrame:
        reader = self._spark.readStream.format(name).option("kafka.bootstrap.servers", BOOTSTRAP)
        return reader.options(**options).load()

    def _die(self) -> None:
        java = self._spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        os.kill(java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve(SparkSwap())
