"""Streaming queries whose driver and Python processes are killed at every point of their batches.

``MINIKAFKA_QUERY_KILLS`` says how often the driver is killed (1; ``scripts/soak``: 60, in which every place
has its turn twenty times), with each time several queries standing at places of their own.
"""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.support.processes import output_of, python

PARTITIONS = 2
KILLS = int(os.environ.get("MINIKAFKA_QUERY_KILLS", "1"))
QUERIES = 2 if KILLS == 1 else 5
SEED = int(os.environ.get("MINIKAFKA_QUERY_SEED", "1"))
EACH_S = 600


@contextmanager
def writer(servers: str, topics: list[str]) -> Iterator[None]:
    """A little comes to all topics all the time."""
    ended = threading.Event()

    def write() -> None:
        with Client(servers) as client, BatchingProducer(client, BatchingConfig(acks=-1)) as producer:
            while not ended.wait(0.1):
                for topic in topics:
                    for _ in range(chance.randrange(4)):
                        producer.send(topic, b"x" * 100, partition=chance.randrange(PARTITIONS))

    chance = random.Random(SEED)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def marked(mark: str) -> list[psutil.Process]:
    """The processes that were started by the program, or by one that it started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MINIKAFKA_TEST_MARK") == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(300 + EACH_S * KILLS)
def test_a_query_that_is_killed_anywhere_has_every_record_once(
    minikafka_cluster: Cluster, tmp_path: Path
) -> None:
    servers, mark = minikafka_cluster.bootstrap_servers, uuid.uuid4().hex
    topics = [f"killed-{mark[:8]}-{number}" for number in range(QUERIES)]
    with Client(servers) as client:
        for topic in topics:
            Admin(client).create_topic(NewTopic(topic, PARTITIONS))
    command = ["-m", "tests.faults.killed_queries", str(tmp_path), servers, str(SEED), str(KILLS), *topics]
    with writer(servers, topics):
        for _ in range(3 * KILLS + 2):
            with python(command, tmp_path, MINIKAFKA_TEST_MARK=mark) as program:
                code = program.wait(EACH_S + 120)
            assert code in {0, -9}, f"seed {SEED}: {output_of(tmp_path)[-4000:]}"
            assert wait_until(lambda: not marked(mark), 20), f"seed {SEED}: left behind {marked(mark)}"
            if code == 0:
                break
    lines = {path.parent.name: path.read_text().splitlines() for path in tmp_path.glob("slot-*/results")}
    wrong = [f"{slot} {line}" for slot, found in lines.items() for line in found if "right" not in line]
    assert not wrong, f"seed {SEED}: {wrong}"
    assert sum(map(len, lines.values())) == QUERIES * KILLS
    hits = Counter(line for path in tmp_path.glob("slot-*/hits") for line in path.read_text().splitlines())
    assert sum(hits.values()) >= QUERIES * KILLS
    broken = tmp_path / "broken"
    hits["sessions that Spark had broken"] = broken.stat().st_size if broken.exists() else 0
    for place, count in sorted(hits.items()):
        print(f"{count:4} {place}")  # noqa: T201  # scripts/soak shows what struck how often
