"""Clients of a cluster of real processes, while brokers, ZooKeeper and the links between them fail.

Jepsen's test in our form: the anomalies are in ``anomalies``, the faults in ``nemesis``. A round is some
seconds of faults and then none: everything must be as before within a time
(``whole_cluster.PATIENCE_S``), each client must go on, and no group may have an older commit than it was told
of. ``MINIKAFKA_NEMESIS_S`` says how long the long test takes (600 s), ``MINIKAFKA_NEMESIS_SEED`` its first
seed, else by chance; ``-rP`` shows what struck how often. What fails shows the seed of each round and all
faults with their times.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest

from tests.faults.nemesis import Nemesis
from tests.faults.whole_cluster import WholeCluster

SECONDS = float(os.environ.get("MINIKAFKA_NEMESIS_S", "600"))
SEED = int(os.environ.get("MINIKAFKA_NEMESIS_SEED", "0"))
ROUND_S = 20.0
KNOWN_SEED, SHORT_S = 28, 4.0
"""A broker killed and one paused, and links of brokers and of clients cut, two or three of it at a time."""


def run(directory: Path, first_seed: int, seconds: float, round_s: float) -> str:
    """Round after round, with one seed after the other; what happened."""
    with WholeCluster(directory, linked=True) as system:
        system.recover()
        nemesis = Nemesis(system)
        took: list[tuple[float, str]] = []
        began, seed = time.monotonic(), first_seed
        try:
            while not took or time.monotonic() - began < seconds:
                nemesis.round(seed, round_s)
                took.append(system.recover())
                nemesis.told.append(f"all is well after {took[-1][1]}")
                seed += 1
            system.end()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), system.clients.counts(), *nemesis.told])) from None
        lines = [
            f"seeds {first_seed} to {seed - 1}, {time.monotonic() - began:.0f} s",
            system.clients.counts(),
            f"links: {dict(system.links.counts)}",
            f"from the end of a round's faults until all was well, at most: {max(took)[1]}",
            *(f"{count:5} {words}" for words, count in nemesis.struck.most_common()),
            f"{nemesis.passed_over:5} passed over",
        ]
    return "\n".join(lines)


@pytest.mark.timeout(240)
def test_no_anomaly_is_seen_while_brokers_links_and_zookeeper_fail(tmp_path: Path) -> None:
    print(run(tmp_path, KNOWN_SEED, 0, SHORT_S))  # noqa: T201  # -rP shows what struck


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_no_anomaly_is_seen_for_ten_minutes(tmp_path: Path) -> None:
    print(run(tmp_path, SEED or secrets.randbelow(1 << 31), SECONDS, ROUND_S))  # noqa: T201
