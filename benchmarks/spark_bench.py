"""Spark through our source, against Spark's own Kafka connector: all figures in one run.

    KAFKA_JARS=DIR SPARK_KAFKA_JARS=DIR python benchmarks/spark_bench.py [--quick] [--only CASE,…] [--runs N]
        [--rows N] [--secured] [--spark-python PYTHON] [--json FILE]

KAFKA_JARS: the jars of an Apache Kafka 3.x broker. SPARK_KAFKA_JARS: the connector ``spark-sql-kafka-0-10``
of the Spark of the running Python (4.0), with what it needs. ``--spark-python``: the Python of an environment
with Spark 4.2 or newer. Batches of limited size exist for Python sources since 4.2 only, so that row compares
our source on that Spark with the peer on the running one; without it the row is left out. What ran on which
Spark stands beside each row.

How it is measured. Two cores for Spark (``local[2]``), which it shares with the broker, as on one machine; a
session is a process of its own (``spark_side.py``), and both sides of a row use the same one, but where the
row says otherwise. Topics have four partitions and are filled by ``kafka_fill.py``: the same bytes for both
brokers, in the batches of Kafka's producer with its default settings (16 kB), not deleted for their age. A
round warms up and is not counted; then the sides take turns, and who is first changes with every round.
Reading ends in ``noop``; writing begins with rows in Spark's memory and goes to a new topic each time. Before
it is timed, what is read is compared: rows, and a checksum over all columns; what was written likewise, over
its contents. Beside writes stands the "floor": a Python sink that only counts the rows, in the workers of
ours. Rates are medians. "µs" is processor time a row, of the JVM with all Python processes below it,
without the broker: it says more than the rate where the machine does other work too.

With ``--secured`` both sources connect by SASL_SSL (see ``brokers.py``); topics are filled by the plain
listener.

Memory is ``VmHWM`` (the peak of the resident set, shared pages included) of the largest process that Spark's
Python daemon forked for tasks, in a fresh session for each figure; 0 MB would be what the trivial source has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import spark_deliveries
import spark_reads
from kafka_fill import PARTITIONS, Shape
from spark_rounds import OURS, PEER, Bench, Row, Session, Work, check_jars, parsed, parser_of, print_table

import minikafka
from minikafka.records.format.message_set import Codec

SHAPES = {
    "10-bytes": (Shape(10), 2_000_000),
    "1-kB": (Shape(1_000), 200_000),
    "10-kB": (Shape(10_000), 20_000),
    "lz4": (Shape(100, codec=Codec.LZ4), 1_000_000),
    "zstd": (Shape(100, codec=Codec.ZSTD), 1_000_000),
    "keys": (Shape(100, keys=True), 1_000_000),
}
"""What is read and written beside values of 100 bytes, and how many rows of it."""


def _write(bench: Bench, case: str, what: str, rows: int, shape: Shape, ours: str, runs: int = 0) -> Row:
    columns = ["key", "value"] if shape.keys else ["value"]
    bench.main.ask("frame", rows=rows, value_bytes=shape.value_bytes, keys=shape.keys)
    wanted = bench.main.ask("written", columns=columns)["result"]
    codec = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}.get(shape.codec, "none")

    def work(source: str, servers: str) -> Work:
        def run(number: int) -> dict[str, Any]:
            topic = bench.new_topic(servers)
            given = {**bench.connecting(servers), "topic": topic, "kafka.acks": "all"}
            given["kafka.compression.type"] = codec
            found = bench.main.ask("write", source=source, options=given)
            if number == 0:
                read = {"source": source, "options": bench.reading(servers, topic)}
                sums = bench.main.ask("checksum", columns=columns, **read)["result"]
                if sums != wanted:
                    raise SystemExit(f"{source} wrote {sums}, not {wanted}")
            return found

        return run

    works: dict[str, Work] = {OURS: work(OURS, ours), PEER: work(PEER, bench.apache)}
    works["floor"] = lambda _: bench.main.ask("write", source="counting", options={})
    return bench.against(case, what, 2.0, rows, works, runs)


def write(bench: Bench) -> list[Row]:
    """Both sources to the same Apache Kafka."""
    what = "batch write, both to Apache Kafka"
    return [_write(bench, "write", what, bench.rows // 3, Shape(), bench.apache)]


def write_own(bench: Bench) -> list[Row]:
    """Each to its broker."""
    what = "batch write, each to its own broker"
    return [_write(bench, "write-own", what, bench.rows // 3, Shape(), bench.own)]


def shapes(bench: Bench) -> list[Row]:
    """Other sizes, codecs, keys."""
    found: list[Row] = []
    runs = max(2, bench.runs * 3 // 5)
    for name, (shape, most) in SHAPES.items():
        rows = min(most, most * bench.rows // 3_000_000) // PARTITIONS * PARTITIONS
        texts = (f"batch {verb}, {name.replace('-', ' ')}" for verb in ("read", "write"))
        reading, writing = texts
        found.append(
            spark_reads.batch_read(bench, f"read-{name}", reading, rows, shape, name, bench.apache, runs)
        )
        found.append(_write(bench, f"write-{name}", writing, rows, shape, bench.apache, runs))
    return found


def memory(bench: Bench) -> list[Row]:
    """A worker's memory."""
    bench.topic(bench.apache, "tiny", PARTITIONS)
    bench.rows_of(bench.apache)
    bench.topic(bench.apache, "10-kB", min(20_000, bench.rows // 150) // 4 * 4, SHAPES["10-kB"][0])
    peaks: dict[str, int] = {}
    for topic in ("trivial", "tiny", "rows", "10-kB", "written"):
        session = Session(sys.executable, bench.jars)
        try:
            if topic == "trivial":
                session.ask("rows", source="trivial", options={})
            elif topic == "written":
                session.ask("frame", rows=bench.rows // 3, value_bytes=100, keys=False)
                given = {**bench.connecting(bench.apache), "topic": bench.new_topic(bench.apache)}
                session.ask("write", source=OURS, options=given)
            else:
                session.ask("read", source=OURS, options=bench.reading(bench.apache, topic))
            peaks[topic] = session.ask("memory")["result"]["worker"]
        finally:
            session.close()
    least = peaks.pop("trivial")
    what = {"tiny": "four rows read", "rows": f"{bench.rows:,} rows read"}
    what |= {"10-kB": "rows of 10 kB read", "written": f"{bench.rows // 3:,} rows written"}
    return [
        Row(
            "memory",
            f"a worker above a trivial source's, {what[topic]}",
            (peak - least) / 1e6,
            "MB",
            120.0,
            False,
            f"{peak / 1e6:.0f} MB against {least / 1e6:.0f} MB",
        )
        for topic, peak in peaks.items()
    ]


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "read": spark_reads.read,
    "read-own": spark_reads.read_own,
    "columns": spark_reads.columns,
    "micro-batches": spark_reads.micro_batches,
    "stream": spark_reads.stream,
    "triggers": spark_reads.triggers,
    "write": write,
    "write-own": write_own,
    "deliveries": spark_deliveries.deliveries,
    "tiny": spark_reads.tiny,
    "range": spark_reads.offset_range,
    "memory": memory,
    "shapes": shapes,
}


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    rows_help = "that are read; a third of them is written; 3,000,000"
    parser = parser_of(__doc__ or "", CASES, rows_help)
    parser.add_argument("--spark-python", default="", help="the Python of a Spark 4.2 or newer")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    return parsed(parser, words, CASES, 3_000_000)


def main() -> int:
    """Run the cases; print the table, and what was found as JSON."""
    arguments = options_of()
    check_jars()
    began = time.monotonic()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, arguments)
        versions = {
            "minikafka": minikafka.__version__,
            "python": platform.python_version(),
            "spark of both sides": bench.main.spark,
            "spark of the rows that say so": bench.newest.spark if bench.newest else None,
            "kafka": next(p.stem for p in Path(os.environ["KAFKA_JARS"]).glob("kafka-clients-*.jar")),
            "peer": next(p.stem for p in Path(os.environ["SPARK_KAFKA_JARS"]).glob("spark-sql-kafka-*.jar")),
        }
        for name in arguments.only:
            print(f"{name}, after {time.monotonic() - began:.0f} s", flush=True)
            for row in CASES[name](bench):
                rows.append(row)
                print("  " + row.line(), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    print(f"\n{machine}; load {os.getloadavg()[0]:.1f}; {versions}\n")
    print_table(rows)
    found = {
        "command": " ".join(sys.argv),
        "machine": machine,
        "load": os.getloadavg(),
        "versions": versions,
        "seconds": time.monotonic() - began,
        "rows": [
            {"case": row.case, "what": row.what, "figure": row.figure, "unit": row.unit, "goal": row.goal}
            | {"verdict": row.verdict, "detail": row.detail, "data": row.data}
            for row in rows
        ],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))
    print(f"\n{json.dumps(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
