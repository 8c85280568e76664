"""The live brokers of a cluster, by their registrations and their ports."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker
from minikafka.embedded.live_brokers import Addresses, LiveBrokers, RegisteredBrokers, addresses_of
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.memory import MemoryZooKeeper


class Machine:
    """Registrations, and the ports with a listening server."""

    def __init__(self) -> None:
        self.registered: Mapping[int, Addresses] | None = {}
        self.listening: set[int] = set()

    def register(self, *numbers: int) -> None:
        self.registered = {number: (("h", number),) for number in numbers}

    def reachable(self, addresses: Addresses) -> bool:
        return any(port in self.listening for _, port in addresses)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def brokers_of(machine: Machine, *own: int) -> LiveBrokers:
    return LiveBrokers(own, lambda: machine.registered, machine.reachable)


def test_killed_broker_does_not_count_despite_its_registration(machine: Machine) -> None:
    machine.register(0)
    brokers = brokers_of(machine)
    brokers.refresh()
    assert brokers.count == 0


def test_broker_started_elsewhere_counts_while_it_is_reachable(machine: Machine) -> None:
    brokers = brokers_of(machine, 1)
    machine.register(0, 1)
    machine.listening = {0, 1}
    assert list(brokers.refresh().started) == [0]
    brokers.own.discard(1)
    machine.listening = {0}
    assert list(brokers.refresh().started) == []
    assert (brokers.count, set(brokers.elsewhere)) == (1, {0})
    machine.listening = set()
    assert list(brokers.refresh().ended) == [0]
    assert brokers.count == 0


def test_broker_with_an_expired_session_counts_while_reachable(machine: Machine) -> None:
    brokers = brokers_of(machine)
    machine.register(0)
    machine.listening = {0}
    brokers.refresh()
    machine.register()
    brokers.refresh()
    assert brokers.count == 1


def test_live_brokers_are_unknown_without_zookeeper(machine: Machine) -> None:
    brokers = brokers_of(machine)
    machine.registered = None
    brokers.refresh()
    assert (brokers.count, brokers.known) == (0, False)


def test_addresses_are_those_of_all_listeners() -> None:
    texts = ("PLAINTEXT://127.0.0.1:9092", "SASL_SSL://[::1]:9093")
    endpoints = tuple(filter(None, (BrokerEndpoint.parse(text, {}) for text in texts)))
    assert addresses_of(BrokerRegistration(LiveBroker(1, endpoints))) == (("127.0.0.1", 9092), ("::1", 9093))


def test_unreadable_registration_is_ignored_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.connect()
    for number in (1, 2):
        data = BrokerRegistration(LiveBroker.plaintext(number, "h", 9000 + number), 0).to_json()
        store.create(paths.broker_path(number), data, make_parents=True)
    store.create(paths.broker_path(3), b"nonsense")
    monkeypatch.setattr("minikafka.registry.zookeeper.ZooKeeperStore", lambda *_, **__: zookeeper.connect())
    registered = RegisteredBrokers("zk:2181", only={1, 3})
    with caplog.at_level(logging.WARNING):
        assert registered.read() == registered.read() == {1: (("h", 9001),)}
    assert len(caplog.messages) == 1
    assert "/brokers/ids/3" in caplog.messages[0]
    registered.close()


def test_starting_a_cluster_does_not_import_kazoo() -> None:
    code = "import sys, minikafka.embedded.cluster; print('kazoo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
