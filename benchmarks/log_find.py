"""Finding an offset in a log of 1,000 segments: microseconds a look-up at random offsets.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_find.py [--runs N] [--segments N] [--segment-kb KB]

A look-up is the whole of ``Log.read(offset, 1, at_least_one=False)``: the bounds, the segment that holds the
offset, the last entry of its offset index before it, and the headers from there on up to the entry of that
offset, which are read from the file (one system call, from the page cache); then a slice of one byte from
there is made, and not read. Indexes are in memory. The peer is the same call of 0.10.1.1, ``Log.read(offset,
1, None, minOneMessage=false)``, which also ends with a slice. The log has messages of 100 bytes, appended in
sets of 1 KiB: the peer makes at most one index entry a set, so both have the same, one in about 4.7 KB, and
17 headers are read in the middle. Before anything is timed, the message at each found position is looked at,
and the positions of both sides are compared. The goal: 20 µs of processor time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import log_common as common
import log_read
import numpy as np

from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints

FIGURES = [
    common.Figure("microseconds a look-up, processor", "us", 20, more_is_better=False),
    common.Figure("microseconds a look-up, wall", "us", more_is_better=False),
]


def figures(count: int, cpu_s: float, wall_s: float) -> common.Figures:
    """Return the figures of a run."""
    values = (cpu_s / count * 1e6, wall_s / count * 1e6)
    return dict(zip((figure.name for figure in FIGURES), values, strict=True))


def our_run(log: Log, offsets: list[int]) -> tuple[float, float]:
    """Processor and wall seconds for all look-ups."""
    read = log.read
    watch = common.Stopwatch()
    for offset in offsets:
        read(offset, 1, at_least_one=False)
    return watch.read()


def checked(log: Log, offsets: list[int]) -> int:
    """The sum of the positions; at each lies the message that was asked for."""
    total = 0
    for offset in offsets:
        found = log.read(offset, 1, at_least_one=False)
        assert found.slice is not None
        assert found.first_offset == offset
        stored = found.slice.file.read_at(found.slice.position, 8)
        assert int.from_bytes(stored, "big") == offset
        total += found.slice.position
    return total


def made(bench: common.Bench, path: Path) -> Log:
    """The log, opened again, with its indexes in memory."""
    options = bench.options
    config = LogConfig(segment_bytes=options.segment_kb << 10)
    log = common.open_log(path, config)
    sets, limits = common.message_sets(64, set_bytes=1024), common.limits_of(config)
    number = 0
    while len(log.segments) <= options.segments:
        common.append(log, sets[number % len(sets)], limits)
        number += 1
    log.truncate_to(log.segments[-1].base_offset)
    log.close()
    log = common.open_log(path, config, LoadHints(clean=True))
    for segment in log.segments:
        segment.load_indexes()
    return log


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the log, and check."""
    peer, count = bench.peer, bench.options.lookups
    path, copy = bench.directory / "ours" / "run-0", bench.directory / "peer" / "run-0"
    log = made(bench, path)
    log_read.linked(path, copy)
    common.mark_clean(copy.parent)
    chosen = np.random.default_rng(2).integers(0, log.end_offset, count)
    wanted = bench.directory / "offsets"
    wanted.write_bytes(chosen.astype(">i8").tobytes())
    offsets: list[int] = chosen.tolist()
    positions = checked(log, offsets)
    if peer is not None:
        assert peer.call("find", copy, wanted)["positions"] == positions

    def ours() -> common.Figures:
        return figures(count, *our_run(log, offsets))

    def theirs() -> common.Figures:
        assert peer is not None
        found = peer.call("find", copy, wanted)
        return figures(count, found["cpu_s"], found["wall_s"])

    yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--segments", type=int, default=1_000)
    parser.add_argument("--segment-kb", type=int, default=256)
    parser.add_argument("--lookups", type=int, default=100_000, help="in each run")
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
