"""Hundreds of small histories of a broker's logs, each ended again and again by a crash at any step.

What a log promises, and what each kind of fault may take (M is ``flush.messages``, S ``flush.ms`` with the
scheduler's interval; "flushed" is what ``Log.flush`` has returned for):

    fault                         may take
    the process is killed         of the one append that was under way all or a part; nothing else
    power cut                     what was not flushed: of acknowledged messages at most the last M, none
                                  older than S, and which leader wrote the others of these. A log ends where
                                  the first is lost; a compacted one, which has holes anyway, goes on
      a block not written         (in what was not flushed, as all below)
      a block torn at a sector
      a block of random bytes     where the file had grown
      a length in between         between the flushed one and the newest
      a name's change lost        from some step on, in each directory
    an fsync fails                the log takes no more messages until it is opened again; flushed ones stay
    the disk is full              the message that was refused
    a power cut in an opening     nothing more

Never: a flushed message, a start offset that was written down, a deletion, a truncation that had returned; a
message at an offset that never had it; half of a swap; by compaction the newest message of a key, or its
tombstone in the first pass or before ``delete.retention.ms``.

What a directory loses is a suffix of its changes: journals (ext4, XFS, btrfs, APFS) keep the order of names,
and more than that, over all directories. Blocks of files keep no order at all.

`MINIKAFKA_SEEDS` asks for more seeds (``scripts/soak``); ``-rP`` shows what happened how often.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults.log_mistakes import MISTAKES
from tests.faults.log_simulation import OPERATIONS, Simulation
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(240)
PIECES = 4
"""The parts of the seeds, for several processes."""
WITHIN = 1_000
"""Seeds in which each mistake must be found."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("piece", range(PIECES))
def test_no_crash_takes_more_than_it_may(piece: int) -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS[piece::PIECES]:
        simulation = Simulation(seed)
        simulation.run()
        happened += simulation.happened
    for what, count in sorted(happened.items()):
        sys.stdout.write(f"{count:8} {what}\n")
    rare = {operation.__name__ for operation in OPERATIONS} | {
        "a process killed",
        "a power cut",
        "all that was not synced",
        "a block not written",
        "a block torn",
        "a block of random bytes",
        "a length in between",
        "a name's change lost",
        "an fsync that fails",
        "a disk that is full",
    }
    assert not {what for what in rare if not happened[what]}, happened


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = MISTAKES[mistake]
    planted.must_be_found(monkeypatch, lambda seed: Simulation(seed, *planted.focus).run(), WITHIN)
