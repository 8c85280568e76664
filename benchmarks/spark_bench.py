"""Spark through our source and broker, against Spark's own Kafka connector and Apache Kafka.

    KAFKA_JARS=DIR SPARK_KAFKA_JARS=DIR python benchmarks/spark_bench.py [--rows N] [--runs N] [--only
    read|write]

KAFKA_JARS: the jars of an Apache Kafka 3.x broker. SPARK_KAFKA_JARS: the connector ``spark-sql-kafka-0-10``
of the running Spark with what it needs. Goals: reading 2 M x 100 B from four partitions into ``noop`` at
least twice as fast as the peer; writing 1 M x 100 B at least as fast.

Both topics of the reading are filled with the same rows, by our writer, in sets of 16 kB as Kafka's
producer makes them; before anything is timed both sides read them, and the rows and a checksum over all
columns must be equal. Every broker starts fresh and stops at the end. Runs alternate; one round warms up
and is not counted. Both sides check CRCs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from kafka_peer import apache_kafka
from pyspark.sql import SparkSession

import minikafka
import pyspark_minikafka  # noqa: F401  # first: Spark then looks for sources with this very Python
from minikafka.clients.admin import Admin, NewTopic
from minikafka.clients.cluster import Cluster as Client
from minikafka.embedded import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
VALUE_BYTES = 100


class Side:
    """One of the two: a format of Spark and the broker that it talks to."""

    def __init__(self, name: str, source: str, servers: str) -> None:
        self.name = name
        self.source = source
        self.servers = servers

    def topic(self, name: str) -> str:
        """Make a topic with four partitions."""
        with Client(self.servers) as client:
            Admin(client).create_topic(NewTopic(name, PARTITIONS))
        return name

    def write(self, rows: DataFrame, topic: str, source: str | None = None, **options: str) -> None:
        """Append rows."""
        writer = rows.write.format(source or self.source).mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.servers).option("kafka.acks", "all").options(
            **options
        ).save()

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """All rows of a topic."""
        reader = spark.read.format(self.source).option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", self.servers).load()


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """``count`` rows with a key and 100 bytes of value, each task's for one partition."""
    hexadecimal = "sha2(cast(id AS string), 512)"
    return spark.range(0, count, 1, PARTITIONS).selectExpr(
        "cast(id AS string) AS key",
        f"substr({hexadecimal}, 1, {VALUE_BYTES}) AS value",
        f"cast(id * {PARTITIONS} div {count} AS int) AS partition",
        "1357000000000L + id AS timestamp",
    )


def checksum(frame: DataFrame) -> tuple[int, int]:
    """Rows, and a sum of hashes over all columns."""
    columns = ", ".join(frame.columns)
    found = frame.selectExpr(
        "count(*) AS n", f"sum(cast(xxhash64({columns}) AS decimal(38, 0))) AS h"
    ).collect()[0]
    return int(found.n), int(found.h or 0)


def seconds(work: Callable[[], None]) -> float:
    """How long ``work`` takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def compare(
    sides: list[Side], runs: int, work: Callable[[Side, int], Callable[[], None]], rows: int
) -> dict[str, Any]:
    """Alternate the sides: rows/s of every run, the medians, and the first side's over the second's."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for run in range(runs + 1):
        for side in sides:
            rate = rows / seconds(work(side, run))
            print(
                f"  {'warm-up' if run == 0 else f'run {run}'}: {side.name:<12} {rate:>12,.0f} rows/s",
                flush=True,
            )
            if run:
                rates[side.name].append(rate)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ours, peer = (medians[side.name] for side in sides)
    return {"rows": rows, "runs": rates, "median": medians, "ratio": ours / peer}


def read_bench(spark: SparkSession, sides: list[Side], rows: int, runs: int) -> dict[str, Any]:
    """Batch reads into ``noop``."""
    sums = []
    for side in sides:
        side.topic("read")
        side.write(rows_of(spark, rows), "read", "minikafka", **{"kafka.batch.size": "16384"})
        sums.append(checksum(side.read(spark, "read")))
    if sums[0] != sums[1] or sums[0][0] != rows:
        raise SystemExit(f"the sides do not read the same: {sums}")
    print(f"both read {sums[0][0]:,} rows with the checksum {sums[0][1]}")

    def work(side: Side, _: int) -> Callable[[], None]:
        return lambda: side.read(spark, "read").write.format("noop").mode("overwrite").save()

    return compare(sides, runs, work, rows) | {"checksum": str(sums[0][1])}


def write_bench(spark: SparkSession, sides: list[Side], rows: int, runs: int) -> dict[str, Any]:
    """Batch writes, each to a new topic; what was written is counted afterwards."""
    frame = rows_of(spark, rows).select("key", "value", "partition").cache()
    frame.count()

    def work(side: Side, run: int) -> Callable[[], None]:
        topic = side.topic(f"write-{run}")
        return lambda: side.write(frame, topic)

    found = compare(sides, runs, work, rows)
    sums = {
        checksum(side.read(spark, f"write-{run}").select("key", "value", "partition", "offset"))
        for side in sides
        for run in range(runs + 1)
    }
    if len(sums) != 1 or next(iter(sums))[0] != rows:
        raise SystemExit(f"what was written differs: {sums}")
    return found | {"checksum": str(next(iter(sums))[1])}


def session(jars: str) -> SparkSession:
    """Spark with two cores and the peer's connector."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    found = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    settings: Mapping[str, str] = {
        "spark.jars": found,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> int:
    """Run the benchmark; print what was found as JSON too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="of the reading; the writing has half of them"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=["read", "write"])
    options = parser.parse_args()
    missing = [name for name in ("KAFKA_JARS", "SPARK_KAFKA_JARS") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"set {' and '.join(missing)}: see the head of this file")
    kafka_jars, spark_jars = os.environ["KAFKA_JARS"], os.environ["SPARK_KAFKA_JARS"]
    found: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "versions": {
            "minikafka": minikafka.__version__,
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "kafka": next(path.stem for path in Path(kafka_jars).glob("kafka-clients-*.jar")),
            "connector": next(path.stem for path in Path(spark_jars).glob("spark-sql-kafka-*.jar")),
        },
    }
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        ours = stack.enter_context(Cluster(data_dir=directory / "ours")).bootstrap_servers
        theirs = stack.enter_context(apache_kafka(kafka_jars, directory))
        spark = session(spark_jars)
        stack.callback(spark.stop)
        sides = [Side("minikafka", "minikafka", ours), Side("peer", "kafka", theirs)]
        if options.only != "write":
            found["read"] = read_bench(spark, sides, options.rows, options.runs)
        if options.only != "read":
            found["write"] = write_bench(spark, sides, options.rows // 2, options.runs)
    print(json.dumps(found, indent=2))
    for name, goal in (("read", 2.0), ("write", 1.0)):
        if name in found:
            ratio = found[name]["ratio"]
            print(
                f"{name}: {ratio:.2f} x the peer, goal {goal} x: {'reached' if ratio >= goal else 'MISSED'}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
