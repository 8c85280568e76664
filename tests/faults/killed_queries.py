"""``killed_queries.py DIRECTORY SERVERS SEED CASES TOPIC…``: kills and restarts streaming queries.

Each topic has one query at a time; a query with its checkpoint is a case. During a case Python processes are
killed, then the driver, then Python processes again; at the end the sink must have every record once. All
state is in files, so that the same command continues after a kill of the driver, until it ends with 0.

The driver is killed when the query of every topic waits at the hook of its case. One query waits at no hook:
the kill happens when Spark writes a file of its checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import pyspark_minikafka  # noqa: F401  # sets PYSPARK_PYTHON
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.reading import stream
from tests.faults.hooked_source import RUNNER_HOOKS, TASK_HOOKS, HookedSource, append, keep_batch, reach

SINK_HOOKS = ("sink has written",)  # and so before the write of the commit log
FILES = {"offset log written": "offsets", "commit log written": "commits"}
PYTHON_HOOKS = RUNNER_HOOKS + TASK_HOOKS
DRIVER_HOOKS = PYTHON_HOOKS + SINK_HOOKS
PARTITIONS = 2
PATIENCE_S = 180


@dataclass(frozen=True)
class Kill:
    """One kill: the victim and its hook."""

    victim: str
    hook: str
    skip: int


def plan(seed: int, slot: int, case: int, slots: int) -> list[Kill]:
    """Return the kills of a case. Hooks take turns; the number of passes before the kill is random."""
    chance = random.Random(f"{seed} {slot} {case}")

    def at(victim: str, hooks: tuple[str, ...], turn: int) -> Kill:
        return Kill(victim, hooks[(turn + seed) % len(hooks)], chance.randrange(4))

    if slot == 0:
        driver = at("file", tuple(FILES), case)
    else:
        driver = at("driver", DRIVER_HOOKS, case * (slots - 1) + slot - 1)
    turn = (case * slots + slot) * 2
    kills = [at("python", PYTHON_HOOKS, turn), driver, at("python", PYTHON_HOOKS, turn + 1)]
    # ``initialOffset`` is only called before the first batch is planned; so these kills come first.
    begins = [replace(kill, skip=0) for kill in kills if "initialOffset" in kill.hook]
    return begins + [kill for kill in kills if "initialOffset" not in kill.hook]


def numbers(folder: Path) -> set[int]:
    """Return the batches that have a file in a log of the checkpoint."""
    return {int(name) for name in (os.listdir(folder) if folder.exists() else []) if name.isdecimal()}


class Case:
    """One query with its checkpoint."""

    def __init__(self, slot: Slot, number: int) -> None:
        self.slot = slot
        self.directory = slot.directory / f"case-{number}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.checkpoint = self.directory / "checkpoint"
        self.chance = random.Random(f"{slot.all.seed} {slot.number} {number}")
        self._query: StreamingQuery | None = None
        options = {"startingOffsets": self.chance.choice(["earliest", "latest"])}
        if self.chance.random() < 0.5 and stream.HAS_LIMITS:
            options["maxOffsetsPerTrigger"] = "100"
        self.options = options

    def go(self, kills: list[Kill]) -> str:
        """Execute the remaining kills, then read everything. Return the problem, or an empty text."""
        progress = self.directory / "progress"
        struck = progress.stat().st_size if progress.exists() else 0
        for kill in kills[struck:]:
            self._strike(kill, lambda: append(progress, "x"))
        for name in ("armed", "fired", "held", "passed"):
            (self.directory / name).unlink(missing_ok=True)
        ends = self.slot.ends()
        self._until(lambda: all(self.committed().get(tp, 0) >= end for tp, end in ends.items()))
        self.query().stop()
        return self.wrong()

    def query(self) -> StreamingQuery:
        """Return the running query, started if it does not run."""
        if self._query is None or not self._query.isActive:
            self.slot.all.look_at(self._query)
            reader = self.slot.all.spark.readStream.format("minikafka-hooked").options(**self.options)
            reader = reader.option("kafka.bootstrap.servers", self.slot.all.servers)
            frame = reader.option("subscribe", self.slot.topic).option("hooks", str(self.directory)).load()
            writer = frame.writeStream.foreachBatch(self._write)
            self._query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        return self._query

    def committed(self) -> dict[TopicPartition, int]:
        """Return the query's position in its checkpoint."""
        done = numbers(self.checkpoint / "commits")
        return self._offset(max(done)) if done else {}

    def wrong(self) -> str:
        """Compare the sink with the topic. Return the difference, or an empty text."""
        found = self.directory / "wrong"
        if found.exists():
            return found.read_text()
        last = max(numbers(self.checkpoint / "commits"))
        came: Counter[tuple[int, int]] = Counter()
        for number in range(last + 1):
            came.update(tuple(pair) for pair in json.loads((self.directory / f"batch-{number}").read_text()))
        begin, end = self._start(), self._offset(last)
        if self.options["startingOffsets"] == "earliest" and any(begin.values()):
            return f"begins at {begin}"
        expected = Counter((tp.partition, o) for tp in end for o in range(begin.get(tp, 0), end[tp]))
        return "" if came == expected else f"lost {expected - came}, repeated {came - expected}"

    def _strike(self, kill: Kill, done: Callable[[], object]) -> None:
        """Execute a kill. Returns after a kill of Python, or if the hook was not reached; else never."""
        self._arm(kill)
        self.query()
        if kill.victim == "file":
            self.slot.watch(self, kill, done)
            return
        deadline = time.monotonic() + PATIENCE_S
        while not (self.directory / "fired").exists() and time.monotonic() < deadline:
            self.query()
            time.sleep(0.02)
        reached = (self.directory / "fired").exists()
        if reached and kill.victim == "driver":
            self.slot.hold(kill, done)
        if not reached:
            append(self.directory.parent / "misses", f"{kill}\n")
        done()

    def _arm(self, kill: Kill) -> None:
        for name in ("fired", "held", "passed"):
            (self.directory / name).unlink(missing_ok=True)
        if kill.victim != "file":
            armed = {**asdict(kill), "jvm": self.slot.all.jvm, "driver": os.getpid()}
            new = self.directory / "armed.new"
            new.write_text(json.dumps(armed))
            new.rename(self.directory / "armed")

    def _write(self, frame: DataFrame, number: int) -> None:
        rows = sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())
        keep_batch(self.directory, number, rows)
        reach(str(self.directory), "sink has written")

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S * 3
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.directory}: nothing more comes after {self.committed()}")
            self.query()
            time.sleep(0.05)

    def _end(self, batch: int) -> StreamOffset:
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return StreamOffset.from_json(json.loads(text.splitlines()[2]))

    def _offset(self, batch: int) -> dict[TopicPartition, int]:
        return dict(self._end(batch).positions)

    def _start(self) -> dict[TopicPartition, int]:
        start = self._end(0).batch_start
        assert start is not None
        return dict(start)


class Slot:
    """A topic and its cases, in sequence, on a thread."""

    def __init__(self, everything: Everything, number: int, topic: str) -> None:
        self.all = everything
        self.number = number
        self.topic = topic
        self.directory = everything.directory / f"slot-{number}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.waits = threading.Event()
        """Set when this query is ready for the kill of the driver."""
        self._admin = Admin(ClusterClient(everything.servers))

    def run(self) -> None:
        """Run the remaining cases."""
        results = self.directory / "results"
        first = len(results.read_text().splitlines()) if results.exists() else 0
        for number in range(first, self.all.cases):
            case = Case(self, number)
            wrong = case.go(plan(self.all.seed, self.number, number, self.all.slots))
            append(results, f"case {number}: {wrong or 'right'}".replace("\n", " ") + "\n")
        self.waits.set()

    def ends(self) -> dict[TopicPartition, int]:
        """Return the current end offsets of the topic."""
        wanted = {TopicPartition(self.topic, number): LATEST for number in range(PARTITIONS)}
        return {tp: end or 0 for tp, end in self._admin.offsets(wanted).items()}

    def hold(self, kill: Kill, done: Callable[[], object]) -> None:
        """Wait for the kill of the driver."""
        done()
        append(self.directory / "hits", f"driver: {kill.hook}\n")
        self.waits.set()
        threading.Event().wait()

    def watch(self, case: Case, kill: Kill, done: Callable[[], object]) -> None:
        """Kill the driver when Spark has written a file, once all other queries are ready."""
        self.waits.set()
        while not self.all.all_wait():
            time.sleep(0.02)
        folder = case.checkpoint / FILES[kill.hook]
        case.query()
        known = numbers(folder)
        deadline = time.monotonic() + PATIENCE_S
        while numbers(folder) == known and time.monotonic() < deadline:
            case.query()
        if numbers(folder) != known:
            append(self.directory / "hits", f"driver: {kill.hook}\n")
        done()
        self.all.die()


class Everything:
    """The session and all slots."""

    def __init__(self, directory: str, servers: str, seed: str, cases: str, *topics: str) -> None:
        self.directory = Path(directory)
        self.servers = servers
        self.seed = int(seed)
        self.cases = int(cases)
        self.slots = len(topics)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "OFF",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(self.directory / "scratch"),
            "spark.sql.streaming.minBatchesToRetain": "100000",
        }
        # A killed task is retried. Each waiting task needs a core.
        builder = SparkSession.builder.master(f"local[{len(topics) * PARTITIONS + 2},4]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.dataSource.register(HookedSource)
        context: Any = self.spark.sparkContext
        self.jvm = int(context._jvm.java.lang.ProcessHandle.current().pid())
        self._slots = [Slot(self, number, topic) for number, topic in enumerate(topics)]
        self._failed: list[BaseException] = []

    def run(self) -> None:
        """Run all slots to their end, or until the kill."""
        threads = [threading.Thread(target=self._guarded, args=(slot,), daemon=True) for slot in self._slots]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not self._failed:
            if not threads[0].is_alive() and self.all_wait():
                self.die()
            time.sleep(0.05)
        if self._failed:
            raise self._failed[0]
        self.spark.stop()

    def all_wait(self) -> bool:
        """Return True if every query is ready for the kill of the driver."""
        return all(slot.waits.is_set() for slot in self._slots)

    def look_at(self, ended: StreamingQuery | None) -> None:
        """Kill the session if Spark has broken it; the test counts how often.

        Queries of one source share a ``java.util.HashMap`` in the driver, the environment of its Python
        processes, and Spark writes to it without a lock when a query starts. If the first two queries of a
        session do so at once, the map counts more entries than it has; every task of every query contains it,
        and none can be deserialized (``java.io.OptionalDataException``). Only a new session helps.
        """
        problem = str(ended.exception()) if ended is not None else ""
        if "OptionalDataException" in problem:
            append(self.directory / "broken", "x")
            self.die()

    def die(self) -> None:
        """Kill the JVM and this process."""
        os.kill(self.jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _guarded(self, slot: Slot) -> None:
        try:
            slot.run()
        except BaseException as problem:  # noqa: BLE001  # raised again by whoever waits
            self._failed.append(problem)


if __name__ == "__main__":
    Everything(*sys.argv[1:]).run()
