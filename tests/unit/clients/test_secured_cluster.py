"""Our clients and commands on each kind of secured listener of our broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.secured_kafka import (
    ACCESSES,
    MISTAKES,
    SecuredKafka,
    check_mistake,
    produce_over_sessions,
    secured_cluster,
    write_and_read,
    wrong_ones,
)

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_cluster(tmp_path_factory.mktemp("secured") / "d") as cluster:
        yield cluster


@pytest.mark.parametrize(("listener", "mechanism"), ACCESSES)
def test_clients_write_and_read_on_each_listener(
    kafka: SecuredKafka, listener: str, mechanism: str | None
) -> None:
    write_and_read(kafka.client(listener, mechanism))


def test_sessions_that_end_lose_and_repeat_nothing(kafka: SecuredKafka) -> None:
    produce_over_sessions(kafka.client("REAUTH", "SCRAM-SHA-256"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_ends_a_command_with_its_line(
    kafka: SecuredKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    properties, words = wrong_ones(kafka)[mistake]
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
    check_mistake(CommandLine(capfd), tmp_path, properties, words)
