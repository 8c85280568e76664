"""Settings in ZooKeeper: changes and their notifications."""

from __future__ import annotations

import pytest

from minikafka.base.errors import CoordinationError
from minikafka.registry import paths
from minikafka.registry.entity_configs import (
    ConfigChange,
    change_config,
    check_cluster,
    read_config,
    write_config,
)
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


def test_a_change_keeps_what_was_changed_by_somebody_else_meanwhile(store: Store) -> None:
    write_config(store, paths.USERS, "alice", {"producer_byte_rate": "1"})
    seen = []

    def change(config: dict[str, str]) -> dict[str, str]:
        seen.append(dict(config))
        if len(seen) == 1:
            write_config(store, paths.USERS, "alice", {"producer_byte_rate": "1", "consumer_byte_rate": "2"})
        return {**config, "SCRAM-SHA-256": "x"}

    change_config(store, paths.USERS, "alice", change)
    assert len(seen) == 2
    held = read_config(store, paths.USERS, "alice")
    assert held == {"producer_byte_rate": "1", "consumer_byte_rate": "2", "SCRAM-SHA-256": "x"}


def test_a_change_of_a_new_entity_creates_its_parents_and_notifies() -> None:
    store = MemoryZooKeeper().connect()
    change_config(store, paths.USERS, "alice/clients/app", lambda _: {"producer_byte_rate": "1"})
    (name,) = store.children(paths.CONFIG_CHANGES)
    data, _ = store.read(f"{paths.CONFIG_CHANGES}/{name}")
    assert data == b'{"version":2,"entity_path":"users/alice/clients/app"}'
    assert read_config(store, paths.USERS, "alice") == {}


def test_settings_that_cannot_be_read_are_not_changed(store: Store) -> None:
    store.create(paths.config_path(paths.USERS, "alice"), b"nonsense", make_parents=True)
    with pytest.raises(CoordinationError, match="/config/users/alice"):
        change_config(store, paths.USERS, "alice", lambda _: {})
    assert store.read(paths.config_path(paths.USERS, "alice"))[0] == b"nonsense"
