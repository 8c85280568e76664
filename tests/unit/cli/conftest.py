from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest
import typer.main

from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine


@pytest.fixture(scope="session", autouse=True)
def command_tree() -> Iterator[None]:
    """Let typer build the tree of commands once: it reads the signatures of all, and does so at each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capfd)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[BrokerHarness], BrokerHarness]:
    """Return a function that lets commands connect to brokers in memory."""

    def served_by(brokers: BrokerHarness) -> BrokerHarness:
        @contextlib.contextmanager
        def connected(*_: object, **__: object) -> Iterator[ClusterClient]:
            client = brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)
            client.metadata()
            yield client

        monkeypatch.setattr("minikafka.cli.connection.connect.cluster_client", connected)
        return brokers

    return served_by


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    """Two partitions with five messages each, of 1,000 to 1,004 ms; group ``g`` has read two of one."""
    brokers = serve(BrokerHarness(2, {"t": 2}))
    for number in (0, 1):
        brokers.fill(TopicPartition("t", number), *(b"%d-%d" % (number, message) for message in range(5)))
    brokers.commit("g", {TopicPartition("t", 0): 2})
    return brokers
