"""Opening a data directory that was closed: seconds for 2,000 partitions, and memory for each.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_open.py [--runs N] [--partitions N] [--segments N]

Each partition has three segments of 64 KiB with both indexes, the directory its clean-shutdown marker and
recovery points. Ours is ``LogManager.open_all``, with as many threads as the broker takes (one a processor),
in a fresh process each time that has opened one partition elsewhere before, so that code and kernels are
loaded. Memory a partition is the process's resident memory after minus before; then the indexes of the full
segments are read too, which otherwise waits for the first look-up. The peer is the constructor of 0.10.1.1's
``LogManager`` on a copy of the directory, with as many threads, in one JVM that stays: its seconds are those
of a warm JVM, its memory that of the first time. Closing is not timed. Checked each time: all partitions are
there, with all their messages. Goals: 5 s, and 50 KB a partition (10^3 bytes).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import log_common as common
import psutil

from minikafka.base.clock import SystemClock
from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.offset_checkpoint import write_checkpoint
from minikafka.log.config import LogConfig
from minikafka.log.layout import RECOVERY_POINT_FILE, Layout
from minikafka.log.manager import Jobs, LogManager

TOPIC = "run"
FIGURES = [
    common.Figure("seconds to open", "s", 5.0, more_is_better=False),
    common.Figure("processor seconds of the process", "s", more_is_better=False),
    common.Figure("resident KB a partition", "KB", 50, more_is_better=False),
    common.Figure("resident KB a partition, all indexes read", "KB", more_is_better=False),
]
_OPEN, _CPU, _MEMORY, _INDEXED = (figure.name for figure in FIGURES)


def manager_of(path: Path) -> LogManager:
    """Return a log manager with the broker's settings."""
    return LogManager(
        RealFiles(),
        [str(path)],
        LogConfig(),
        Layout.APACHE,
        SystemClock(),
        new_mutex=threading.Lock,
        run_all=_run_all,
    )


def _run_all(jobs: Jobs) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def open_once(path: Path, small: Path, answer: Connection) -> None:
    """In a process of its own: open, tell, and close."""
    first = manager_of(small)
    first.open_all()
    first.close()
    process = psutil.Process()
    before, used = process.memory_info().rss, sum(process.cpu_times()[:2])
    watch = common.Stopwatch()
    manager = manager_of(path)
    manager.open_all()
    wall_s = watch.read()[1]
    used = sum(process.cpu_times()[:2]) - used
    grown = process.memory_info().rss - before
    logs = manager.logs()
    for log in logs.values():
        for segment in log.segments:
            segment.load_indexes()
    indexed = process.memory_info().rss - before
    answer.send((wall_s, used, grown, indexed, len(logs), sum(log.end_offset for log in logs.values())))
    manager.close()


def our_run(path: Path, small: Path) -> tuple[float, float, int, int, int, int]:
    """Wall and processor seconds, bytes of memory (and with all indexes), logs, the sum of their ends."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=open_once, args=(path, small, there))
    process.start()
    there.close()
    try:
        found: tuple[float, float, int, int, int, int] = here.recv()
    finally:
        process.join()
    assert process.exitcode == 0
    return found


def made(path: Path, partitions: int, segments: int) -> int:
    """A data directory that was closed; where each log ends."""
    config = LogConfig(segment_bytes=common.SET_BYTES)
    log = common.open_log(path / f"{TOPIC}-0", config)
    common.fill(log, common.message_sets(8, set_bytes=8192), segments * common.SET_BYTES)
    log.close()
    assert len(log.segments) == segments
    assert all(segment.index() and segment.times() for segment in log.segments)
    for number in range(1, partitions):
        shutil.copytree(path / f"{TOPIC}-0", path / f"{TOPIC}-{number}")
    points = {TopicPartition(TOPIC, number): log.end_offset for number in range(partitions)}
    write_checkpoint(RealFiles(), str(path / RECOVERY_POINT_FILE), points)
    common.mark_clean(path)
    return log.end_offset


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the directories; every run is checked."""
    peer, partitions = bench.peer, bench.options.partitions
    path, copy, small = (bench.directory / name for name in ("ours", "peer", "small"))
    end_offset = made(path, partitions, bench.options.segments)
    made(small, 1, 1)
    if peer is not None:
        shutil.copytree(path, copy)
    common.write_back()
    expected = (partitions, partitions * end_offset)
    first_memory: list[float] = []

    def ours() -> common.Figures:
        wall_s, cpu_s, grown, indexed, *found = our_run(path, small)
        assert tuple(found) == expected
        memory = (grown / partitions / 1e3, indexed / partitions / 1e3)
        return {_OPEN: wall_s, _CPU: cpu_s, _MEMORY: memory[0], _INDEXED: memory[1]}

    def theirs() -> common.Figures:
        assert peer is not None
        process = psutil.Process(peer.pid)
        used = sum(process.cpu_times()[:2])
        found = peer.call("open", copy, os.cpu_count())
        used = sum(process.cpu_times()[:2]) - used
        assert (found["logs"], found["end_offsets"]) == expected
        first_memory.append((found["resident_after"] - found["resident_before"]) / partitions / 1e3)
        return {_OPEN: found["wall_s"], _CPU: used, _MEMORY: first_memory[0]}

    yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--segments", type=int, default=3, help="of each partition")
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
