"""A broker that is killed again and again while a client sends, consumes in a group and commits.

``MINIKAFKA_KILLS`` says how often (3; ``scripts/soak``: 12).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.support.load import Load

KILLS = int(os.environ.get("MINIKAFKA_KILLS", "3"))
PARTITIONS = 3
BETWEEN_KILLS = 3_000


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_what_was_acknowledged_and_committed_outlives_every_kill(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", PARTITIONS)
        load = Load(cluster.bootstrap_servers)
        for _ in range(KILLS):
            load.run(BETWEEN_KILLS)
            cluster.kill(0)
            promised = dict(load.committed)
            cluster.restart(0)
            assert load.taken_back(promised) == {}
        load.run(BETWEEN_KILLS)
        load.finish()
    load.check_everything_came_once()
    assert min(load.committed.values()) > 0
