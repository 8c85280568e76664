"""A high-level consumer on a ZooKeeper in memory: what it registers, owns, hands out and commits."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from minikafka.base.errors import (
    ConfigError,
    ConsumerRebalanceFailed,
    CoordinationLost,
    MessageStreamsExist,
    NodeExists,
    SessionExpired,
    UndecodableMessage,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry, FetchRequestAndResponseStatsRegistry
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.serializer import LongDecoder, StringDecoder
from minikafka.registry import paths
from tests.unit.clients.consumer.connectors import GROUP, World, cut_off
from tests.unit.clients.consumer.streams import fill, offsets

GOLDEN = Path(__file__).parents[3] / "data" / "zookeeper"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> World:
    return World(t=4)


def recorded(name: str) -> dict[str, tuple[str, bool, int]]:
    """What old consumers of 0.10.1.1 had in ZooKeeper: data, ephemeral, version; times left out."""
    nodes = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    return {
        path: (without_time(node["data"] or ""), node["ephemeral"], node["version"])
        for path, node in nodes.items()
        if path.startswith(paths.CONSUMERS)
    }


def present(world: World) -> dict[str, tuple[str, bool, int]]:
    found = {}

    def visit(path: str) -> None:
        data, stat = world.admin.read(path)
        found[path] = without_time(data.decode()), bool(stat.ephemeral_owner), stat.version
        for name in world.admin.children(path):
            visit(f"{path}/{name}")

    visit(paths.CONSUMERS)
    return found


def without_time(data: str) -> str:
    return re.sub(r'"timestamp":"\d{13}"', '"timestamp":"…"', data)


def test_znodes_are_those_of_the_release_while_consumers_run_and_after_they_closed() -> None:
    world = World(orders=2, payments=2)
    old = {"group_id": "old-group", "auto_offset_reset": "smallest"}
    first = world.one("c1", **old).reads(orders=2)
    world.go(5)
    second = world.one("c2", **old).reads(orders=1)
    white = world.one("w1", group_id="white-group")
    white.streams = white.connector.create_message_streams_by_filter(Whitelist("ord.*,pay.*"))
    world.go()
    for one in world.ones:
        one.fetched.bring(0)
        for info in one.fetched.infos.values():
            if info.partition == 0:
                fill(info, 200)
    for one in world.ones:
        for number in range(len(one.streams)):
            one.take(1_000, number)
        one.connector.auto_commit()
    assert present(world) == recorded("03-old-consumers-running.json")
    for one in (first, second, white):
        one.connector.shutdown()
    assert present(world) == recorded("04-old-consumers-closed.json")


def test_a_consumer_is_called_by_its_group_and_given_id_or_by_a_name_of_its_own(world: World) -> None:
    assert world.one("c").connector.consumer_id_string == "g_c"
    own = world.one().connector.consumer_id_string
    assert re.fullmatch(r"g_.+-1700000000000-[0-9a-f]{8}", own)
    assert own != world.one().connector.consumer_id_string


def test_streams_are_created_at_most_once(world: World) -> None:
    one = world.one("a")
    with pytest.raises(ConfigError):
        one.connector.create_message_streams({"t": 0})
    one.reads(t=1)
    with pytest.raises(MessageStreamsExist):
        one.connector.create_message_streams({"t": 1})
    with pytest.raises(MessageStreamsExist):
        one.connector.create_message_streams_by_filter(Whitelist("t"))
    with pytest.raises(MessageStreamsExist):
        one.connector.set_consumer_rebalance_listener(Hook())


def test_partitions_are_divided_and_taken_over(world: World) -> None:
    a = world.one("a").reads(t=1)
    world.go()
    assert world.owners() == ["g_a-0"] * 4
    b = world.one("b").reads(t=2)
    world.go()
    assert world.owners() == ["g_a-0", "g_a-0", "g_b-0", "g_b-1"]
    a.connector.shutdown()
    world.go()
    assert world.owners() == ["g_b-0", "g_b-0", "g_b-1", "g_b-1"]
    assert a.fetched.ended
    assert len(b.fetched.infos) == 4


def test_messages_are_decoded(world: World) -> None:
    one = world.one("a")
    decoder = StringDecoder()
    one.streams = one.connector.create_message_streams({"t": 1}, decoder, decoder)["t"]
    world.go()
    one.fetched.bring(1)
    (message,) = one.take(1)
    assert (message.key, message.message) == ("k", "0")


def test_a_message_counts_when_the_next_one_is_asked_for(world: World) -> None:
    one = world.one("a", auto_commit_interval_ms=100).reads(t=1)
    world.topic("t", 1)
    world.go()
    one.fetched.bring(3)
    assert offsets(one.take(2)) == [0, 1]
    world.go(20)
    assert world.offset() == b"1"


def test_an_explicit_commit_and_a_shutdown_count_all_that_was_handed_out() -> None:
    world = World(t=1)
    one = world.one("a", auto_commit_enable=False).reads(t=1)
    world.go()
    one.fetched.bring(5)
    one.take(2)
    one.connector.commit_offsets()
    assert world.offset() == b"2"
    one.take(1)
    one.connector.shutdown()
    assert world.offset() == b"2"
    other = world.one("b").reads(t=1)
    world.go()
    other.fetched.bring(2)
    other.take(1)
    other.connector.shutdown()
    assert world.offset() == b"3"


def test_a_message_whose_work_raises_is_not_counted_at_the_end_of_the_block() -> None:
    world = World(t=1)
    one = world.one("a").reads(t=1)
    world.go()
    one.fetched.bring(5)

    def works() -> None:
        with one.connector:
            one.take(3)
            raise OSError("no work")

    with pytest.raises(OSError, match="no work"):
        works()
    assert world.offset() == b"2"


@pytest.mark.parametrize("explicit", [False, True])
def test_a_message_that_could_not_be_decoded_is_counted_neither_by_a_commit_nor_by_the_shutdown(
    explicit: bool,
) -> None:
    world = World(t=1)
    one = world.one("a")
    one.streams = one.connector.create_message_streams({"t": 1}, LongDecoder(), LongDecoder())["t"]
    world.go()
    one.fetched.bring(5)
    *_, last = one.take(3)
    with pytest.raises(UndecodableMessage):
        _ = last.message
    if explicit:
        one.connector.commit_offsets()
        assert world.offset() == b"2"
    one.connector.shutdown()
    assert world.offset() == b"2"


def test_at_a_rebalance_nothing_of_the_chunk_is_handed_out_any_more_and_what_was_is_waited_for() -> None:
    world = World(t=2)
    a = world.one("a").reads(t=1)
    world.go()
    a.fetched.bring(3)
    assert [(m.partition, m.offset) for m in a.take(4)][-1] == (1, 0)
    world.one("b").reads(t=1)
    world.go(10, asks=False)
    assert world.owners() == ["g_a-0", "g_a-0"]
    assert a.take(1) == []
    world.go(40)
    assert world.owners() == ["g_a-0", "g_b-0"]
    assert world.offset(1) == b"1"


def test_the_message_in_work_is_not_given_out_again_where_its_partition_stays() -> None:
    world = World(t=2)
    a = world.one("a").reads(t=1)
    world.go()
    a.fetched.bring(3)
    assert offsets(a.take(1)) == [0]
    world.one("b").reads(t=1)
    world.go(80, asks=False)
    assert world.owners() == ["g_a-0", "g_b-0"]
    assert [info.fetched_offset for info in a.fetched.infos.values()] == [1]
    assert world.offset() == b"0"
    a.fetched.bring(2)
    assert offsets(a.take(2)) == [1, 2]
    a.connector.commit_offsets()
    assert world.offset() == b"3"


def test_a_partition_is_given_up_at_once_while_a_message_of_one_that_stays_is_in_work() -> None:
    world = World(t=2)
    a = world.one("a").reads(t=1)
    world.go()
    a.fetched.bring(3)
    assert offsets(a.take(1)) == [0]
    world.one("b").reads(t=1)
    world.go(10, asks=False)
    assert world.owners() == ["g_a-0"]


def test_a_new_owner_begins_with_the_message_that_the_slower_one_still_works_on() -> None:
    world = World(t=2)
    a = world.one("a").reads(t=1)
    world.go()
    a.fetched.bring(3)
    assert [(m.partition, m.offset) for m in a.take(4)][-1] == (1, 0)
    b = world.one("b").reads(t=1)
    world.go(80, asks=False)
    assert {tp: info.fetched_offset for tp, info in b.fetched.infos.items()} == {T1: 0}
    assert (world.offset(0), world.offset(1)) == (b"3", b"0")
    a.take(1)  # it asks for more at last, and commits what it owns
    a.connector.commit_offsets()
    assert world.offset(1) == b"0"


def test_without_automatic_commits_a_partition_that_stays_is_read_on_where_it_was() -> None:
    world = World(t=2)
    a = world.one("a", auto_commit_enable=False).reads(t=1)
    world.go()
    a.fetched.bring(3)
    a.take(2)
    b = world.one("b").reads(t=1)
    world.go()
    # One more was asked for before the rebalance, and all three are done with.
    assert {tp: info.fetched_offset for tp, info in a.fetched.infos.items()} == {T0: 3}
    assert {tp: info.fetched_offset for tp, info in b.fetched.infos.items()} == {T1: -1}
    assert world.offset() is None


def test_a_rebalance_that_changes_nothing_for_a_consumer_does_not_stop_it(world: World) -> None:
    a = world.one("a").reads(t=1)
    world.go()
    world.admin.create(f"{paths.BROKER_IDS}/1", b"{}")
    world.one("b").reads(u=1)
    world.go()
    assert a.fetched.starts == 1


def test_topics_and_partitions_that_come_later_are_read() -> None:
    world = World(ta=1)
    one = world.one("a")
    one.streams = one.connector.create_message_streams_by_filter(Whitelist("t."))
    static = world.one("b", group_id="h").reads(tb=1)
    world.go()
    assert set(one.fetched.infos) == {TopicPartition("ta", 0)}
    assert not static.fetched.infos
    world.topic("tb", 1)
    world.topic("ta", 2)
    world.topic("no", 1)
    world.go()
    assert set(one.fetched.infos) == {("ta", 0), ("ta", 1), ("tb", 0)}
    assert set(static.fetched.infos) == {("tb", 0)}


def test_a_topic_that_is_deleted_is_given_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ta=1, tb=1)
    one = world.one("a").reads(ta=1, tb=1)
    world.go()
    world.admin.delete(paths.topic_path("tb"))
    with caplog.at_level(logging.WARNING, "minikafka.clients.consumer"):
        world.go()
    assert "topic tb was deleted while this consumer reads it" in caplog.text
    assert set(one.fetched.infos) == {("ta", 0)}
    assert world.owners("tb") == []


@pytest.mark.parametrize(
    ("connect", "place", "chroot"),
    [("zk:2181/kafak", "/kafak/brokers/ids", "'/kafak' here"), ("zk:2181", "/brokers/ids", "none here")],
)
def test_without_brokers_it_waits_for_the_first(
    world: World, connect: str, place: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.admin.delete(f"{paths.BROKER_IDS}/0")
    one = world.one("a", zookeeper_connect=connect).reads(t=1)
    with caplog.at_level(logging.WARNING, "minikafka.clients.consumer"):
        world.go()
    assert one.fetched.starts == 0
    said = (
        f"g_a: no brokers to read from: {place} on ZooKeeper at zk:2181 names none. Check that a "
        f"broker runs, and that zookeeper.connect='{connect}' is as in its own settings, with the chroot "
        f"({chroot})"
    )
    assert set(caplog.messages) == {said}
    world.admin.create(f"{paths.BROKER_IDS}/3", b"{}")
    world.go()
    assert len(one.fetched.infos) == 4


def test_nothing_is_handed_out_while_others_may_own_it(world: World) -> None:
    one = world.one("a").reads(t=1)
    world.go()
    one.fetched.bring(3)
    world.zookeeper.suspend(one.store)
    world.clock.advance(2_000)
    assert len(one.take(1)) == 1
    world.clock.advance(701)
    assert one.take(1) == []
    with pytest.raises(CoordinationLost, match="nothing is committed"):
        one.connector.commit_offsets()
    world.zookeeper.resume(one.store)
    world.go(1)
    assert len(one.take(1)) == 1


def test_after_its_session_has_expired_it_registers_and_owns_anew() -> None:
    world = World(t=2)
    a, b = world.one("a").reads(t=1), world.one("b").reads(t=1)
    world.go()
    a.fetched.bring(3)
    a.take(2)
    world.ones = [b]
    cut_off(world, a)
    world.go()
    assert world.owners() == ["g_b-0", "g_b-0"]
    assert a.take(1) == []
    world.zookeeper.resume(a.store)
    assert a.take(1) == []
    world.ones = [a, b]
    world.go()
    assert world.owners() == ["g_a-0", "g_b-0"]
    assert world.offset() is None
    a.fetched.bring(1)
    assert offsets(a.take(1)) == [0]


def test_an_owner_that_came_after_the_look_and_before_the_deletion_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.one("a").reads(t=1)
    world.go()
    listener = one.connector.load_balancer_listener
    owned, path = listener.still_owned, paths.consumer_owner_path(GROUP, *T0)

    def look(partitions: list[TopicPartition]) -> frozenset[TopicPartition]:
        found = owned(partitions)
        world.zookeeper.expire(one.store)
        world.admin.create(path, b"g_z-0", ephemeral=True)
        return found

    monkeypatch.setattr(listener, "still_owned", look)
    with pytest.raises(SessionExpired, match="g_a is gone"):
        listener.delete_partition_ownership_from_zk(T0)
    assert world.admin.read(path)[0] == b"g_z-0"


def test_late_news_of_the_old_sessions_end_holds_up_the_new_one_no_longer_than_until_it_is_renewed() -> None:
    world = World(t=1)
    one = world.one("a").reads(t=1)
    world.go()
    cut_off(world, one)
    world.zookeeper.resume(one.store)
    one.connector.load_balancer_listener.rebalance_event_triggered()
    for _ in range(60):  # before any news of the session are delivered
        one.connector.step()
    one.fetched.bring(5)
    assert len(one.take(1)) == 1
    world.zookeeper.deliver()
    assert one.take(1) == []
    world.go(101)
    assert len(one.take(1)) == 1


def test_a_registration_that_somebody_deletes_is_made_again(world: World) -> None:
    one = world.one("a").reads(t=1)
    world.go()
    path = paths.consumer_id_path(GROUP, "g_a")
    world.admin.delete(path)
    world.go()
    assert world.admin.exists(path) is not None
    assert len(one.fetched.infos) == 4


def test_one_of_the_same_name_is_waited_for_and_then_refused(world: World) -> None:
    first = world.one("a").reads(t=1)
    world.go()
    second = world.one("a").reads(t=1)
    world.go()
    assert second.fetched.starts == 0
    first.connector.shutdown()
    world.go()
    assert len(second.fetched.infos) == 4
    third = world.one("a", rebalance_max_retries=1).reads(t=1)
    world.go(700)
    with pytest.raises(ConsumerRebalanceFailed, match=NodeExists.__name__):
        third.take(1)


def test_after_the_last_attempt_all_is_released_and_its_streams_raise(world: World) -> None:
    owner = paths.consumer_owner_path(GROUP, "t", 2)
    world.admin.create(owner, b"g_gone-0", make_parents=True)
    one = world.one("a", rebalance_max_retries=3).reads(t=2)
    world.go(30)
    assert world.owners() == ["g_a-0", "g_a-0", "g_gone-0", "g_a-1"]
    world.go(60)
    assert world.owners() == ["g_gone-0"]
    assert world.admin.children(paths.consumer_ids_path(GROUP)) == []
    for number in range(2):
        with pytest.raises(ConsumerRebalanceFailed, match=r"3 attempts .* t-2 is owned by g_gone-0"):
            one.take(1, number)
    one.connector.shutdown()


def test_a_partition_is_read_once_the_other_has_let_go(world: World) -> None:
    owner = paths.consumer_owner_path(GROUP, "t", 2)
    world.admin.create(owner, b"g_gone-0", make_parents=True)
    one = world.one("a", rebalance_max_retries=3).reads(t=1)
    world.go(30)
    assert one.fetched.starts == 0
    world.admin.delete(owner)
    world.go(30)
    assert len(one.fetched.infos) == 4


def test_lost_answers_leave_nothing_behind(world: World) -> None:
    one = world.one("a").reads(t=1)
    for _ in range(60):
        world.zookeeper.lose_next_answer(one.store)
        world.go(10)
    assert world.owners() == ["g_a-0"] * 4
    assert len(one.fetched.infos) == 4


class Hook:
    """A rebalance listener that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.fails = 0

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        self.told.append(dict(ownership))

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[str, Mapping[int, ConsumerThreadId]]
    ) -> None:
        self.told.append((consumer_id, {t: {p: str(o) for p, o in a.items()} for t, a in assignment.items()}))
        if self.fails:
            self.fails -= 1
            raise ValueError("not now")


def test_a_rebalance_listener_is_told_before_the_release_and_before_the_fetch() -> None:
    world = World(t=2)
    a, hook = world.one("a"), Hook()
    a.connector.set_consumer_rebalance_listener(hook)
    a.reads(t=1)
    world.go()
    assert hook.told == [{}, ("g_a", {"t": {0: "g_a-0", 1: "g_a-0"}})]
    hook.told.clear()
    hook.fails = 1
    world.one("b").reads(t=1)
    world.go()
    shared = ("g_a", {"t": {0: "g_a-0", 1: "g_b-0"}})
    assert hook.told == [{"t": {0, 1}}, shared, {"t": {0}}, shared]
    assert set(a.fetched.infos) == {T0}


@pytest.mark.parametrize("late", [False, True])
def test_what_a_rebalance_listener_commits_leaves_out_the_message_that_is_in_work(late: bool) -> None:
    class Committing(Hook):
        def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
            if not late:
                a.connector.commit_offsets()

        def before_starting_fetchers(self, *told: object) -> None:
            if late:
                a.connector.commit_offsets()

    world = World(t=2)
    a = world.one("a", auto_commit_enable=False)
    a.connector.set_consumer_rebalance_listener(Committing())
    a.reads(t=1)
    world.go()
    a.fetched.bring(3)
    assert offsets(a.take(2)) == [0, 1]
    world.one("b").reads(t=1)
    world.go(80, asks=False)
    assert world.owners() == ["g_a-0", "g_b-0"]
    assert world.offset() == b"1"
    a.connector.commit_offsets()
    assert world.offset() == b"2"


def test_offsets_are_kept_at_the_coordinator_and_in_zookeeper(world: World) -> None:
    world.coordinator.offsets[T0] = 2
    one = world.one("a", offsets_storage="kafka", auto_commit_interval_ms=100).reads(t=1)
    assert world.coordinator.connected == 1
    world.go()
    assert {tp.partition: info.fetched_offset for tp, info in one.fetched.infos.items()}[0] == 2
    one.fetched.bring(3)
    one.take(100)
    one.connector.shutdown()
    assert world.coordinator.offsets[T0] == 5
    assert world.offset() == b"5"
    assert world.coordinator.closed


def test_the_stats_of_a_client_are_forgotten_when_the_last_of_its_consumers_leaves(world: World) -> None:
    client = "stats-of-two"
    ones = [world.one(name, client_id=client).reads(t=1) for name in "ab"]
    world.go()
    ones[0].fetched.bring(5)
    ones[0].take(11)
    before = ConsumerTopicStatsRegistry.get(client)
    fetches = FetchRequestAndResponseStatsRegistry.get(client)
    assert before.topic("t").messages.count == 10
    ones[0].connector.shutdown()
    ones[0].connector.shutdown()
    assert ConsumerTopicStatsRegistry.get(client) is before
    assert FetchRequestAndResponseStatsRegistry.get(client) is fetches
    ones[1].connector.shutdown()
    assert client not in ConsumerTopicStatsRegistry._stats
    assert client not in FetchRequestAndResponseStatsRegistry._stats


def test_owned_partitions_are_counted_by_topic_until_they_are_released() -> None:
    world = World(t=2, u=1)
    a = world.one("a").reads(t=1, u=1)
    counted = a.connector.load_balancer_listener
    assert counted.owned_partitions_count == {}
    world.go()
    assert counted.owned_partitions_count == {"t": 2, "u": 1}
    b = world.one("b").reads(t=1)
    world.go()
    assert counted.owned_partitions_count == {"t": 1, "u": 1}
    cut_off(world, a)
    world.zookeeper.resume(a.store)
    world.zookeeper.deliver()
    a.connector.step()
    assert counted.owned_partitions_count == {}
    world.go()
    b.connector.shutdown()
    assert b.connector.load_balancer_listener.owned_partitions_count == {}


def test_a_second_shutdown_does_nothing_and_nothing_begins_after_it(world: World) -> None:
    with world.one("a").connector as connector:
        connector.shutdown()
    with pytest.raises(ValueError, match="g_a is shut down"):
        connector.create_message_streams({"t": 1})
    assert not connector.step()
