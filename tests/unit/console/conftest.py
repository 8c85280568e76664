from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.testclient import TestClient

from minikafka.base.ids import TopicPartition
from minikafka.console.app import make_app
from minikafka.console.settings import ConsoleSettings
from tests.support.broker_harness import BrokerHarness

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass
class ConsoleClient:
    """A browser without JavaScript, at a console of brokers in memory."""

    http: TestClient

    def get(self, address: str, **options: Any) -> Any:
        return self.http.get(address, follow_redirects=False, **options)

    def page(self, address: str) -> str:
        """Return the text of a page that must be found."""
        response = self.get(address)
        assert response.status_code == 200, (address, response.status_code, response.text[-600:])
        text: str = response.text
        return text

    def csrf(self, address: str = "/") -> str:
        """Return the token in the forms of a page."""
        found = re.search(r'name="csrf" value="(\w+)"', self.page(address))
        assert found is not None, address
        return found[1]

    def post(self, address: str, form: dict[str, str], **options: Any) -> Any:
        return self.http.post(address, data=form, follow_redirects=False, **options)


@pytest.fixture
def brokers() -> BrokerHarness:
    """Two brokers; ``orders`` has two partitions with five messages each, of 1,000 to 1,004 ms."""
    brokers = BrokerHarness(2, {"orders": 2, "empty": 1})
    for tp in (T0, T1):
        brokers.fill(tp, *(b'{"id": %d%d}' % (tp.partition, number) for number in range(5)))
    return brokers


@pytest.fixture
def serve() -> Iterator[Callable[..., ConsoleClient]]:
    """Return a function that serves a console of brokers in memory."""
    opened: list[TestClient] = []

    def serve_console(brokers: BrokerHarness, **settings: Any) -> ConsoleClient:
        def connect(user: str | None, password: str | None) -> Any:
            return brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)

        app = make_app(ConsoleSettings(**{"connect": connect} | settings))
        http = TestClient(app, base_url="http://localhost:9090")
        http.__enter__()
        opened.append(http)
        return ConsoleClient(http)

    yield serve_console
    for http in opened:
        http.__exit__(None, None, None)


@pytest.fixture
def console(brokers: BrokerHarness, serve: Callable[..., ConsoleClient]) -> ConsoleClient:
    """A read-only console."""
    return serve(brokers)
