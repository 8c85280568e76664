"""Hundreds of short histories of a cluster, with faults that come and go.

What must hold is in ``cluster_oracle``, what can happen in ``cluster_simulation``. What replicas
acknowledge is not flushed yet, so a power cut may take more than promised:

    each message is flushed before it is acknowledged      any number of machines may lose their power
      (``flush.messages=1``; three seeds of five)
    nothing is flushed                                     one at a time may, all replicas of all others
                                                           being in sync; or none, with all other faults

Beside the faults, in every other seed, clocks may run fast or slow, a topic be deleted and made again under
its name, a replica that is out of sync be elected, or the controller and another broker die together.

`MINIKAFKA_SEEDS` asks for more seeds (``scripts/soak``); ``-rP`` shows what happened how often.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.faults.cluster_mistakes import MISTAKES
from tests.faults.cluster_simulation import FAULTS, Simulation, words
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(32)
FAILED_ONCE = (323, 340, 422, 566, 727, 1312, 3427, 6166, 410909)
"""Seeds that have found bugs which no other test had."""
WITHIN = 2000
"""Seeds in which each mistake must be found: most are found in one of ten, rare ones in one of hundreds."""
PLANTED = [pytest.param(name, marks=pytest.mark.long if MISTAKES[name].rare else ()) for name in MISTAKES]
PIECES = 4
"""The parts of the seeds, for several processes."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_cluster_keeps_what_it_promised(piece: int) -> None:
    happened: Counter[str] = Counter()
    slowest_ms = 0
    for seed in (*SEEDS, *FAILED_ONCE)[piece::PIECES]:
        simulation = Simulation(seed)
        simulation.run()
        happened += simulation.events.happened + simulation.oracle.counts
        slowest_ms = max(slowest_ms, simulation.recovered_ms)
    for what, count in sorted(happened.items()):
        sys.stdout.write(f"{count:8} {what}\n")
    sys.stdout.write(f"{slowest_ms:8} ms for the longest recovery\n")
    if len(SEEDS) >= 1000:
        assert not {words(fault) for fault in FAULTS} - happened.keys()


# Where the code around it has changed, the mistake's own seeds may miss it: up to two minutes, alone.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = MISTAKES[mistake]

    def simulate(seed: int) -> None:
        Simulation(seed, planted.focus, more=planted.more).run()

    planted.must_be_found(monkeypatch, simulate, WITHIN)


def test_a_seed_gives_the_same_history_each_time() -> None:
    program = (
        "import logging; logging.disable(); from tests.faults.cluster_simulation import Simulation as S; "
        "one = S(3); one.run(); print(one.trace)"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1
