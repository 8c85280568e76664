"""Transactional clients of a cluster of real processes, while brokers, ZooKeeper and the links between them
fail: ``test_nemesis`` for transactions. The coordinators of transactions and groups are among the victims.

``MINIKAFKA_NEMESIS_S`` and ``MINIKAFKA_NEMESIS_SEED`` are those of ``test_nemesis``.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.faults.test_nemesis import ROUND_S, SECONDS, SEED, run
from tests.faults.transactional_cluster import TransactionalCluster

KNOWN_SEED, SHORT_S = 28, 4.0


@pytest.mark.timeout(240)
def test_no_transaction_is_torn_while_brokers_links_and_zookeeper_fail(tmp_path: Path) -> None:
    print(run(TransactionalCluster(tmp_path, linked=True), KNOWN_SEED, 0, SHORT_S))  # noqa: T201  # -rP


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_no_transaction_is_torn_for_ten_minutes(tmp_path: Path) -> None:
    seed = SEED or secrets.randbelow(1 << 31)
    print(run(TransactionalCluster(tmp_path, linked=True), seed, SECONDS, ROUND_S))  # noqa: T201
