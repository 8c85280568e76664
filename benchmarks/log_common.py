"""The common parts of the storage benchmarks: message sets, the peer's JVM, and the report.

The peer is Apache Kafka 0.10.1.1's own code in a JVM of its own, ``java/Peer.java``, which takes a command a
line. The environment names its jars; without them only our side is measured, and a line says what to set.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import minikafka
from minikafka.base.errors import ConfigError
from minikafka.base.files import RealFiles
from minikafka.embedded.java import find_java
from minikafka.log.config import LogConfig
from minikafka.log.layout import CLEAN_SHUTDOWN_FILE, Layout
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import prepare, validate
from minikafka.records.columns import encode
from minikafka.records.format.message_set import Codec

VALUE_BYTES = 100
SET_BYTES = 64 << 10
EVER = 1 << 62

PEER_VARIABLE = "MINIKAFKA_KAFKA_LIBS"
PEER_JAR = "kafka_2.11-0.10.1.1.jar"
QUIET = "log4j.rootLogger=WARN, e\nlog4j.appender.e=org.apache.log4j.ConsoleAppender\n"
QUIET += "log4j.appender.e.target=System.err\nlog4j.appender.e.layout=org.apache.log4j.SimpleLayout\n"

Figures = dict[str, float]
Run = Callable[[], Figures]
"""One run of a side: the name of a figure to its value."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure. ``goal`` is its minimum, or its maximum unless ``more_is_better``."""

    name: str
    unit: str
    goal: float | None = None
    more_is_better: bool = True

    def met(self, value: float) -> bool:
        """True if the goal is reached."""
        assert self.goal is not None
        return value >= self.goal if self.more_is_better else value <= self.goal

    def ratio(self, ours: float, peer: float) -> float:
        """The ratio to the peer; more is better."""
        return ours / peer if self.more_is_better else peer / ours


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark at work: its options, an empty directory, and the peer where there is one."""

    options: argparse.Namespace
    directory: Path
    peer: Peer | None


Sides = Callable[[Bench], AbstractContextManager[tuple[Run, Run | None]]]
"""Prepares and checks both sides; gives a run of ours, and of the peer."""


# Messages and logs.


def message_bytes(key_bytes: int = 0) -> int:
    """Of a message of magic 1 with 100 bytes of value, in the log."""
    return 34 + key_bytes + VALUE_BYTES


def message_sets(count: int, set_bytes: int = SET_BYTES, keys: pa.Array | None = None) -> list[bytearray]:
    """``count`` message sets of magic 1, uncompressed, as full of messages as ``set_bytes`` allows.

    Values are random. ``keys``: one for each message, all of one length.
    """
    key_bytes = 0 if keys is None else len(keys[0].as_py())
    each = set_bytes // message_bytes(key_bytes)
    messages = count * each if keys is None else len(keys)
    data = np.random.default_rng(1).bytes(messages * VALUE_BYTES)
    ends = np.arange(messages + 1, dtype=np.int32) * VALUE_BYTES
    values = pa.Array.from_buffers(pa.binary(), messages, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    no_keys = pa.nulls(messages, pa.binary())
    times = np.arange(messages, dtype=np.int64) // 1_000 + time.time_ns() // 1_000_000
    rows = np.arange(messages, dtype=np.int64)
    sets = encode(
        no_keys if keys is None else keys, values, times, rows, magic=1, codec=Codec.NONE, max_bytes=set_bytes
    )
    return [bytearray(batch.data) for batch in sets]


def open_log(path: Path, config: LogConfig, known: LoadHints | None = None) -> Log:
    """A log as the broker opens it, with the release's names, so that the peer can open it too."""
    return Log.open(
        RealFiles(), str(path), config, Layout.APACHE, known or LoadHints(), new_mutex=threading.Lock
    )


def limits_of(config: LogConfig) -> Limits:
    """Return the limits of a produce request with a topic's defaults."""
    return Limits(
        max_message_bytes=config.max_message_bytes, timestamp_type=config.message_timestamp_type, magic=1
    )


def append(log: Log, data: bytearray, limits: Limits) -> None:
    """Append one produced set to a log, as the broker does between the request and its response."""
    now_ms = time.time_ns() // 1_000_000
    valid = prepare(validate(data, limits, now_ms), log.end_offset)
    log.append(valid, now_ms=now_ms)


def fill(log: Log, sets: list[bytearray], total_bytes: int) -> None:
    """Append the sets, round and round, until another one would exceed ``total_bytes``."""
    limits, size = limits_of(log.config), 0
    while True:
        for batch in sets:
            size += len(batch)
            if size > total_bytes:
                return
            append(log, batch, limits)


def mark_clean(directory: Path) -> None:
    """Have the logs in a data directory opened without recovery, by either side."""
    (directory / CLEAN_SHUTDOWN_FILE).touch()


def write_back() -> None:
    """Have the system write what runs have left, so that it does not disturb the next one."""
    os.sync()


class Stopwatch:
    """Wall time and processor time of this thread, in seconds, from its making."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter_ns(), time.thread_time_ns()

    def read(self) -> tuple[float, float]:
        """(processor, wall)."""
        cpu = time.thread_time_ns() - self._cpu
        return cpu / 1e9, (time.perf_counter_ns() - self._wall) / 1e9


# The peer.


class Peer:
    """Kafka 0.10.1.1 in a JVM that runs until ``stop``."""

    def __init__(self, libs: Path, directory: Path) -> None:
        java = find_java().path
        javac = shutil.which("javac", path=os.path.dirname(os.path.realpath(java))) or shutil.which("javac")
        if javac is None:
            raise SystemExit(f"the peer has to be compiled: install a JDK, {java} comes without javac")
        classes = directory / "classes"
        classes.mkdir()
        (classes / "log4j.properties").write_text(QUIET)
        path = f"{classes}{os.pathsep}{libs}/*"
        source = Path(__file__).parent / "java" / "Peer.java"
        subprocess.run([javac, "-nowarn", "-cp", path, "-d", str(classes), str(source)], check=True)
        self._errors = directory / "peer.txt"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [java, "-Xmx1g", "-cp", path, "Peer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=directory,
            )

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def call(self, command: str, *arguments: object) -> Figures:
        """Have the peer do something; what it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([command, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.startswith("ok"):
            raise SystemExit(f"the peer failed: {command}: {answer}{self._errors.read_text()[-2_000:]}")
        pairs = (pair.split("=") for pair in answer.split()[1:])
        return {name: float(value) for name, value in pairs}

    def stop(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def peer_libs() -> Path | None:
    """The folder with the peer's jars; None where nobody gave one."""
    folder = Path(os.environ.get(PEER_VARIABLE) or os.devnull)
    return folder if (folder / PEER_JAR).exists() else None


# Measuring and reporting.


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--runs", type=int, default=5)
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--dir", help="where to make the temporary directory (default: the system's)")
    return made


def megabytes(text: str) -> int:
    """An option in MiB, as bytes."""
    return int(float(text) * (1 << 20))


def compare(options: argparse.Namespace, figures: Iterable[Figure], sides: Sides) -> int:
    """Prepare, run both sides in turns (once more than asked for: the first round warms up), and report."""
    # As Ctrl-C: what was made is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    libs = peer_libs()
    if libs is None:
        progress(
            f"without the peer: {PEER_VARIABLE} does not name a folder with the jars of Apache Kafka "
            f"0.10.1.1 ({PEER_JAR} and what it needs)"
        )
    found: dict[str, dict[str, list[float]]] = {"minikafka": {}, "peer": {}}
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="minikafka-bench-", dir=options.dir)
        directory = Path(stack.enter_context(made))
        peer = None
        if libs is not None:
            (directory / "peer").mkdir()
            peer = Peer(libs, directory / "peer")
            stack.callback(peer.stop)
        (directory / "logs").mkdir()
        ours, theirs = stack.enter_context(sides(Bench(options, directory / "logs", peer)))
        for round_number in range(options.runs + 1):
            for name, run in (("minikafka", ours), ("peer", theirs)):
                if run is None:
                    continue
                values = run()
                if round_number:
                    for figure, value in values.items():
                        found[name].setdefault(figure, []).append(value)
                progress(f"{f'run {round_number}' if round_number else 'warm-up'}: {name} {shown(values)}")
    report(options, list(figures), found)
    return 0


def progress(line: str) -> None:
    """Say how far it is."""
    print(f"  {line}", file=sys.stderr, flush=True)


def shown(values: Figures) -> str:
    """Figures in a line."""
    return ", ".join(f"{name} {number(value)}" for name, value in values.items())


def number(value: float) -> str:
    """Format a number with its significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def report(
    options: argparse.Namespace, figures: list[Figure], found: dict[str, dict[str, list[float]]]
) -> None:
    """Print what was found: medians, the ratio, and the goals."""
    rows = []
    for figure in figures:
        ours, peer = (found[side].get(figure.name) for side in ("minikafka", "peer"))
        if ours is None:
            continue
        row: dict[str, Any] = {"figure": figure.name, "unit": figure.unit}
        median = statistics.median(ours)
        row |= {"minikafka": median, "runs": ours}
        if peer is not None:
            theirs = statistics.median(peer)
            row |= {"peer": theirs, "peer_runs": peer, "ratio": figure.ratio(median, theirs)}
        if figure.goal is not None:
            row |= {"goal": figure.goal, "met": figure.met(median)}
        rows.append(row)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    if options.json:
        print(json.dumps({"machine": machine(), "command": command, "figures": rows}, indent=1))
        return
    for name, value in machine().items():
        print(f"{name:10} {value}")
    print(f"command    {command}; medians of {options.runs} runs")
    for figure, row in zip((f for f in figures if f.name in found["minikafka"]), rows, strict=True):
        print(_line(figure, row))


def _line(figure: Figure, row: dict[str, Any]) -> str:
    line = f"{figure.name:44}{number(row['minikafka']):>12} {figure.unit:8}"
    if "peer" in row:
        line += f"peer {number(row['peer']):>12}   {row['ratio']:6.2f} x"
    if figure.goal is not None:
        sign = ">=" if figure.more_is_better else "<="
        line += f"   goal {sign} {number(figure.goal)}: {'met' if row['met'] else 'MISSED'}"
    return line


def machine() -> dict[str, str]:
    """Describe the machine that the figures depend on."""
    processor = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    try:
        java = str(find_java().version)
    except ConfigError:
        java = "none"
    return {
        "processor": f"{processor}, {os.cpu_count()} cores",
        "system": platform.platform(),
        "minikafka": minikafka.__version__,
        "python": f"{platform.python_version()}, numba {version('numba')}, numpy {np.__version__}",
        "peer": f"Apache Kafka 0.10.1.1, Java {java}, -Xmx1g" if peer_libs() else "none",
    }


def tree_of(directory: Path) -> Iterator[tuple[str, bytes]]:
    """The segment files of a log, by name, with what is in them."""
    for path in sorted(directory.glob("*.log")):
        yield path.name, path.read_bytes()
