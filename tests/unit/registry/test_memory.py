"""The registry in memory: determinism and injected faults."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationLost
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.store import SessionState
from tests.support.raising import raising


@pytest.fixture
def server() -> MemoryZooKeeper:
    return MemoryZooKeeper()


def test_nothing_is_called_before_it_is_delivered(server: MemoryZooKeeper) -> None:
    store = server.connect()
    seen: list[object] = []
    store.watch_children("/a", seen.append)
    store.create("/a")
    assert seen == []
    server.deliver()
    assert seen == [[]]


def test_deliver_counts_what_it_ran(server: MemoryZooKeeper) -> None:
    store = server.connect()
    store.watch_children("/a", lambda names: None)
    assert server.deliver() == 1
    assert server.deliver() == 0


def test_an_exception_of_a_callback_reaches_the_caller_of_deliver(server: MemoryZooKeeper) -> None:
    store = server.connect()
    store.watch_children("/a", raising(ValueError("of the callback")))
    with pytest.raises(ValueError, match="of the callback"):
        server.deliver()


def test_times_are_those_of_the_clock() -> None:
    clock = ManualClock(now_ms=1_000)
    store = MemoryZooKeeper(clock).connect()
    store.create("/a")
    clock.advance(500)
    stat = store.write("/a", b"")
    assert (stat.created_ms, stat.modified_ms) == (1_000, 1_500)


def test_a_lost_answer_leaves_the_write_done(server: MemoryZooKeeper) -> None:
    store = server.connect()
    server.lose_next_answer(store)
    with pytest.raises(CoordinationLost, match="/a"):
        store.create("/a", b"data")
    assert store.read("/a")[0] == b"data"


def test_only_one_answer_is_lost(server: MemoryZooKeeper) -> None:
    store = server.connect()
    store.create("/a")
    server.lose_next_answer(store)
    with pytest.raises(CoordinationLost):
        store.write("/a", b"1")
    assert store.write("/a", b"2").version == 2


def test_a_suspended_store_learns_of_its_expiry_when_it_is_back(server: MemoryZooKeeper) -> None:
    store = server.connect()
    states: list[SessionState] = []
    store.on_session(states.append)
    store.create("/a", ephemeral=True)
    server.suspend(store)
    server.expire(store)
    server.deliver()
    assert states == [SessionState.SUSPENDED]
    server.resume(store)
    server.deliver()
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert store.exists("/a") is None


def test_a_store_closed_without_a_connection_leaves_its_session(server: MemoryZooKeeper) -> None:
    store, other = server.connect(), server.connect()
    store.create("/a", ephemeral=True)
    ticket = store.ticket
    server.suspend(store)
    store.close()
    assert server.alive(ticket.session_id)
    assert other.end_session(ticket)
    assert other.exists("/a") is None


def test_chroots_keep_stores_apart(server: MemoryZooKeeper) -> None:
    one, other = server.connect("/one"), server.connect("/other")
    one.create("/a", b"1")
    assert other.exists("/a") is None
    assert server.connect().read("/one/a")[0] == b"1"
