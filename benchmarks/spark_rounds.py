"""Brokers, topics, Spark sessions, and rounds in which sides take turns: for ``spark_bench.py``'s cases."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokers import Security, apache_kafka, minikafka_broker
from kafka_fill import PARTITIONS, Shape, fill, make_topic

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OURS, PEER = "minikafka", "kafka"
"""The names of the formats."""


class Session:
    """A Spark of its own process."""

    def __init__(self, python: str, jars: str = "") -> None:
        environment = os.environ | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        # Workers import the module of a source.
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
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
    """Brokers, sessions and topics, and the rounds of a case."""

    def __init__(self, stack: contextlib.ExitStack, arguments: argparse.Namespace) -> None:
        self._stack = stack
        self.runs: int = arguments.runs
        self._spark_python: str = arguments.spark_python
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikafka-bench-")))
        """Files of the brokers and of the cases."""
        security = Security() if arguments.secured else None
        own = stack.enter_context(minikafka_broker(self.directory, {}, security))
        apache = stack.enter_context(apache_kafka(os.environ["KAFKA_JARS"], self.directory, security))
        self.own, self.apache = own.servers, apache.servers
        self._clients = {broker.servers: broker.client for broker in (own, apache)}
        found = sorted(Path(os.environ["SPARK_KAFKA_JARS"]).glob("*.jar"))
        self.jars = ",".join(str(path) for path in found)
        self.main = self._session(sys.executable)
        self._newest: Session | None = None
        self._filled: set[tuple[str, str]] = set()
        self.rows = arguments.rows // PARTITIONS * PARTITIONS
        self._topics = 0

    def _session(self, python: str, jars: bool = True) -> Session:
        session = Session(python, self.jars if jars else "")
        self._stack.callback(session.close)
        return session

    @property
    def newest(self) -> Session | None:
        """The session of ``--spark-python``."""
        if self._newest is None and self._spark_python:
            self._newest = self._session(self._spark_python, jars=False)
            # The other one has read all of it before it is timed, for the comparison.
            read = {"source": OURS, "options": self.reading(self.apache, self.rows_of(self.apache))}
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

    def rows_of(self, servers: str) -> str:
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
        for run in range((runs or self.runs) + 1):
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
        """A row that says how many times as many rows a second the first side has as the second; others are
        shown beside them.
        """
        return self.ratio(case, what, goal, rows, self.rounds(sides, runs or None))

    @staticmethod
    def ratio(
        case: str, what: str, goal: float | None, rows: int, found: Mapping[str, Mapping[str, float]]
    ) -> Row:
        """A row like that of ``against``, of sides that were measured."""
        texts = []
        for name, figures in found.items():
            rate = rows / figures["seconds"] / 1e6
            own, python = (figures[kind] / rows * 1e6 for kind in ("jvm", "python"))
            texts.append(f"{name} {rate:.2f} M/s ({own:.2f} + {python:.2f} µs)")
        ours, peer, *_ = (figures["seconds"] for figures in found.values())
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


def parser_of(head: str, cases: Iterable[str], rows_help: str) -> argparse.ArgumentParser:
    """Return the parser of what all scripts with rounds take. ``head``: the script's docstring."""
    parser = argparse.ArgumentParser(
        description=head.split("\n\n", maxsplit=1)[0], epilog=f"cases: {', '.join(cases)}"
    )
    parser.add_argument("--rows", type=int, help=rows_help)
    parser.add_argument("--runs", type=int, help="that count; 5")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, and two runs")
    parser.add_argument("--only", default=",".join(cases), help="cases, with commas between them")
    parser.add_argument("--secured", action="store_true", help="connect by SASL_SSL")
    parser.set_defaults(spark_python="")
    return parser


def parsed(
    parser: argparse.ArgumentParser, words: Sequence[str] | None, cases: Iterable[str], rows: int
) -> argparse.Namespace:
    """Parse ``words``, or the command line. ``rows``: by default."""
    found = parser.parse_args(words)
    found.rows = found.rows or (rows // 5 if found.quick else rows)
    found.runs = found.runs or (2 if found.quick else 5)
    found.only = [name for name in found.only.split(",") if name]
    unknown = [name for name in found.only if name not in cases]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}: there are {', '.join(cases)}")
    return found


def check_jars() -> None:
    """Stop unless the environment names the jars of the broker and of Spark's connector."""
    missing = [name for name in ("KAFKA_JARS", "SPARK_KAFKA_JARS") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"set {' and '.join(missing)}: see the head of this file")


def print_table(rows: Iterable[Row]) -> None:
    """Print the rows as a table in Markdown."""
    print("| Case | What | Figure | Goal | | Rates and processor time a row (JVM + Python) |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())
