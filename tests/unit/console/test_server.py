"""``minikafka console`` as a process, on a cluster with TLS and users."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.embedded.cluster import Cluster
from tests.support.console_process import running_console

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

TOKEN = "a-token-of-a-console-in-a-test"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, tmp_path_factory.mktemp("console") / "d", secure=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def options(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options that name the cluster, which has a topic ``orders``."""
    file = tmp_path_factory.mktemp("options") / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in cluster.client_properties.items()))
    options = ("--bootstrap", cluster.bootstrap_servers, "--command-config", str(file))
    assert run(["topic", "create", "orders", "--partitions", "2", *options]) == 0
    return options


def test_a_console_tails_a_topic_and_ends_at_a_signal(cluster: Cluster, options: tuple[str, ...]) -> None:
    with running_console(*options, "--login", "token", MINIKAFKA_CONSOLE_TOKEN=TOKEN) as browser:
        assert browser.post("/login", {"token": TOKEN}, "/login").status == 303
        assert "healthy" in browser.text("/")
        events = browser.open("GET", "/topics/orders/tail/events")
        assert events.readline() == b"retry: 2000\n"
        assert events.readline() == b"\n"
        assert events.readline().startswith(b"data: ")  # the first look: from here on, all is shown
        produce(cluster, b"the first order")
        seen = b""
        while b"the first order" not in seen:
            seen = events.readline()
        (message,) = json.loads(seen.removeprefix(b"data: "))["messages"]
        assert "the first order" in browser.text(message["href"])
        browser.process.send_signal(signal.SIGTERM)
        assert browser.process.wait(20) == 0
        events.read()  # the stream has ended


def test_users_log_in_with_their_password_of_the_cluster(
    cluster: Cluster, options: tuple[str, ...], tmp_path: Path
) -> None:
    password = re.search(r'password="([^"]+)"', cluster.client_properties["sasl.jaas.config"])
    assert password is not None
    file = tmp_path / "client.properties"  # has no user of its own
    properties = {name: value for name, value in cluster.client_properties.items() if "jaas" not in name}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with running_console(*options[:2], "--command-config", str(file), "--login", "sasl") as browser:
        form = {"user": "admin", "password": "wrong"}
        response = browser.post("/login", form, "/login")
        assert response.status == 403
        assert b"refuses this user or password" in response.read()
        form["password"] = password[1]
        assert browser.post("/login?next=/topics", form, "/login").headers["location"] == "/topics"
        text = browser.text("/topics")
        assert 'href="/topics/orders"' in text
        assert "admin" in text
        browser.process.send_signal(signal.SIGINT)
        assert browser.process.wait(20) == 0


def produce(cluster: Cluster, value: bytes) -> None:
    security = ClientSecurity.from_properties(cluster.client_properties)
    with (
        ClusterClient(cluster.bootstrap_servers, security=security) as client,
        BatchingProducer(client, BatchingConfig(security=security)) as producer,
    ):
        producer.send("orders", value).result()
