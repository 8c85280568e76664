"""Streams over a topic of 200 partitions whose driver and Python workers are killed at random points.

``MINIKAFKA_WIDE_STREAMS`` says how many streams are run (1; ``scripts/soak``: 10), with seeds from
``MINIKAFKA_QUERY_SEED`` on, and ``MINIKAFKA_WIDE_KILLS`` how often each is killed (2, the least; 6).
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import uuid
from collections import deque
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
from tests.support.processes import kill_family, output_of, python, spark_workers

PARTITIONS = 200
STREAMS = int(os.environ.get("MINIKAFKA_WIDE_STREAMS", "1"))
KILLS = int(os.environ.get("MINIKAFKA_WIDE_KILLS", "2"))
SEED = int(os.environ.get("MINIKAFKA_QUERY_SEED", "1"))
START_S = 120
END_S = 400


class Writer:
    """Writes records to all partitions until it is stopped."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        self.count = 0
        self._servers = servers
        self._topic = topic
        self._chance = random.Random(f"writer {seed}")
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _write(self) -> None:
        with Client(self._servers) as client, BatchingProducer(client, BatchingConfig(acks=-1)) as producer:
            while not self._ended.wait(0.1):
                for _ in range(self._chance.randrange(40)):
                    partition = int(PARTITIONS * self._chance.random() ** 3)  # some have many, some few
                    producer.send(self._topic, b"%d" % self.count, partition=partition)
                    self.count += 1


def planned_kills(chance: random.Random) -> list[str]:
    """Return the victims in their order: at least one Python process, and the driver at the end."""
    kills = ["python", *chance.choices(["python", "driver"], k=KILLS - 2)]
    chance.shuffle(kills)
    return [*kills, "driver"]


def strike(program: subprocess.Popen[str], victim: str, chance: random.Random) -> None:
    """Kill the driver with all that is below it, or one of the Python processes if there is any."""
    victims = spark_workers(program.pid)
    if victim == "driver" or not victims:
        kill_family(program.pid)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        chance.choice(victims).kill()


@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("seed", range(SEED, SEED + STREAMS))
def test_a_wide_stream_that_is_killed_anywhere_has_the_rows_of_a_batch(
    minikafka_cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    servers, topic = minikafka_cluster.bootstrap_servers, f"wide-{uuid.uuid4().hex[:8]}"
    with Client(servers) as client:
        Admin(client).create_topic(NewTopic(topic, PARTITIONS))
    command = ["-m", "tests.faults.wide_stream", str(tmp_path), servers, topic, str(seed)]
    chance = random.Random(seed)
    kills = planned_kills(chance)
    left = deque(kills)
    writer = Writer(servers, topic, seed)
    with writer.running():
        while left:
            with python(command, tmp_path) as program:
                batches = len(list(tmp_path.glob("batch-*")))
                assert wait_until(lambda: len(list(tmp_path.glob("batch-*"))) > batches, START_S), (  # noqa: B023
                    f"seed {seed}: {output_of(tmp_path)[-4000:]}"
                )
                while program.poll() is None and left:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        program.wait(chance.random() * 2)
                    strike(program, left.popleft(), chance)
    (tmp_path / "total").write_text(str(writer.count))
    with python(command, tmp_path) as program:
        assert program.wait(END_S) == 0, f"seed {seed}: {output_of(tmp_path)[-4000:]}"
    wrong = tmp_path / "wrong"
    assert not wrong.exists(), f"seed {seed}, killed {kills}: {wrong.read_text()[:2_000]}"
    failures = tmp_path / "failures"
    failed = len(failures.read_text().splitlines()) if failures.exists() else 0
    print(f"seed {seed}: {writer.count} records, killed {kills}, {failed} failed queries")  # noqa: T201
