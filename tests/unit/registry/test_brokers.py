"""The live brokers, and registrations that cannot be read."""

from __future__ import annotations

import pytest

from minikafka.base.ids import BrokerAddress
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration, live_brokers, plaintext_addresses
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper


@pytest.fixture
def store() -> MemoryStore:
    """Brokers 2 and 10, and one whose znode is nonsense."""
    store = MemoryZooKeeper().connect()
    for number in (10, 2):
        data = BrokerRegistration.of(BrokerAddress(number, "h", 9000 + number), 0).to_json()
        store.create(paths.broker_path(number), data, make_parents=True)
    store.create(paths.broker_path(3), b"nonsense")
    return store


def test_brokers_come_in_the_order_of_their_ids(store: MemoryStore) -> None:
    assert list(live_brokers(store)) == [2, 10]
    assert plaintext_addresses(store) == ["h:9002", "h:9010"]


def test_without_any_registration_there_are_none() -> None:
    assert live_brokers(MemoryZooKeeper().connect()) == {}


def test_a_broker_without_a_listener_in_plain_text_has_no_address(store: MemoryStore) -> None:
    secured = b'{"jmx_port":-1,"timestamp":"0","endpoints":["SSL://h:1"],"host":null,"version":3,"port":-1}'
    store.write(paths.broker_path(2), secured)
    assert list(live_brokers(store)) == [2, 10]
    assert plaintext_addresses(store) == ["h:9010"]
