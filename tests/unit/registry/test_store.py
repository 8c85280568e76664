"""The contract of the store port, over memory and over a real ZooKeeper."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from minikafka.base.errors import BadVersion, CoordinationError, CoordinationLost, NodeExists, NoNode
from minikafka.registry.store import SessionState, SessionTicket, Stat, Store

if TYPE_CHECKING:
    from tests.unit.registry.conftest import ZooKeeperHarness

Seen = list[object]


# Znodes


def test_created_znode_can_be_read(store: Store) -> None:
    assert store.create("/a", b"data") == "/a"
    data, stat = store.read("/a")
    assert (data, stat.version, stat.ephemeral_owner) == (b"data", 0, 0)


def test_creating_an_existing_znode_is_refused(store: Store) -> None:
    store.create("/a", b"first")
    with pytest.raises(NodeExists, match="/a"):
        store.create("/a", b"second")
    assert store.read("/a")[0] == b"first"


def test_creating_below_nothing_is_refused(store: Store) -> None:
    with pytest.raises(NoNode, match="/a/b"):
        store.create("/a/b")
    assert store.exists("/a") is None


def test_parents_are_made_on_request(store: Store) -> None:
    store.create("/a/b/c", b"data", make_parents=True)
    assert store.read("/a/b")[0] == b""
    assert store.read("/a/b/c")[0] == b"data"


def test_parents_that_exist_stay_as_they_are(store: Store) -> None:
    store.create("/a", b"mine")
    store.create("/a/b/c", make_parents=True)
    assert store.read("/a")[0] == b"mine"


def test_sequential_znodes_are_numbered_upwards(store: Store) -> None:
    store.create("/a")
    made = [store.create("/a/change_", sequential=True) for _ in range(3)]
    assert made == sorted(made)
    assert len(set(made)) == 3
    assert all(len(path) == len("/a/change_") + 10 and path[-10:].isdigit() for path in made)


def test_a_deleted_number_does_not_come_back(store: Store) -> None:
    store.create("/a")
    first = store.create("/a/change_", sequential=True)
    store.delete(first)
    assert store.create("/a/change_", sequential=True) > first


def test_many_znodes_are_made_at_once_those_that_are_there_stay(store: Store) -> None:
    store.create("/t", b"")
    store.create("/t/3", b"before")
    nodes = {f"/t/{number}": b"%d" % number for number in range(600)}
    assert store.create_all(nodes) == {"/t/3"}
    found = store.read_all([*nodes, "/t/none"])
    assert {path: data for path, (data, _) in found.items()} == nodes | {"/t/3": b"before"}


def test_parents_may_be_among_the_many(store: Store) -> None:
    assert store.create_all({"/a": b"", "/a/b": b"1", "/x/y": b"2"}) == {"/x/y"}
    assert store.read("/a/b")[0] == b"1"


def test_many_znodes_are_written_at_once_each_at_its_version(store: Store) -> None:
    store.create_all({"/t": b""} | {f"/t/{number}": b"old" for number in range(600)})
    store.write("/t/3", b"another's")
    nodes = {f"/t/{number}": (b"%d" % number, 0) for number in range(600)}
    assert store.write_all({**nodes, "/t/none": (b"", 0)}) == {"/t/3", "/t/none"}
    found = store.read_all(nodes)
    assert found["/t/3"][0] == b"another's"
    assert {path: data for path, (data, _) in found.items() if path != "/t/3"} == {
        path: data for path, (data, _) in nodes.items() if path != "/t/3"
    }
    assert {stat.version for _, stat in found.values()} == {1}


def test_reading_nothing_is_refused(store: Store) -> None:
    with pytest.raises(NoNode, match="/a"):
        store.read("/a")


def test_a_write_replaces_the_data_and_raises_the_version(store: Store) -> None:
    store.create("/a", b"old")
    assert store.write("/a", b"new").version == 1
    data, stat = store.read("/a")
    assert (data, stat.version) == (b"new", 1)


def test_a_write_at_the_expected_version_succeeds(store: Store) -> None:
    store.create("/a", b"old")
    assert store.write("/a", b"new", version=0).version == 1


def test_a_write_at_another_version_changes_nothing(store: Store) -> None:
    store.create("/a", b"old")
    store.write("/a", b"new")
    with pytest.raises(BadVersion, match="/a"):
        store.write("/a", b"late", version=0)
    assert store.read("/a")[0] == b"new"


def test_writing_to_nothing_is_refused(store: Store) -> None:
    with pytest.raises(NoNode, match="/a"):
        store.write("/a", b"data")


def test_children_are_sorted_names(store: Store) -> None:
    store.create("/a")
    for name in ("10", "9", "b"):
        store.create(f"/a/{name}")
    assert store.children("/a") == ["10", "9", "b"]


def test_the_children_of_nothing_are_refused(store: Store) -> None:
    with pytest.raises(NoNode, match="/a"):
        store.children("/a")


def test_stat_counts_created_and_deleted_children(store: Store) -> None:
    store.create("/parent")
    seen = []
    for change in (store.create, store.delete, store.create):
        change("/parent/child")
        stat = store.exists("/parent")
        assert stat is not None
        seen.append((stat.child_changes, stat.child_changed_at))
    assert [changes for changes, _ in seen] == [1, 2, 3]
    assert seen[0][1] < seen[1][1] < seen[2][1]
    assert store.read("/parent/child")[1].created_at == seen[2][1]


def test_new_znode_has_its_own_creation_as_last_child_change(store: Store) -> None:
    store.create("/parent")
    store.create("/parent/child")
    store.sync()
    made = store.read("/parent/child")[1]
    assert (made.child_changes, made.child_changed_at) == (0, made.created_at)


def test_stat_has_version_and_times(store: Store) -> None:
    store.create("/a")
    made = store.exists("/a")
    store.write("/a", b"new")
    written = store.exists("/a")
    assert made is not None
    assert written is not None
    assert (made.version, written.version) == (0, 1)
    assert made.created_ms == written.created_ms <= written.modified_ms


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "/a/",
        "//a",
        "/a//b",
        "/a/../b",
        "/.",
        "/a\0",
        "/a\n",
        "/a\x7f",
        "/\x9f",
        "/\ue000",
        "/\ufff0",
    ],
)
def test_a_bad_path_is_refused(store: Store, path: str) -> None:
    with pytest.raises(CoordinationError, match="znode path"):
        store.create(path)


def test_too_much_data_is_refused(store: Store) -> None:
    with pytest.raises(CoordinationError, match="1000001 bytes"):
        store.create("/a", b"x" * 1_000_001)
    store.create("/a", b"x" * 1_000_000)
    with pytest.raises(CoordinationError, match="1000001 bytes"):
        store.write("/a", b"x" * 1_000_001)


def test_two_stores_see_the_same(harness: ZooKeeperHarness) -> None:
    one, other = harness.connect(), harness.connect()
    one.create("/a", b"data")
    assert other.read("/a")[0] == b"data"


# Sessions


def test_every_store_has_a_session_of_its_own(harness: ZooKeeperHarness) -> None:
    assert harness.connect().session_id != harness.connect().session_id


def test_an_ephemeral_znode_names_its_session(store: Store) -> None:
    store.create("/a", ephemeral=True)
    stat = store.exists("/a")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id


def test_an_ephemeral_znode_goes_when_its_store_is_closed(harness: ZooKeeperHarness) -> None:
    one, other = harness.connect(), harness.connect()
    one.create("/a", ephemeral=True)
    one.create("/b")
    one.close()
    assert harness.settles(lambda: other.exists("/a") is None)
    assert other.exists("/b") is not None


def test_an_ephemeral_znode_has_no_children(store: Store) -> None:
    store.create("/a", ephemeral=True)
    with pytest.raises(CoordinationError, match="/a/b"):
        store.create("/a/b")


def test_expiry_is_reported_before_the_new_session(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    states: Seen = []
    store.on_session(states.append)
    old = store.session_id
    harness.expire(store)
    assert harness.settles(lambda: SessionState.CONNECTED in states)
    assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
    assert store.session_id != old


def test_expiry_takes_the_ephemeral_znodes(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a", ephemeral=True)
    harness.expire(store)
    assert harness.settles(lambda: other.exists("/a") is None)


def test_a_store_can_be_used_after_expiry(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    states: Seen = []
    store.on_session(states.append)
    harness.expire(store)
    assert harness.settles(lambda: SessionState.CONNECTED in states)
    store.create("/a", ephemeral=True)
    stat = other.exists("/a")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id


def test_a_session_callback_may_register_again(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()

    def register(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            store.create("/a", ephemeral=True)

    store.create("/a", ephemeral=True)
    first = other.read("/a")[1].ephemeral_owner
    store.on_session(register)
    harness.expire(store)

    def registered() -> bool:
        stat = other.exists("/a")
        return stat is not None and stat.ephemeral_owner not in (0, first)

    assert harness.settles(registered)


def test_a_lost_connection_is_reported_and_the_session_kept(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    states: Seen = []
    store.on_session(states.append)
    store.create("/a", ephemeral=True)
    session_id = store.session_id
    harness.cut(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED])
    harness.mend(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
    assert store.session_id == session_id
    assert store.exists("/a") is not None


def test_without_a_connection_calls_fail_clearly(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    states: Seen = []
    store.on_session(states.append)
    harness.cut(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED])
    with pytest.raises(CoordinationLost, match="/a"):
        store.create("/a")
    with pytest.raises(CoordinationLost, match="/a"):
        store.read("/a")
    harness.mend(store)
    assert harness.settles(lambda: SessionState.CONNECTED in states)
    assert store.exists("/a") is None


def test_a_closed_store_refuses_calls(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(CoordinationError, match="closed"):
        store.read("/a")


def test_closing_is_not_reported(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    states: Seen = []
    store.on_session(states.append)
    store.close()
    harness.settles(lambda: True)
    assert states == []


# Ending the session of a killed predecessor


def test_a_ticket_ends_its_session_and_no_other(harness: ZooKeeperHarness) -> None:
    killed, stranger, successor = harness.connect(), harness.connect(), harness.connect()
    killed.create("/mine", ephemeral=True)
    stranger.create("/other", ephemeral=True)
    assert successor.end_session(killed.ticket)
    assert successor.exists("/mine") is None
    assert successor.exists("/other") is not None


def test_a_wrong_password_ends_nothing(harness: ZooKeeperHarness) -> None:
    victim, other = harness.connect(), harness.connect()
    victim.create("/a", ephemeral=True)
    assert not other.end_session(SessionTicket(victim.session_id, b"guessed password"))
    assert other.exists("/a") is not None


def test_the_ticket_of_a_dead_session_ends_nothing(harness: ZooKeeperHarness) -> None:
    one, other = harness.connect(), harness.connect()
    ticket = one.ticket
    one.close()
    assert not other.end_session(ticket)


def test_a_ticket_survives_its_file(store: Store) -> None:
    assert SessionTicket.from_json(store.ticket.to_json(), "file") == store.ticket


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"session_id":"1","password":""}', b"\xff"])
def test_a_damaged_ticket_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(CoordinationError, match="D/session"):
        SessionTicket.from_json(data, "D/session")


# Watches


def test_a_children_watch_gets_the_present_state_first(harness: ZooKeeperHarness) -> None:
    store = harness.connect()
    store.create("/a/b", make_parents=True)
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [["b"]])


def test_a_children_watch_follows_every_change(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a")
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [[]])
    other.create("/a/c")
    assert harness.settles(lambda: seen[-1] == ["c"])
    other.create("/a/b")
    assert harness.settles(lambda: seen[-1] == ["b", "c"])
    other.delete("/a/c")
    assert harness.settles(lambda: seen[-1] == ["b"])


def test_children_watch_reports_a_child_that_was_recreated_unseen(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a/b", make_parents=True)
    seen: Seen = []

    def look(names: list[str] | None) -> None:
        if not seen:
            other.delete("/a/b")
            other.create("/a/b")
        seen.append(names)

    store.watch_children("/a", look)
    assert harness.settles(lambda: seen == [["b"], ["b"]])


def test_a_children_watch_can_wait_for_its_znode(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [None])
    other.create("/a")
    assert harness.settles(lambda: seen == [None, []])
    other.create("/a/b")
    assert harness.settles(lambda: seen == [None, [], ["b"]])


def test_a_children_watch_outlives_its_znode(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a/b", make_parents=True)
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [["b"]])
    other.delete("/a", recursive=True)
    assert harness.settles(lambda: seen[-1] is None)
    other.create("/a/c", make_parents=True)
    assert harness.settles(lambda: seen[-1] == ["c"])


def test_data_does_not_wake_a_children_watch(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a")
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [[]])
    other.write("/a", b"data")
    other.create("/a/b")
    assert harness.settles(lambda: seen == [[], ["b"]])


def test_a_data_watch_follows_data_and_absence(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    seen: list[tuple[bytes | None, Stat | None]] = []
    store.watch_data("/a", lambda data, stat: seen.append((data, stat)))
    assert harness.settles(lambda: seen == [(None, None)])
    other.create("/a", b"1")
    assert harness.settles(lambda: seen[-1][0] == b"1")
    other.write("/a", b"2")
    assert harness.settles(lambda: seen[-1][0] == b"2")
    other.delete("/a")
    assert harness.settles(lambda: seen[-1] == (None, None))
    assert [stat.version for _, stat in seen if stat is not None] == [0, 1]


def test_a_data_watch_sees_a_write_of_the_same_data(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a", b"same")
    versions: Seen = []
    store.watch_data("/a", lambda data, stat: versions.append(stat.version if stat else None))
    assert harness.settles(lambda: versions == [0])
    other.write("/a", b"same")
    assert harness.settles(lambda: versions == [0, 1])


def test_the_last_of_many_quick_changes_is_seen(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a", b"0")
    seen: Seen = []
    store.watch_data("/a", lambda data, stat: seen.append(data))
    for number in range(1, 101):
        other.write("/a", b"%d" % number)
    assert harness.settles(lambda: bool(seen) and seen[-1] == b"100")


def test_all_watches_of_a_znode_are_called(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    one: Seen = []
    two: Seen = []
    store.watch_children("/a", one.append)
    store.watch_children("/a", two.append)
    other.create("/a")
    assert harness.settles(lambda: one[-1:] == [[]] and two[-1:] == [[]])


def test_a_cancelled_watch_is_silent(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    cancelled: Seen = []
    kept: Seen = []
    watch = store.watch_children("/a", cancelled.append)
    store.watch_children("/a", kept.append)
    assert harness.settles(lambda: cancelled == [None] and kept == [None])
    watch.cancel()
    other.create("/a")
    assert harness.settles(lambda: kept == [None, []])
    assert cancelled == [None]


def test_a_callback_may_use_the_store_and_watch_more(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a")
    seen: dict[str, bytes | None] = {}

    def take(path: str, data: bytes | None, stat: Stat | None) -> None:
        seen[path] = data

    def on_children(names: list[str] | None) -> None:
        for name in names or []:
            path = f"/a/{name}"
            if path not in seen:
                seen[path] = store.read(path)[0]
                store.watch_data(path, partial(take, path))

    store.watch_children("/a", on_children)
    other.create("/a/b", b"1")
    assert harness.settles(lambda: seen == {"/a/b": b"1"})
    other.write("/a/b", b"2")
    assert harness.settles(lambda: seen == {"/a/b": b"2"})


def test_a_watch_catches_up_after_a_lost_connection(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a")
    seen: Seen = []
    states: Seen = []
    store.on_session(states.append)
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [[]])
    harness.cut(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED])
    other.create("/a/b")
    harness.mend(store)
    assert harness.settles(lambda: seen == [[], ["b"]])
    other.create("/a/c")
    assert harness.settles(lambda: seen == [[], ["b"], ["b", "c"]])


def test_a_lost_connection_repeats_no_state(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a", b"1")
    seen: Seen = []
    states: Seen = []
    store.on_session(states.append)
    store.watch_data("/a", lambda data, stat: seen.append(data))
    assert harness.settles(lambda: seen == [b"1"])
    harness.cut(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED])
    harness.mend(store)
    assert harness.settles(lambda: SessionState.CONNECTED in states)
    other.write("/a", b"2")
    assert harness.settles(lambda: seen[-1] == b"2")
    assert seen == [b"1", b"2"]


def test_a_watch_set_without_a_connection_begins_with_it(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    states: Seen = []
    seen: Seen = []
    store.on_session(states.append)
    harness.cut(store)
    assert harness.settles(lambda: states == [SessionState.SUSPENDED])
    store.watch_children("/a", seen.append)
    other.create("/a")
    harness.mend(store)
    assert harness.settles(lambda: seen == [[]])


def test_a_watch_is_armed_again_after_expiry(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    store.create("/a")
    store.create("/a/mine", ephemeral=True)
    seen: Seen = []
    store.watch_children("/a", seen.append)
    assert harness.settles(lambda: seen == [["mine"]])
    harness.expire(store)
    assert harness.settles(lambda: seen[-1] == [])
    other.create("/a/other")
    assert harness.settles(lambda: seen[-1] == ["other"])


def test_closed_store_runs_no_callback(harness: ZooKeeperHarness) -> None:
    store, other = harness.connect(), harness.connect()
    closed: Seen = []
    open_: Seen = []
    store.watch_children("/a", closed.append)
    other.watch_children("/a", open_.append)
    assert harness.settles(lambda: closed == [None] and open_ == [None])
    store.close()
    other.create("/a")
    assert harness.settles(lambda: open_ == [None, []])
    assert closed == [None]
