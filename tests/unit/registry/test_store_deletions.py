"""Deletions through the store port, over memory and over a real ZooKeeper."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BadVersion, NoNode, NotEmpty
from minikafka.registry.store import Store


def test_deleted_znode_does_not_exist(store: Store) -> None:
    store.create("/a")
    store.delete("/a")
    assert store.exists("/a") is None


def test_deleting_nothing_is_refused(store: Store) -> None:
    with pytest.raises(NoNode, match="/a"):
        store.delete("/a")
    with pytest.raises(NoNode, match="/a"):
        store.delete("/a", recursive=True)


def test_deleting_at_another_version_is_refused(store: Store) -> None:
    store.create("/a")
    store.write("/a", b"new")
    with pytest.raises(BadVersion, match="/a"):
        store.delete("/a", version=0)
    store.delete("/a", version=1)
    assert store.exists("/a") is None


def test_conditional_deletion_needs_the_other_znode(store: Store) -> None:
    store.create("/a")
    with pytest.raises(NoNode, match="/beside"):
        store.delete_if_exists("/a", "/beside")
    assert store.exists("/a") is not None
    store.create("/beside")
    store.delete_if_exists("/a", "/beside")
    assert store.children("/") == ["beside"]
    with pytest.raises(NoNode, match="/a"):
        store.delete_if_exists("/a", "/beside")
    store.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty, match="/a"):
        store.delete_if_exists("/a", "/beside")


def test_a_znode_with_children_is_not_deleted_alone(store: Store) -> None:
    store.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty, match="/a"):
        store.delete("/a")


def test_a_recursive_delete_takes_all_below(store: Store) -> None:
    store.create("/a/b/c", make_parents=True)
    store.create("/a/d")
    store.create("/ab")
    store.delete("/a", recursive=True)
    assert store.children("/") == ["ab"]
