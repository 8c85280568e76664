"""Hundreds of short histories of a group of high-level consumers that come, go, fail and come back.

What must hold, and what can happen, is in ``consumer_churn``. In every third seed consumers leave in order
only, and no message may come twice. `MINIKAFKA_SEEDS` asks for more seeds (``scripts/soak``); ``-rP`` shows
what happened how often.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults.consumer_churn import Churn
from tests.faults.consumer_mistakes import MISTAKES
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(160)
FAILED_ONCE = (272, 3287)
"""Each of these has found something that nothing else had."""
WITHIN = 600
"""Seeds in which each mistake must be found."""
HAPPENS = (
    "a consumer joined",
    "a consumer left",
    "a consumer was killed",
    "a process was cut off",
    "a process was paused",
    "a session expired",
    "a topic was made",
    "a topic was deleted",
    "an answer was lost",
    "partitions were added",
)


@pytest.mark.timeout(0)
def test_each_partition_has_one_reader_and_nothing_is_lost() -> None:
    happened: Counter[str] = Counter()
    for seed in (*SEEDS, *FAILED_ONCE):
        churn = Churn(seed)
        churn.run()
        happened += churn.happened
    for what, count in sorted(happened.items()):
        sys.stdout.write(f"{count:8} {what}\n")
    assert not set(HAPPENS) - happened.keys()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake].must_be_found(monkeypatch, lambda seed: Churn(seed).run(), WITHIN)


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = Churn(5), Churn(5)
    first.run()
    second.run()
    assert first.happened == second.happened
    assert first.oracle.handed_out == second.oracle.handed_out
