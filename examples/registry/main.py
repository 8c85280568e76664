"""Turns clicks in JSON into Avro by a schema registry, counts them, and changes their schema meanwhile.

    python -m examples.registry URL [--data-dir D]   or   python examples/registry/main.py URL [--data-dir D]

URL is that of a registry with Confluent's interface, as http://localhost:8081. One query reads clicks as
JSON and writes them as Avro, whose schema it registers. A second query reads them by the registry and counts
them in windows of ten minutes. Then clicks have one more field, with a default. Both queries go on from their
checkpoints, and old and new clicks are read with the new schema. Needs the extra ``avro``. Exit status 0 when
every click was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # Run as a file: let `examples` be found, as with `python -m`.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import DataFrame, SparkSession

import pyspark_minikafka  # noqa: F401  # first: Spark then looks for sources with this very Python
from minikafka.embedded import local

AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
PAGE = {"name": "page", "type": "string"}
REFERRER = {"name": "referrer", "type": "string", "default": "unknown"}
FIRST = ("at TIMESTAMP, page STRING", {"type": "record", "name": "Click", "fields": [AT, PAGE]})
SECOND = (
    "at TIMESTAMP, page STRING, referrer STRING",
    {"type": "record", "name": "Click", "fields": [AT, PAGE, REFERRER]},
)
"""Two versions of a click: the type of its JSON, and its Avro schema."""

OLD_CLICKS = (
    {"at": "2026-01-01T10:01:00Z", "page": "/home"},
    {"at": "2026-01-01T10:02:30Z", "page": "/shop"},
    {"at": "2026-01-01T10:12:00Z", "page": "/home"},
)
NEW_CLICKS = (
    {"at": "2026-01-01T10:13:00Z", "page": "/shop", "referrer": "search"},
    {"at": "2026-01-01T10:21:00Z", "page": "/home", "referrer": "mail"},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(prog="registry", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url", metavar="URL", help="the registry, as http://localhost:8081")
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = str((given.data_dir or Path(scratch) / "data").absolute())
        builder = SparkSession.builder.appName("registry").master("local[2]")
        for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
            builder = builder.config(name, "false")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            counted = Clicks(session, data_dir, given.url).run()
        finally:
            session.stop()
            if given.data_dir is None:
                local.stop(data_dir)
    clicks = len(OLD_CLICKS) + len(NEW_CLICKS)
    print(f"{counted} of {clicks} clicks were counted")
    return 0 if counted == clicks else 1


class Clicks:
    """The two topics, in JSON and in Avro, and the queries on them."""

    def __init__(self, spark: SparkSession, data_dir: str, url: str) -> None:
        """url: of the registry."""
        self._spark = spark
        self._data_dir = data_dir
        self._json = f"clicks-{int(time.time())}"
        self._avro = f"{self._json}-avro"
        self._by_registry = {"minikafka.value.format": "avro", "minikafka.schema.registry.url": url}

    def run(self) -> int:
        """Write and count the clicks of both versions. Return the number of those that were counted."""
        self.produce(OLD_CLICKS)
        self.to_avro(*FIRST)
        self.count()
        print("clicks have a referrer from now on")
        self.produce(NEW_CLICKS)
        self.to_avro(*SECOND)
        counted = self.count()
        clicks = self._spark.read.format("minikafka").options(**self.options(self._avro), **self._by_registry)
        clicks.load().select("value.*").orderBy("at").show(truncate=False)
        return counted

    def produce(self, clicks: Sequence[dict[str, str]]) -> None:
        """Write clicks as text in JSON, as any other program would."""
        rows = self._spark.createDataFrame([(json.dumps(click),) for click in clicks], "value string")
        to = {"minikafka.data.dir": self._data_dir, "topic": self._json}
        rows.write.format("minikafka").options(**to).mode("append").save()

    def to_avro(self, json_type: str, schema: object) -> None:
        """Write the clicks that are new in Avro, with ``schema``, which the registry is given."""
        from_json = {"minikafka.value.format": "json", "minikafka.value.schema": json_type}
        clicks = self._spark.readStream.format("minikafka").options(**self.options(self._json), **from_json)
        (
            clicks.load()
            .select("value")
            .writeStream.format("minikafka")
            .options(**self._by_registry)
            .option("minikafka.value.schema", json.dumps(schema))
            .option("minikafka.auto.register.schemas", "true")  # the default, as with Confluent's serializers
            .option("minikafka.data.dir", self._data_dir)
            .option("topic", self._avro)
            .option("checkpointLocation", self.checkpoint("to-avro"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def count(self) -> int:
        """Count the clicks that are new, read with the newest schema. Return how many were counted in all."""
        given = {**self.options(self._avro), **self._by_registry, "minikafka.columns": "value"}
        clicks = self._spark.readStream.format("minikafka").options(**given).load().select("value.*")
        print(f"a click has {', '.join(clicks.columns)}", flush=True)
        counted = 0

        def show(counts: DataFrame, batch: int) -> None:
            nonlocal counted
            rows = counts.selectExpr("window.start", "window.end", "count").orderBy("start")
            rows.show()
            counted = sum(int(row["count"]) for row in rows.collect())

        (
            clicks.selectExpr("window(at, '10 minutes') AS window")
            .groupBy("window")
            .count()
            .writeStream.outputMode("complete")
            .foreachBatch(show)
            .option("checkpointLocation", self.checkpoint("counts"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        return counted

    def options(self, topic: str) -> dict[str, str]:
        """Return what a read of ``topic`` from its beginning is given."""
        return {"minikafka.data.dir": self._data_dir, "subscribe": topic, "startingOffsets": "earliest"}

    def checkpoint(self, query: str) -> str:
        """Return the directory of a query's checkpoint."""
        return os.path.join(self._data_dir, "checkpoints", self._json, query)


if __name__ == "__main__":
    sys.exit(main())
