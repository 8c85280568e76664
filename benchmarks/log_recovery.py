"""Opening a log that was not closed: seconds to recover a segment of 1 GiB, from the page cache.

    MINIKAFKA_KAFKA_LIBS=DIR python benchmarks/log_recovery.py [--runs N] [--segment-mb MB]

One segment full of 100-byte messages in sets of 64 KiB, with its index files, no clean-shutdown marker and no
recovery point: all of it is checked, and its indexes are built anew. Ours is ``Log.open``, which also writes
back what lies past the recovery point, here everything, into the page cache. (The flush that then makes it
durable is the disk's time and stands on a line of its own; the peer writes nothing back and has nothing to
flush.) The peer is the constructor of 0.10.1.1's ``Log`` on a copy of the directory. Before each run what
the last one has written is synced. Checked first: nothing is cut, no byte changes, both find the same end.
The goal: 3 s, by the wall.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import log_common as common

from minikafka.log.config import LogConfig

FIGURES = [
    common.Figure("seconds to open", "s", 3.0, more_is_better=False),
    common.Figure("processor seconds of the thread", "s", more_is_better=False),
    common.Figure("seconds to flush what was written back", "s", more_is_better=False),
]
_OPEN, _CPU, _FLUSH = (figure.name for figure in FIGURES)


def digest(path: Path) -> str:
    """Of all segments of a log."""
    found = hashlib.sha256()
    for file in sorted(path.glob("*.log")):
        with file.open("rb") as opened:
            while data := opened.read(1 << 22):
                found.update(data)
    return found.hexdigest()


def our_run(path: Path, config: LogConfig, end_offset: int) -> common.Figures:
    """Open once."""
    watch = common.Stopwatch()
    log = common.open_log(path, config)
    cpu_s, wall_s = watch.read()
    assert (log.recovery, log.end_offset, len(log.segments)) == (None, end_offset, 1)
    flushing = common.Stopwatch()
    log.flush()
    flush_s = flushing.read()[1]
    log.abandon()
    return {_OPEN: wall_s, _CPU: cpu_s, _FLUSH: flush_s}


@contextmanager
def sides(bench: common.Bench) -> Iterator[tuple[common.Run, common.Run | None]]:
    """Make the segment, and check."""
    peer, config = bench.peer, LogConfig(segment_bytes=bench.options.segment_mb)
    path, copy = bench.directory / "ours" / "run-0", bench.directory / "peer" / "run-0"
    log = common.open_log(path, config)
    common.fill(log, common.message_sets(64), config.segment_bytes)
    log.close()
    end_offset, content = log.end_offset, digest(path)
    shutil.copytree(path, copy)

    def ours() -> common.Figures:
        common.write_back()
        return our_run(path, config, end_offset)

    def theirs() -> common.Figures:
        assert peer is not None
        common.write_back()
        found = peer.call("recover", copy)
        assert found["end_offset"] == end_offset
        return {_OPEN: found["wall_s"], _CPU: found["cpu_s"]}

    ours()
    assert digest(path) == content
    if peer is not None:
        theirs()
        assert digest(copy) == content
    yield ours, theirs if peer else None


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--segment-mb", type=common.megabytes, default=1 << 30)
    return common.compare(parser.parse_args(arguments), FIGURES, sides)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
