"""A Spark session in its own process, which runs the commands of ``spark_bench.py``.

One line of JSON in, one out: ``{"do": NAME, …}`` gives ``{"result": …, "seconds": …, "jvm": …, "python":
…}``, the last two being the processor seconds (user and system) of the JVM and of all Python processes below
it (one that ended meanwhile is left out). They are found in ``/proc``, so this runs on Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc
import pyspark
from pyspark.sql import SparkSession
from spark_sources import PARTITIONS, Counting, Ready, Saved, Trivial

import pyspark_minikafka  # noqa: F401  # first: Spark then looks for sources with this very Python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

HASH_CHARACTERS = 128
"""Of one SHA-512, in hexadecimal."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Side:
    """The commands. Each public method is one."""

    def __init__(self, jars: str) -> None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]")
        for name, value in {
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "2g",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": str(PARTITIONS),
        }.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        for source in (Trivial, Ready, Saved, Counting):
            self._spark.dataSource.register(source)
        self._frame: DataFrame | None = None
        self._query: StreamingQuery | None = None

    def version(self) -> str:
        """Of Spark."""
        return pyspark.__version__

    def read(self, source: str, options: dict[str, str], columns: Sequence[str] = ("*",)) -> None:
        """A batch read of some expressions into ``noop``."""
        self._load(source, options).selectExpr(*columns).write.format("noop").mode("overwrite").save()

    def save(self, source: str, options: dict[str, str], columns: list[str], rows: int, file: str) -> None:
        """Save the first ``rows`` of a read for the source "saved", as one record batch."""
        table = self._load(source, options).selectExpr(*columns).limit(rows).toArrow().combine_chunks()
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def rows(self, source: str, options: dict[str, str]) -> int:
        """A batch read whose rows are taken to the driver: how many they are."""
        return len(self._load(source, options).collect())

    def checksum(self, source: str, options: dict[str, str], columns: list[str]) -> tuple[int, str]:
        """Rows, and a sum of hashes over ``columns``."""
        hashed = f"xxhash64({', '.join(columns)})"
        row = self._load(source, options).selectExpr("count(*)", f"sum(cast({hashed} AS decimal(38, 0)))")
        count, total = row.collect()[0]
        return int(count), str(total)

    def frame(self, rows: int, value_bytes: int, keys: bool) -> None:
        """Make and keep the rows that ``write`` writes: hexadecimal digits, and numbers for keys."""
        parts = min(8, -(-value_bytes // HASH_CHARACTERS))
        once = f"concat({', '.join(f'sha2(cast(id * 8 + {part} AS string), 512)' for part in range(parts))})"
        times = -(-value_bytes // (parts * HASH_CHARACTERS))
        columns = [f"cast(substr(repeat({once}, {times}), 1, {value_bytes}) AS binary) AS value"]
        if keys:
            columns.append("cast(cast(id AS string) AS binary) AS key")
        self.frame_of(rows, columns)

    def frame_of(self, rows: int, columns: Sequence[str]) -> None:
        """Make and keep rows of some expressions of ``id``, for ``write``."""
        if self._frame is not None:
            self._frame.unpersist(blocking=True)
        self._frame = self._spark.range(0, rows, 1, PARTITIONS).selectExpr(*columns).cache()
        self._frame.count()

    def written(self, columns: list[str]) -> tuple[int, str]:
        """Return the ``checksum`` of the rows of ``frame``."""
        assert self._frame is not None
        hashed = f"sum(cast(xxhash64({', '.join(columns)}) AS decimal(38, 0)))"
        count, total = self._frame.selectExpr("count(*)", hashed).collect()[0]
        return int(count), str(total)

    def write(self, source: str, options: dict[str, str], columns: Sequence[str] = ("*",)) -> None:
        """Append some expressions of the rows that ``frame`` made."""
        assert self._frame is not None
        self._frame.selectExpr(*columns).write.format(source).mode("append").options(**options).save()

    def stream(self, source: str, options: dict[str, str]) -> tuple[int, int]:
        """A stream into ``noop`` until all is read: rows, and batches that had some."""
        checkpoint = tempfile.mkdtemp(prefix="minikafka-bench-")
        try:
            writer = self._load_stream(source, options).writeStream.format("noop")
            writer = writer.option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            counts = [progress["numInputRows"] for progress in query.recentProgress]
            return sum(counts), sum(1 for count in counts if count)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def copy(self, source: str, options: dict[str, str], sink: str, sink_options: dict[str, str]) -> None:
        """A stream into another sink until all is read."""
        checkpoint = tempfile.mkdtemp(prefix="minikafka-bench-")
        try:
            writer = self._load_stream(source, options).select("value").writeStream.format(sink)
            writer = writer.options(**sink_options).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def start(self, source: str, options: dict[str, str]) -> None:
        """Start a stream into ``noop``; ``trigger`` runs its batches, and ``stop`` ends it."""
        self._checkpoint = tempfile.mkdtemp(prefix="minikafka-bench-")
        writer = self._load_stream(source, options).writeStream
        self._query = writer.format("noop").option("checkpointLocation", self._checkpoint).start()
        self._query.processAllAvailable()

    def trigger(self, rows: int) -> float:
        """Wait until all that came was read: the seconds of the last batch, which must have had the rows."""
        assert self._query is not None
        self._query.processAllAvailable()
        last = next(batch for batch in reversed(self._query.recentProgress) if batch["numInputRows"])
        if last["numInputRows"] != rows:
            raise ValueError(f"{last['numInputRows']} rows in a batch, {rows} were wanted")
        return float(last["durationMs"]["triggerExecution"]) / 1_000

    def stop(self) -> None:
        """End the stream."""
        assert self._query is not None
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def micro_batches(self, source: str, options: dict[str, str], rows: int) -> int:
        """A stream into ``noop`` until ``rows`` were read: the number of batches."""
        checkpoint = tempfile.mkdtemp(prefix="minikafka-bench-")
        try:
            writer = self._load_stream(source, options).writeStream.format("noop")
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                while sum(progress["numInputRows"] for progress in query.recentProgress) < rows:
                    if query.exception() is not None:
                        query.awaitTermination()
                    time.sleep(0.02)
                return sum(1 for progress in query.recentProgress if progress["numInputRows"])
            finally:
                query.stop()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def memory(self) -> dict[str, int]:
        """Peak resident bytes (``VmHWM``): the largest process that ran tasks, and the largest planner."""
        found = {"worker": 0, "planner": 0}
        processes = _below(os.getpid())
        for pid, (parent, words) in processes.items():
            if "pyspark.daemon" in words and "pyspark.daemon" in processes.get(parent, (0, ()))[1]:
                kind = "worker" if "pyspark.worker" in words else "planner"
                found[kind] = max(found[kind], _peak_bytes(pid))
        return found

    def _load_stream(self, source: str, options: dict[str, str]) -> DataFrame:
        return self._spark.readStream.format(source).options(**options).load()

    def _load(self, source: str, options: dict[str, str]) -> DataFrame:
        return self._spark.read.format(source).options(**options).load()


def _below(root: int) -> dict[int, tuple[int, tuple[str, ...]]]:
    """All processes below ``root``: their parents and command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found: dict[int, tuple[int, tuple[str, ...]]] = {}
    newer = {root}
    while newer:
        newer = {pid for pid, parent in parents.items() if parent in newer}
        for pid in newer:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                found[pid] = (parents[pid], tuple(words))
    return found


def _stat(pid: int) -> list[str]:
    """``/proc/PID/stat`` from the state on: the name before it may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _peak_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def processor_ticks() -> dict[int, tuple[str, int]]:
    """Return the processor ticks of the JVM and each Python process below it, by process."""
    found: dict[int, tuple[str, int]] = {}
    for pid, (_, words) in _below(os.getpid()).items():
        with contextlib.suppress(OSError):
            user, system = (int(ticks) for ticks in _stat(pid)[11:13])
            found[pid] = ("jvm" if words[0].endswith("java") else "python", user + system)
    return found


def answer(side: Side, command: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command."""
    method: Callable[..., Any] = getattr(side, command.pop("do"))
    before, began = processor_ticks(), time.monotonic()
    try:
        result = method(**command)
    except Exception:  # noqa: BLE001  # whatever it is, the one who asked gets it
        return {"error": traceback.format_exc()}
    seconds = time.monotonic() - began
    used = {"jvm": 0.0, "python": 0.0}
    for pid, (kind, ticks) in processor_ticks().items():
        used[kind] += (ticks - before.get(pid, (kind, 0))[1]) / _TICKS
    return {"result": result, "seconds": seconds} | used


def main() -> int:
    """Serve until the input ends."""
    # Spark and its workers write to standard output too: it becomes standard error for them.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = Side(sys.argv[1] if len(sys.argv) > 1 else "")
    for line in sys.stdin:
        print(json.dumps(answer(side, json.loads(line))), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
