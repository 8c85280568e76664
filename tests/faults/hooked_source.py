"""Our source with named places where a test may kill its process, or hold it until the driver is killed.

A directory of the test says what is to happen, in its file ``armed``: JSON with the ``hook``, how often it is
passed before (``skip``), and the ``victim``: ``python`` for the process that gets there, ``driver`` for one
that stops there and waits for the end of the JVM ``jvm`` (or, in the process ``driver``, for its own). Only
the first to get there does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_minikafka.reading import stream
from pyspark_minikafka.source import MinikafkaSource

RUNNER_HOOKS = (
    "before initialOffset",
    "after initialOffset",
    "before latestOffset",
    "after latestOffset",  # and so before the write of the offset log
    "before planning",
    "after planning",
    "before commit()",
    "after commit()",
)
TASK_HOOKS = ("task begins", "task has sent rows", "task ends")


def append(path: Path, text: str) -> int:
    """Append to a file of several processes. Return its size."""
    with path.open("ab", buffering=0) as file:
        file.write(text.encode())
        return file.tell()


def keep_batch(directory: Path, number: int, rows: object) -> None:
    """Put the rows of a batch into a file; the file ``wrong`` tells if the batch had others before."""
    path, text = directory / f"batch-{number}", json.dumps(rows)
    if path.exists() and path.read_text() != text:
        append(directory / "wrong", f"batch {number} had {path.read_text()}, and again {text}\n")
    new = directory / f"new-{number}"
    new.write_text(text)
    new.rename(path)


def reach(directory: str, hook: str) -> None:
    """Execute the kill that is armed for ``hook``."""
    folder = Path(directory)
    try:
        armed = json.loads((folder / "armed").read_text())
    except FileNotFoundError:
        return
    if armed["hook"] != hook or append(folder / "passed", ".") <= armed["skip"]:
        return
    with contextlib.suppress(FileNotFoundError):
        (folder / "armed").rename(folder / "fired")
        if armed["victim"] == "python":
            append(folder.parent / "hits", f"python: {hook}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / "held").touch()
        while is_alive(armed["jvm"]) or os.getpid() == armed["driver"]:
            time.sleep(0.05)
        os._exit(1)


def is_alive(pid: int) -> bool:
    """Return True if a process runs and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class _Hooked(DataSourceStreamReader):
    hooks: str

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        reach(self.hooks, "before initialOffset")
        offset = super().initialOffset()
        reach(self.hooks, "after initialOffset")
        return offset

    def latestOffset(self, *start_and_limit: Any) -> dict[str, Any]:  # noqa: N802
        reach(self.hooks, "before latestOffset")
        offset = super().latestOffset(*start_and_limit)
        reach(self.hooks, "after latestOffset")
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        reach(self.hooks, "before planning")
        tasks = super().partitions(start, end)
        reach(self.hooks, "after planning")
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        reach(self.hooks, "task begins")
        for batch in super().read(partition):
            yield batch
            reach(self.hooks, "task has sent rows")
        reach(self.hooks, "task ends")

    def commit(self, end: dict[str, Any]) -> None:
        reach(self.hooks, "before commit()")
        super().commit(end)
        reach(self.hooks, "after commit()")


class _HookedUnlimited(_Hooked, stream.UnlimitedReader):
    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark looks at the number of parameters
        return super().latestOffset()


if stream.HAS_LIMITS:

    class _HookedLimited(_Hooked, stream.LimitedReader):
        pass


class HookedSource(MinikafkaSource):
    """``minikafka-hooked``; the option ``hooks`` names the directory."""

    @classmethod
    def name(cls) -> str:
        return "minikafka-hooked"

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        reader: Any = super().streamReader(schema)
        reader.__class__ = _HookedLimited if stream.HAS_LIMITS else _HookedUnlimited
        reader.hooks = self.options["hooks"]
        return reader
