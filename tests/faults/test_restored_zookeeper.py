"""Nothing that was acknowledged is lost when ZooKeeper is restored from an older copy of its directory.

``MINIKAFKA_RESTORES`` says how many lives there are with one broker, and with three, in ``scripts/soak`` (50
each). A failure prints the seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.restored_zookeeper import live

LIVES = int(os.environ.get("MINIKAFKA_RESTORES", "50"))


def check(directory: Path, seed: int, brokers: int) -> None:
    life = live(directory, seed, brokers)
    print(life)  # noqa: T201 - scripts/soak shows it
    assert life.lost == [], str(life)
    assert life.twice == [], str(life)
    assert life.refused == [], str(life)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "brokers"), [(1, 1), (2, 1), (3, 3)])
def test_no_acknowledged_record_is_lost_when_zookeeper_is_restored(
    tmp_path: Path, seed: int, brokers: int
) -> None:
    check(tmp_path, seed, brokers)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_acknowledged_record_is_lost_over_many_restores(tmp_path: Path, brokers: int) -> None:
    for seed in range(100, 100 + LIVES):
        check(tmp_path / str(seed), seed, brokers)
