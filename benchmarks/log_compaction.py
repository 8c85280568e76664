"""Compacting 1 GiB with a million keys: seconds, and what it costs appends to another log.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_compaction.py [--runs N] [--total-mb MB] [--keys N]

A log of 1 GiB in full segments of 128 MiB, in the page cache: messages with keys of 16 bytes and 100 bytes of
value (150 in the log) in sets of 64 KiB; every key comes as often as the others, in rounds of random order.
All of it is cleaned with 64 MB for the map of keys and no bound on the rate. Ours is
``log.cleanup.cleaner.Cleaner``, the peer 0.10.1.1's ``kafka.log.Cleaner`` with a dedupe buffer of 64 MB and
the release's defaults. Either makes the map, writes what stays, flushes it and puts it in the place of the
old segments, whose files are not removed within the time. Each run has fresh links to the same files. Goal:
30 s, by the wall.

Then the appends: 100-byte messages go to another log in the same process, as fast as one thread can validate
and append them, first alone and then while a cleaning runs in another thread. Goal: 80 % of the rate alone,
by the wall, which needs a core for each; the share by the appending thread's own processor time tells a lack
of cores from what the cleaning costs. Checked every time: what stays is just the last message of each key.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import log_common as common
import log_read
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.base.clock import SystemClock
from minikafka.base.files import RealFiles
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.records.compaction import OffsetMap

KEY_BYTES = 16
OTHER_BYTES = 1 << 28
"""The log that is appended to is begun anew when it has these."""

FIGURES = [
    common.Figure("seconds to clean", "s", 30, more_is_better=False),
    common.Figure("processor seconds of the cleaning thread", "s", more_is_better=False),
    common.Figure("percent of the appends while it runs", "%", 80),
    common.Figure("the same by the appending thread's processor", "%"),
    common.Figure("messages/s appended alone", "1/s"),
    common.Figure("messages/s appended while it runs", "1/s"),
]
_NAMES = tuple(figure.name for figure in FIGURES)


def clean(log: Log, memory_bytes: int) -> None:
    """Clean all full segments."""
    cleaner = Cleaner(RealFiles(), SystemClock(), OffsetMap(memory_bytes), lambda log, paths: None)
    done = cleaner.clean(log, log.start_offset, log.end_offset)
    assert done.end_offset == log.segments[-1].base_offset  # in one pass


def made(path: Path, options: Any, config: LogConfig) -> NDArray[np.int64]:
    """A log in full segments, closed; the offsets that stay."""
    source = np.random.default_rng(3)
    table = source.integers(0, 256, (options.keys, KEY_BYTES), dtype=np.uint8)
    left = options.total_mb // common.message_bytes(KEY_BYTES)
    last = np.full(options.keys, -1, dtype=np.int64)
    log = common.open_log(path, config)
    limits = common.limits_of(config)
    while left:
        chosen = source.permutation(options.keys)[:left]
        left -= len(chosen)
        last[chosen] = np.arange(len(chosen)) + log.end_offset
        ends = np.arange(len(chosen) + 1, dtype=np.int32) * KEY_BYTES
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(table[chosen].tobytes())]
        keys = pa.Array.from_buffers(pa.binary(), len(chosen), buffers)
        for batch in common.message_sets(0, keys=keys):
            common.append(log, batch, limits)
    log.roll()
    log.close()
    return np.sort(last[last >= 0])


def messages_of(path: Path) -> NDArray[np.uint8]:
    """All messages of a log, a row each: they are of one size."""
    data = b"".join(part for _, part in common.tree_of(path))
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, common.message_bytes(KEY_BYTES))


def rate(path: Path, sets: list[bytearray], go_on: Callable[[], bool]) -> tuple[float, float]:
    """Messages a second that another log takes while ``go_on`` says so, of the wall and of the processor."""
    most = OTHER_BYTES // len(sets[0])
    log = common.open_log(path, LogConfig())
    limits, count, watch = common.limits_of(log.config), 0, common.Stopwatch()
    while not count or go_on():
        if count % most == most - 1:
            log.abandon()
            shutil.rmtree(path)
            log = common.open_log(path, log.config)
        common.append(log, sets[count % len(sets)], limits)
        count += 1
    cpu_s, wall_s = watch.read()
    log.abandon()
    shutil.rmtree(path)
    messages = count * (len(sets[0]) // common.message_bytes())
    return messages / wall_s, messages / cpu_s


def rates(log: Log, options: Any, other: Path, sets: list[bytearray]) -> tuple[float, ...]:
    """Of the appends alone and while the log is cleaned, by the wall, and the same by the processor."""
    until = time.perf_counter() + options.alone_s
    alone = rate(other, sets, lambda: time.perf_counter() < until)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            clean(log, options.map_mb)
        except BaseException as error:
            failed.append(error)
            raise

    cleaning = threading.Thread(target=work)
    cleaning.start()
    beside = rate(other, sets, cleaning.is_alive)
    cleaning.join()
    assert not failed, failed
    return alone[0], beside[0], alone[1], beside[1]


def figures(
    cpu_s: float, wall_s: float, alone: float, beside: float, alone_cpu: float, beside_cpu: float
) -> common.Figures:
    """Return the figures of a run."""
    shares = (100 * beside / alone, 100 * beside_cpu / alone_cpu)
    return dict(zip(_NAMES, (wall_s, cpu_s, *shares, alone, beside), strict=True))


class Fresh:
    """Links to a log's files, again and again, so that each cleaning finds what the last one found."""

    def __init__(self, origin: Path, place: Path) -> None:
        self._origin, self._place = origin, place
        self.path = place / "run-0"

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A data directory that was closed, for one cleaning."""
        log_read.linked(self._origin, self.path)
        common.mark_clean(self._place)
        try:
            yield self.path
        finally:
            shutil.rmtree(self._place)


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the log, and check what stays of it."""
    options, peer, other = bench.options, bench.peer, bench.directory / "other-0"
    config = LogConfig(segment_bytes=options.segment_mb)
    origin, pool = bench.directory / "origin", bench.directory / "pool"
    fresh = Fresh(origin, bench.directory / "data")
    stays = made(origin, options, config)
    compacted = replace(config, compacted=True)
    sets = common.message_sets(256)
    pool.write_bytes(b"".join(sets))
    expected = messages_of(origin)[stays]
    words = (config.segment_bytes, options.map_mb)

    def ours() -> common.Figures:
        with fresh.copy() as path:
            common.write_back()
            log = common.open_log(path, compacted, LoadHints(clean=True))
            watch = common.Stopwatch()
            clean(log, options.map_mb)
            cpu_s, wall_s = watch.read()
            log.close()
            assert np.array_equal(messages_of(path), expected)
        with fresh.copy() as path:
            log = common.open_log(path, compacted, LoadHints(clean=True))
            found = rates(log, options, other, sets)
            log.close()
        return figures(cpu_s, wall_s, *found)

    def theirs() -> common.Figures:
        assert peer is not None
        with fresh.copy() as path:
            common.write_back()
            found = peer.call("clean", path, *words)
            assert np.array_equal(messages_of(path), expected)
        with fresh.copy() as path:
            more = (other, pool, len(sets[0]), OTHER_BYTES, options.alone_s)
            rate_of = peer.call("beside", path, *words, *more)
        each = len(sets[0]) // common.message_bytes()
        rates_of = (rate_of[name] * each for name in ("alone", "beside", "alone_cpu", "beside_cpu"))
        return figures(found["cpu_s"], found["wall_s"], *rates_of)

    yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--total-mb", type=common.megabytes, default=1 << 30)
    parser.add_argument("--segment-mb", type=common.megabytes, default=1 << 27)
    parser.add_argument("--map-mb", type=common.megabytes, default=64 << 20, help="for the map of keys")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--alone-s", type=float, default=5.0, help="how long appends are measured alone")
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
