"""A streaming query that writes exactly once, in a Spark of its own, so that a test can kill it.

Argument: a JSON object.
    input, checkpoint, topic, options   the files that are read, and where their rows go
    master                              of Spark
    settings                            more of Spark's settings
    tasks                               the number of tasks that write, if the rows are shuffled
    dies                                a file: the first task with row 20 ends its worker, and makes it
    sleeps                              a file: as ``dies``, but this attempt sleeps; one that does not makes
                                        the file with ", others not" behind its name
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import pyspark_minikafka  # noqa: F401


def first(path: str) -> bool:
    """Return True for the one caller that makes ``path``."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    return False


def main(given: dict[str, str]) -> None:
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}
    settings |= {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    }
    builder = SparkSession.builder.master(given["master"])
    for name, value in {**settings, **json.loads(given.get("settings", "{}"))}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    dies, sleeps = given.get("dies", ""), given.get("sleeps", "")

    def troubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if any(value.endswith("-20") for value in batch.column(0).to_pylist()):
                if dies and first(dies):
                    time.sleep(1)  # until the rows before are staged
                    os.kill(os.getpid(), signal.SIGKILL)
                if sleeps and first(sleeps):
                    time.sleep(10)
                elif sleeps:
                    first(f"{sleeps}, others not")
            yield batch

    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(given["input"])
    if "tasks" in given:
        frame = frame.repartition(int(given["tasks"]))
    writer = frame.mapInArrow(troubled, "value string").writeStream.format("minikafka")
    writer = writer.options(**json.loads(given["options"])).option("checkpointLocation", given["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write("done")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
