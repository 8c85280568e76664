"""Clients of a cluster of real processes, while brokers, ZooKeeper and the links between them fail.

Our form of Jepsen's test: the anomalies are in ``anomalies``, the faults in ``nemesis``. A round is some
seconds of faults and then none: the cluster must recover within ``whole_cluster.PATIENCE_S``, each client
must make progress, and no group may lose an acknowledged commit. ``MINIKAFKA_NEMESIS_S`` is the duration of
the long test (600 s), ``MINIKAFKA_NEMESIS_SEED`` its first seed, random by default; ``-rP`` shows the counts
of faults. A failure shows the seed of each round and all faults with their times.
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
"""A broker is killed, one paused, and links of brokers and clients cut, two or three faults at a time."""


def run(cluster: WholeCluster, first_seed: int, seconds: float, round_s: float) -> str:
    """Run rounds with consecutive seeds. Return a summary."""
    with cluster as system:
        system.recover()
        nemesis = Nemesis(system)
        took: list[tuple[float, str]] = []
        began, seed = time.monotonic(), first_seed
        try:
            while not took or time.monotonic() - began < seconds:
                nemesis.round(seed, round_s)
                took.append(system.recover())
                nemesis.messages.append(f"recovered after {took[-1][1]}")
                seed += 1
            system.end()
        except AssertionError as error:
            lines = [str(error), system.clients.counts(), *nemesis.messages]
            raise AssertionError("\n".join(lines)) from None
        lines = [
            f"seeds {first_seed} to {seed - 1}, {time.monotonic() - began:.0f} s",
            system.clients.counts(),
            f"links: {dict(system.links.counts)}",
            f"longest recovery after a round's faults: {max(took)[1]}",
            *(f"{count:5} {words}" for words, count in nemesis.struck.most_common()),
            f"{nemesis.passed_over:5} passed over",
        ]
    return "\n".join(lines)


@pytest.mark.timeout(240)
def test_no_anomaly_is_seen_while_brokers_links_and_zookeeper_fail(tmp_path: Path) -> None:
    system = WholeCluster(tmp_path, linked=True)
    print(run(system, KNOWN_SEED, 0, SHORT_S))  # noqa: T201  # -rP shows what struck


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_no_anomaly_is_seen_for_ten_minutes(tmp_path: Path) -> None:
    system = WholeCluster(tmp_path, linked=True)
    print(run(system, SEED or secrets.randbelow(1 << 31), SECONDS, ROUND_S))  # noqa: T201
