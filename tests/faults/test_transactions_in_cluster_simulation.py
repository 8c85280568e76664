"""Short histories of a cluster with transactional clients, with faults that come and go.

The clients are in ``cluster_transactions``, the search for anomalies in ``transaction_anomalies``; the faults
are those of ``test_cluster_simulation``.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults.cluster_transactions import TransactionSimulation
from tests.faults.transaction_mistakes import MISTAKES
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(8)
WITHIN = 2000
"""Seeds in which each mistake must be found."""
PLANTED = [pytest.param(name, marks=pytest.mark.long if MISTAKES[name].rare else ()) for name in MISTAKES]


@pytest.mark.timeout(0)
def test_no_transaction_of_a_simulated_cluster_is_torn() -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        simulation = TransactionSimulation(seed)
        simulation.run()
        happened += simulation.events.happened + simulation.oracle.counts
    for what, count in sorted(happened.items()):
        sys.stdout.write(f"{count:8} {what}\n")
    assert happened["transactions committed"] > happened["transactions aborted"] > 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_in_transactions_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = MISTAKES[mistake]

    def simulate(seed: int) -> None:
        TransactionSimulation(seed, planted.focus, more=planted.more).run()

    planted.must_be_found(monkeypatch, simulate, WITHIN)
