"""Users and client ids in paths of ZooKeeper, and the list of those that have settings."""

from __future__ import annotations

import pytest

from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.users import ClientEntity, client_entities, desanitize, sanitize, user_names


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a.b_c-1", "a.b_c-1"),
        ("a/b é", "a%2Fb%20%C3%A9"),
        ("*+~", "%2A%2B%7E"),
        ("CN=alice,OU=sales", "CN%3Dalice%2COU%3Dsales"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
def test_names_are_encoded_as_by_kafka(name: str, encoded: str) -> None:
    assert sanitize(name) == encoded
    assert desanitize(encoded) == name


@pytest.mark.parametrize(
    ("user", "client_id", "path"),
    [
        ("al ice", None, "users/al%20ice"),
        ("alice", "a/b", "users/alice/clients/a%2Fb"),
        ("<default>", "<default>", "users/<default>/clients/<default>"),
        ("clients", "clients", "users/clients/clients/clients"),
        (None, "app", "clients/app"),
        (None, "<default>", "clients/<default>"),
    ],
)
def test_an_entity_is_found_again_by_its_path(user: str | None, client_id: str | None, path: str) -> None:
    entity = ClientEntity.of(user=user, client_id=client_id)
    assert str(entity) == path
    assert entity.kind_and_name == tuple(path.split("/", 1))
    assert ClientEntity.changed(ConfigChange(*entity.kind_and_name)) == entity


def test_only_a_single_user_has_a_user_name() -> None:
    assert ClientEntity.of(user="al ice").user_name == "al ice"
    assert ClientEntity.of(user="<default>").user_name is None
    assert ClientEntity.of(user="alice", client_id="app").user_name is None
    assert ClientEntity.of(client_id="app").user_name is None


def test_all_users_clients_and_clients_of_users_are_listed() -> None:
    store = MemoryZooKeeper().connect()
    assert client_entities(store) == {}
    assert user_names(store) == []
    paths = {
        "/config/clients/app": ClientEntity(None, "app"),
        "/config/clients/a~b": ClientEntity(None, "a%7Eb"),
        "/config/users/<default>": ClientEntity("<default>", None),
        "/config/users/alice": ClientEntity("alice", None),
        "/config/users/alice/clients/<default>": ClientEntity("alice", "<default>"),
        "/config/users/alice/clients/app": ClientEntity("alice", "app"),
        "/config/users/b%20b": ClientEntity("b%20b", None),
    }
    for path in sorted(paths, key=len):
        store.create(path, make_parents=True)
    assert client_entities(store) == paths
    assert user_names(store) == ["alice", "b b"]
