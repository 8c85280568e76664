"""Appending to a log: messages a second of one core, validation included, into the page cache.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_append.py [--runs N] [--total-mb MB] [--segment-mb MB]

Messages of magic 1 with 100 bytes of value and no key (134 bytes in the log) in sets of 64 KiB. Ours is what
the broker does between a produce request and its answer: ``validate``, ``prepare`` and ``Log.append`` on real
files, with locks. The peer is ``kafka.log.Log.append(set, assignOffsets=true)`` of 0.10.1.1 on the same sets.
Neither flushes. The input, a pool of sets that is used round and round, is made before; each run fills a new
log over several segments and removes it afterwards. A second of one core is one of the appending thread's
processor time (collection and compilation, which the JVM does in other threads, are not counted); MB are 10^6
bytes of values, without the log's own 34 a message.

Before anything is timed, what was appended is read back and compared with the input, and the segments of both
sides with each other, byte for byte. Goals: 2 M messages/s and 200 MB/s of one core.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import log_common as common
import pyarrow as pa

from minikafka.log.config import LogConfig
from minikafka.records.columns import decode

FIGURES = [
    common.Figure("messages/s of one core", "1/s", 2e6),
    common.Figure("MB/s of one core", "MB/s", 200),
    common.Figure("messages/s by the wall", "1/s"),
    common.Figure("MB/s by the wall", "MB/s"),
]


def figures(messages: int, cpu_s: float, wall_s: float) -> common.Figures:
    """Return the figures of a run."""
    megabytes = messages * common.VALUE_BYTES / 1e6
    values = (messages / cpu_s, megabytes / cpu_s, messages / wall_s, megabytes / wall_s)
    return dict(zip((figure.name for figure in FIGURES), values, strict=True))


def our_run(path: Path, sets: list[bytearray], config: LogConfig, count: int) -> tuple[int, float, float]:
    """Append ``count`` sets to a new log: messages, processor and wall seconds."""
    log = common.open_log(path, config)
    limits = common.limits_of(config)
    watch = common.Stopwatch()
    for number in range(count):
        common.append(log, sets[number % len(sets)], limits)
    cpu_s, wall_s = watch.read()
    log.abandon()
    return log.end_offset, cpu_s, wall_s


def check(bench: common.Bench, sets: list[bytearray], pool: Path) -> None:
    """Both sides keep exactly what was given."""
    path, config = bench.directory / "check-0", LogConfig(segment_bytes=1 << 20)
    count = 2 * len(sets)
    end_offset, _, _ = our_run(path, sets, config, count)
    stored = dict(common.tree_of(path))
    found = [decode(data, 0, common.EVER, check_crc=True) for data in stored.values()]
    given = [decode(bytes(batch), 0, common.EVER, check_crc=True) for batch in sets] * 2
    values = pa.concat_arrays([part.value_array() for part in found])
    assert values.equals(pa.concat_arrays([part.value_array() for part in given]))
    offsets = [offset for part in found for offset in part.offsets.tolist()]
    assert offsets == list(range(end_offset))
    shutil.rmtree(path)
    if bench.peer is not None:
        bench.peer.call("append", path, config.segment_bytes, pool, len(sets[0]), count, "keep")
        assert dict(common.tree_of(path)) == stored
        shutil.rmtree(path)


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the sets, and check."""
    options, peer = bench.options, bench.peer
    sets = common.message_sets(min(options.pool_sets, options.total_mb // common.SET_BYTES))
    assert len({len(batch) for batch in sets}) == 1
    pool = bench.directory / "pool"
    pool.write_bytes(b"".join(sets))
    check(bench, sets, pool)
    path, config = bench.directory / "run-0", LogConfig(segment_bytes=options.segment_mb)
    count = options.total_mb // len(sets[0])

    def ours() -> common.Figures:
        found = our_run(path, sets, config, count)
        shutil.rmtree(path)
        return figures(*found)

    def theirs() -> common.Figures:
        assert peer is not None
        found = peer.call("append", path, config.segment_bytes, pool, len(sets[0]), count, "remove")
        shutil.rmtree(path, ignore_errors=True)
        return figures(int(found["end_offset"]), found["cpu_s"], found["wall_s"])

    yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--total-mb", type=common.megabytes, default=1 << 30, help="appended in each run")
    parser.add_argument("--segment-mb", type=common.megabytes, default=1 << 28)
    parser.add_argument("--pool-sets", type=int, default=256, help="different message sets")
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
