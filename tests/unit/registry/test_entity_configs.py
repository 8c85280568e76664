"""Settings in ZooKeeper: changes and their notifications."""

from __future__ import annotations

import pytest

from minikafka.base.errors import CoordinationError
from minikafka.registry import paths
from minikafka.registry.entity_configs import ConfigChange, check_cluster, read_config, write_config
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.store import Store


@pytest.fixture
def store() -> Store:
    store = MemoryZooKeeper().connect()
    store.create(paths.CONFIG_CHANGES, make_parents=True)
    return store


def test_written_config_is_read_and_notified(store: Store) -> None:
    assert read_config(store, paths.CLIENTS, "app") == {}
    for rate in ("1", "2"):
        write_config(store, paths.CLIENTS, "app", {"producer_byte_rate": rate})
        assert read_config(store, paths.CLIENTS, "app") == {"producer_byte_rate": rate}
    first, second = (f"{paths.CONFIG_CHANGES}/{name}" for name in store.children(paths.CONFIG_CHANGES))
    for path in (first, second):
        assert ConfigChange.from_json(store.read(path)[0], path) == ConfigChange("clients", "app")


def test_address_without_brokers_is_no_cluster(store: Store) -> None:
    check_cluster(store, "localhost:2181")
    with pytest.raises(CoordinationError, match="no Kafka cluster in ZooKeeper at localhost:2181/other"):
        check_cluster(MemoryZooKeeper().connect(), "localhost:2181/other")


@pytest.mark.parametrize(
    ("client", "entity"), [("a.b_c-1", "a.b_c-1"), ("a/b é", "a%2Fb%20%C3%A9"), ("<default>",) * 2]
)
def test_clients_are_named_as_the_releases_name_them(client: str, entity: str) -> None:
    assert paths.client_entity(client) == entity
    assert paths.client_of(entity) == client
