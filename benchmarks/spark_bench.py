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
its contents. Rates are medians. "µs" is processor time a row, of the JVM with all Python processes below it,
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
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokers import Security, apache_kafka, minikafka_broker
from kafka_fill import PARTITIONS, Shape, fill, make_topic

import minikafka
from minikafka.records.format.message_set import Codec

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OURS, PEER = "minikafka", "kafka"
"""The names of the formats."""

SHAPES = {
    "10-bytes": (Shape(10), 2_000_000),
    "1-kB": (Shape(1_000), 200_000),
    "10-kB": (Shape(10_000), 20_000),
    "lz4": (Shape(100, codec=Codec.LZ4), 1_000_000),
    "zstd": (Shape(100, codec=Codec.ZSTD), 1_000_000),
    "keys": (Shape(100, keys=True), 1_000_000),
}
"""What is read and written beside values of 100 bytes, and how many rows of it."""


class Session:
    """A Spark of its own process."""

    def __init__(self, python: str, jars: str = "") -> None:
        environment = os.environ | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        side = Path(__file__).with_name("spark_side.py")
        self._process = subprocess.Popen(
            [python, str(side), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.spark: str = self.ask("version")["result"]

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Have one command of ``spark_side.Side`` carried out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what} | arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the Spark session ended while it did: {what} {arguments}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise SystemExit(f"{what} {arguments}:\n{found['error']}")
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. ``figure`` is compared with ``goal``; ``least`` says from which side."""

    case: str
    what: str
    figure: float
    unit: str
    goal: float | None
    least: bool
    detail: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Return the verdict on the goal; empty if there is none."""
        if self.goal is None:
            return ""
        return "met" if (self.figure >= self.goal) == self.least or self.figure == self.goal else "MISSED"

    def line(self) -> str:
        """Return a line of a table in Markdown."""
        sign = "≥" if self.least else "≤"
        goal = "" if self.goal is None else f"{sign} {self.goal:g} {self.unit}"
        return (
            f"| {self.case} | {self.what} | {self.figure:.2f} {self.unit} | {goal} | {self.verdict} "
            f"| {self.detail} |"
        )


Work = Callable[[int], dict[str, Any]]
"""One timed run, given its number; 0 is the one that warms up."""


class Bench:
    """Brokers, sessions and topics; one method a case."""

    def __init__(self, stack: contextlib.ExitStack, arguments: argparse.Namespace) -> None:
        self._stack = stack
        self._arguments = arguments
        self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        security = Security() if arguments.secured else None
        own = stack.enter_context(minikafka_broker(self._directory, {}, security))
        apache = stack.enter_context(apache_kafka(os.environ["KAFKA_JARS"], self._directory, security))
        self.own, self.apache = own.servers, apache.servers
        self._clients = {broker.servers: broker.client for broker in (own, apache)}
        found = sorted(Path(os.environ["SPARK_KAFKA_JARS"]).glob("*.jar"))
        self._jars = ",".join(str(path) for path in found)
        self.main = self._session(sys.executable)
        self._newest: Session | None = None
        self._filled: set[tuple[str, str]] = set()
        self.rows = arguments.rows // PARTITIONS * PARTITIONS
        self._topics = 0

    def _session(self, python: str, jars: bool = True) -> Session:
        session = Session(python, self._jars if jars else "")
        self._stack.callback(session.close)
        return session

    @property
    def newest(self) -> Session | None:
        """The session of ``--spark-python``."""
        if self._newest is None and self._arguments.spark_python:
            self._newest = self._session(self._arguments.spark_python, jars=False)
            # The other one has read all of it before it is timed, for the comparison.
            read = {"source": OURS, "options": self.reading(self.apache, self._rows_of(self.apache))}
            self.same(read, read, self.rows, COLUMNS, self._newest)
        return self._newest

    # Topics and options

    def topic(self, servers: str, name: str, rows: int, shape: Shape | None = None) -> str:
        """The topic ``name``, filled when it is asked for first."""
        if (servers, name) not in self._filled:
            began = time.monotonic()
            fill(servers, name, rows, shape or Shape())
            self._filled.add((servers, name))
            print(f"  filled {name} with {rows:,} rows in {time.monotonic() - began:.1f} s", flush=True)
        return name

    def _rows_of(self, servers: str) -> str:
        """The topic that most cases read."""
        return self.topic(servers, "rows", self.rows)

    def connecting(self, servers: str) -> dict[str, str]:
        """Return the options of a connection to the broker whose plain listener is at ``servers``."""
        return {f"kafka.{name}": value for name, value in self._clients[servers].items()}

    def reading(self, servers: str, topic: str, **more: str) -> dict[str, str]:
        """Return the options of a source."""
        return {**self.connecting(servers), "subscribe": topic, **more}

    def new_topic(self, servers: str) -> str:
        """An empty one."""
        self._topics += 1
        make_topic(servers, f"written-{self._topics}")
        return f"written-{self._topics}"

    # Rounds

    def rounds(self, sides: Mapping[str, Work], runs: int | None = None) -> dict[str, dict[str, float]]:
        """Let the sides take turns: the median of each figure of each side."""
        names = list(sides)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for run in range((runs or self._arguments.runs) + 1):
            for name in names if run % 2 == 0 else reversed(names):
                result = sides[name](run)
                if run:
                    found[name].append(result)
        return {
            name: {
                figure: statistics.median(result[figure] for result in results)
                for figure in ("seconds", "jvm", "python")
            }
            | {"all": sorted(round(result["seconds"], 3) for result in results)}  # type: ignore[dict-item]
            for name, results in found.items()
        }

    def against(
        self, case: str, what: str, goal: float | None, rows: int, sides: Mapping[str, Work], runs: int = 0
    ) -> Row:
        """A row that says how many times as many rows a second the first side has."""
        found = self.rounds(sides, runs or None)
        texts = []
        for name, figures in found.items():
            rate = rows / figures["seconds"] / 1e6
            own, python = (figures[kind] / rows * 1e6 for kind in ("jvm", "python"))
            texts.append(f"{name} {rate:.2f} M/s ({own:.2f} + {python:.2f} µs)")
        ours, peer = (found[name]["seconds"] for name in sides)
        return Row(case, what, peer / ours, "×", goal, True, ", ".join(texts), {"rows": rows, "sides": found})

    def same(
        self,
        first: dict[str, Any],
        second: dict[str, Any],
        rows: int,
        columns: list[str],
        session: Session | None = None,
    ) -> None:
        """Stop unless two reads give the same, and all of it."""
        ask = (session or self.main).ask
        sums = [ask("checksum", columns=columns, **read)["result"] for read in (first, second)]
        if sums[0] != sums[1] or sums[0][0] != rows:
            raise SystemExit(f"of {rows} rows the sides do not read the same: {sums} from {first}, {second}")

    # Cases

    def _read(
        self, case: str, what: str, rows: int, shape: Shape, name: str, ours: str, runs: int = 0
    ) -> Row:
        reads = {
            OURS: {"source": OURS, "options": self.reading(ours, self.topic(ours, name, rows, shape))},
            PEER: {
                "source": PEER,
                "options": self.reading(self.apache, self.topic(self.apache, name, rows, shape)),
            },
        }
        self.same(reads[OURS], reads[PEER], rows, COLUMNS)
        ask = self.main.ask
        works: dict[str, Work] = {s: lambda _, read=read: ask("read", **read) for s, read in reads.items()}
        return self.against(case, what, 2.5, rows, works, runs)

    def read(self) -> list[Row]:
        """Both sources on the same Apache Kafka."""
        what = "batch read, both on Apache Kafka"
        return [self._read("read", what, self.rows, Shape(), "rows", self.apache)]

    def read_own(self) -> list[Row]:
        """Each source on its broker."""
        what = "batch read, each on its own broker"
        return [self._read("read-own", what, self.rows, Shape(), "rows", self.own)]

    def stream(self) -> list[Row]:
        """AvailableNow in one batch, and in limited ones."""
        options = self.reading(self.apache, self._rows_of(self.apache), startingOffsets="earliest")
        limit = min(200_000, self.rows // 5)
        limited = options | {"maxOffsetsPerTrigger": str(limit)}

        def work(session: Session, source: str, given: dict[str, str]) -> Work:
            def run(_: int) -> dict[str, Any]:
                found = session.ask("stream", source=source, options=given)
                rows, batches = found["result"]
                wanted = -(-self.rows // limit) if "maxOffsetsPerTrigger" in given else 1
                if rows != self.rows or not wanted <= batches <= wanted + PARTITIONS:
                    raise SystemExit(f"{source} read {rows} rows in {batches} batches, {wanted} were wanted")
                return found

            return run

        runs = max(2, self._arguments.runs * 3 // 5)
        peer = {f"{PEER} on {self.main.spark}": work(self.main, PEER, options)}
        ours: dict[str, Work] = {f"{OURS} on {self.main.spark}": work(self.main, OURS, options)}
        what = "stream, AvailableNow, one batch"
        rows = [self.against("stream", what, 2.5, self.rows, ours | peer, runs)]
        if self.newest is None:
            print("  batches of limited size are left out: they need --spark-python with Spark 4.2 or newer")
            return rows
        name = f"{OURS} on {self.newest.spark}"
        ours = {name: work(self.newest, OURS, options)}
        rows.append(self.against("stream-newest", what, 2.5, self.rows, ours | peer, runs))
        what = f"stream, AvailableNow, batches of {limit:,}"
        ours = {name: work(self.newest, OURS, limited)}
        peer = {f"{PEER} on {self.main.spark}": work(self.main, PEER, limited)}
        rows.append(self.against("stream-limited", what, 1.5, self.rows, ours | peer, runs))
        return rows

    def _write(self, case: str, what: str, rows: int, shape: Shape, ours: str, runs: int = 0) -> Row:
        columns = ["key", "value"] if shape.keys else ["value"]
        self.main.ask("frame", rows=rows, value_bytes=shape.value_bytes, keys=shape.keys)
        wanted = self.main.ask("written", columns=columns)["result"]
        codec = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}.get(shape.codec, "none")

        def work(source: str, servers: str) -> Work:
            def run(number: int) -> dict[str, Any]:
                topic = self.new_topic(servers)
                given = {**self.connecting(servers), "topic": topic, "kafka.acks": "all"}
                given["kafka.compression.type"] = codec
                found = self.main.ask("write", source=source, options=given)
                if number == 0:
                    read = {"source": source, "options": self.reading(servers, topic)}
                    sums = self.main.ask("checksum", columns=columns, **read)["result"]
                    if sums != wanted:
                        raise SystemExit(f"{source} wrote {sums}, not {wanted}")
                return found

            return run

        works = {OURS: work(OURS, ours), PEER: work(PEER, self.apache)}
        return self.against(case, what, 2.0, rows, works, runs)

    def write(self) -> list[Row]:
        """Both sources to the same Apache Kafka."""
        what = "batch write, both to Apache Kafka"
        return [self._write("write", what, self.rows // 3, Shape(), self.apache)]

    def write_own(self) -> list[Row]:
        """Each to its broker."""
        what = "batch write, each to its own broker"
        return [self._write("write-own", what, self.rows // 3, Shape(), self.own)]

    def shapes(self) -> list[Row]:
        """Other sizes, codecs, keys."""
        found: list[Row] = []
        runs = max(2, self._arguments.runs * 3 // 5)
        for name, (shape, most) in SHAPES.items():
            rows = min(most, most * self.rows // 3_000_000) // PARTITIONS * PARTITIONS
            texts = (f"batch {verb}, {name.replace('-', ' ')}" for verb in ("read", "write"))
            reading, writing = texts
            found.append(self._read(f"read-{name}", reading, rows, shape, name, self.apache, runs))
            found.append(self._write(f"write-{name}", writing, rows, shape, self.apache, runs))
        return found

    def tiny(self) -> list[Row]:
        """Four rows."""
        options = self.reading(self.apache, self.topic(self.apache, "tiny", PARTITIONS))
        found: list[Row] = []
        for session in (self.main, self.newest):
            if session is None:
                continue

            def work(source: str, given: dict[str, str], session: Session = session) -> Work:
                return lambda _: session.ask("rows", source=source, options=given)

            works = {"trivial": work("trivial", {}), OURS: work(OURS, options)}
            if session is self.main:
                works[PEER] = work(PEER, options)
            took = self.rounds(works, 2 * self._arguments.runs)
            more = took[OURS]["seconds"] - took["trivial"]["seconds"]
            detail = ", ".join(f"{name} {figures['seconds']:.2f} s" for name, figures in took.items())
            what = f"four rows, warm, above a trivial Python source, Spark {session.spark}"
            found.append(Row("tiny", what, more, "s", 0.15, False, detail, took))
        return found

    def memory(self) -> list[Row]:
        """A worker's memory."""
        self.topic(self.apache, "tiny", PARTITIONS)
        self._rows_of(self.apache)
        self.topic(self.apache, "10-kB", min(20_000, self.rows // 150) // 4 * 4, SHAPES["10-kB"][0])
        peaks: dict[str, int] = {}
        for topic in ("trivial", "tiny", "rows", "10-kB", "written"):
            session = Session(sys.executable, self._jars)
            try:
                if topic == "trivial":
                    session.ask("rows", source="trivial", options={})
                elif topic == "written":
                    session.ask("frame", rows=self.rows // 3, value_bytes=100, keys=False)
                    given = {**self.connecting(self.apache), "topic": self.new_topic(self.apache)}
                    session.ask("write", source=OURS, options=given)
                else:
                    session.ask("read", source=OURS, options=self.reading(self.apache, topic))
                peaks[topic] = session.ask("memory")["result"]["worker"]
            finally:
                session.close()
        least = peaks.pop("trivial")
        what = {"tiny": "four rows read", "rows": f"{self.rows:,} rows read"}
        what |= {"10-kB": "rows of 10 kB read", "written": f"{self.rows // 3:,} rows written"}
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

    def range(self) -> list[Row]:
        """Few rows of a large topic, and all rows of a small one."""
        few = self.rows // 30 // PARTITIONS
        found: list[Row] = []
        for source, servers, name in (
            (OURS, self.own, "minikafka on its own broker"),
            (OURS, self.apache, "minikafka on Apache Kafka"),
            (PEER, self.apache, "the peer on Apache Kafka"),
        ):
            large = self._rows_of(servers)
            small = self.topic(servers, "few", few * PARTITIONS)
            first = self.rows // PARTITIONS * 2 // 3
            starts = {large: {str(p): first for p in range(PARTITIONS)}}
            ends = {large: {str(p): first + few for p in range(PARTITIONS)}}
            part = self.reading(
                servers, large, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
            )
            whole = self.reading(servers, small)
            works: dict[str, Work] = {
                text: lambda _, source=source, given=given: self.main.ask(
                    "read", source=source, options=given
                )
                for text, given in (("of the large topic", part), ("the small topic", whole))
            }
            took = self.rounds(works)
            ratio = took["of the large topic"]["seconds"] / took["the small topic"]["seconds"]
            detail = ", ".join(f"{text} {figures['seconds']:.2f} s" for text, figures in took.items())
            what = f"{few * PARTITIONS:,} rows of {self.rows:,} against a topic of only so many, {name}"
            goal = None if source == PEER else 1.2
            found.append(Row("range", what, ratio, "×", goal, False, detail, took))
        return found


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "read": Bench.read,
    "read-own": Bench.read_own,
    "stream": Bench.stream,
    "write": Bench.write,
    "write-own": Bench.write_own,
    "tiny": Bench.tiny,
    "range": Bench.range,
    "memory": Bench.memory,
    "shapes": Bench.shapes,
}


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], epilog=f"cases: {', '.join(CASES)}"
    )
    parser.add_argument("--rows", type=int, help="that are read; a third of them is written; 3,000,000")
    parser.add_argument("--runs", type=int, help="that count; 5")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, and two runs")
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas between them")
    parser.add_argument("--secured", action="store_true", help="connect by SASL_SSL")
    parser.add_argument("--spark-python", default="", help="the Python of a Spark 4.2 or newer")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    found = parser.parse_args(words)
    found.rows = found.rows or (600_000 if found.quick else 3_000_000)
    found.runs = found.runs or (2 if found.quick else 5)
    found.only = [name for name in found.only.split(",") if name]
    unknown = [name for name in found.only if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    return found


def main() -> int:
    """Run the cases; print the table, and what was found as JSON."""
    arguments = options_of()
    missing = [name for name in ("KAFKA_JARS", "SPARK_KAFKA_JARS") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"set {' and '.join(missing)}: see the head of this file")
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
    print("| Case | What | Figure | Goal | | Rates and processor time a row (JVM + Python) |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())
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
