"""Nothing that was acknowledged is lost when ZooKeeper is restored from an older copy of its directory.

``MINIKAFKA_RESTORES`` says how many lives there are with one broker, and with three, in ``scripts/soak`` (50
each); producers of Java take part where their jars are. A failure prints the seed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.restored_zookeeper import SENDERS, Sender, java_sender, live
from tests.interop.clients import java

LIVES = int(os.environ.get("MINIKAFKA_RESTORES", "50"))
JAVA = {
    "Java 3.9": java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "NewProducers"),
    "Java 4": java("MINIKAFKA_KAFKA4_LIBS", "kafka-clients-4.*.jar", "NewProducers"),
}


@contextlib.contextmanager
def started(directory: Path, names: Sequence[str]) -> Iterator[list[Sender]]:
    """Producers of these releases; skips the test where the jars of one are missing."""
    with contextlib.ExitStack() as running:
        senders = []
        for name in names:
            prepared = JAVA[name](directory / name.replace(" ", "-"))
            sender, program = java_sender(name, prepared.command, prepared.environment)
            running.callback(program.close)
            senders.append(sender)
        yield senders


def check(directory: Path, seed: int, brokers: int, senders: Sequence[Sender] = SENDERS) -> None:
    life = live(directory, seed, brokers, senders)
    print(life, flush=True)  # noqa: T201 - scripts/soak shows it
    assert life.lost == [], str(life)
    assert life.twice == [], str(life)
    assert life.refused == [], f"{life}; {life.refused}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "brokers"), [(1, 1), (2, 1), (3, 3)])
def test_no_acknowledged_record_is_lost_when_zookeeper_is_restored(
    tmp_path: Path, seed: int, brokers: int
) -> None:
    check(tmp_path, seed, brokers)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "brokers"), [(4, 1), (5, 3)])
def test_restored_zookeeper_loses_no_record_of_java_producers(
    tmp_path: Path, seed: int, brokers: int
) -> None:
    with started(tmp_path, list(JAVA)) as senders:
        check(tmp_path / "cluster", seed, brokers, senders)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_acknowledged_record_is_lost_over_many_restores(tmp_path: Path, brokers: int) -> None:
    with contextlib.ExitStack() as running:
        senders = [*SENDERS]
        for name in JAVA:
            with contextlib.suppress(pytest.skip.Exception):
                senders += running.enter_context(started(tmp_path, [name]))
        for seed in range(100, 100 + LIVES):
            check(tmp_path / str(seed), seed, brokers, senders)
