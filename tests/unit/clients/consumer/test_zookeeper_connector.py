"""A high-level consumer on a ZooKeeper in memory: its registration, ownership, deliveries and commits."""

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
    NetworkError,
    NodeExists,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry, FetchRequestAndResponseStatsRegistry
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.serializer import StringDecoder
from minikafka.registry import paths
from minikafka.wire.api import ApiKey
from tests.support.connector_harness import GROUP, ZooKeeperGroupHarness, cut_off
from tests.support.consumer_streams import fill, offsets

GOLDEN = Path(__file__).parents[3] / "data" / "zookeeper"
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def harness() -> ZooKeeperGroupHarness:
    return ZooKeeperGroupHarness(t=4)


def recorded(name: str) -> dict[str, tuple[str, bool, int]]:
    """Return the recorded znodes of old consumers of 0.10.1.1, without times: data, ephemeral, version."""
    nodes = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    return {
        path: (without_time(node["data"] or ""), node["ephemeral"], node["version"])
        for path, node in nodes.items()
        if path.startswith(paths.CONSUMERS)
    }


def present(harness: ZooKeeperGroupHarness) -> dict[str, tuple[str, bool, int]]:
    found = {}

    def visit(path: str) -> None:
        data, stat = harness.admin.read(path)
        found[path] = without_time(data.decode()), bool(stat.ephemeral_owner), stat.version
        for name in harness.admin.children(path):
            visit(f"{path}/{name}")

    visit(paths.CONSUMERS)
    return found


def without_time(data: str) -> str:
    return re.sub(r'"timestamp":"\d{13}"', '"timestamp":"…"', data)


def test_znodes_equal_those_of_the_release_during_and_after_a_run() -> None:
    harness = ZooKeeperGroupHarness(orders=2, payments=2)
    old = {"group_id": "old-group", "auto_offset_reset": "smallest"}
    first = harness.consumer("c1", **old).reads(orders=2)
    harness.go(5)
    second = harness.consumer("c2", **old).reads(orders=1)
    white = harness.consumer("w1", group_id="white-group")
    white.streams = white.connector.create_message_streams_by_filter(Whitelist("ord.*,pay.*"))
    harness.go()
    for consumer in harness.consumers:
        consumer.fetcher.deliver(0)
        for info in consumer.fetcher.infos.values():
            if info.partition == 0:
                fill(info, 200)
    for consumer in harness.consumers:
        for number in range(len(consumer.streams)):
            consumer.take(1_000, number)
        consumer.connector.auto_commit()
    assert present(harness) == recorded("03-old-consumers-running.json")
    for consumer in (first, second, white):
        consumer.connector.shutdown()
    assert present(harness) == recorded("04-old-consumers-closed.json")


def test_consumer_id_is_configured_or_generated(harness: ZooKeeperGroupHarness) -> None:
    assert harness.consumer("c").connector.consumer_id_string == "g_c"
    own = harness.consumer().connector.consumer_id_string
    assert re.fullmatch(r"g_.+-1700000000000-[0-9a-f]{8}", own)
    assert own != harness.consumer().connector.consumer_id_string


def test_streams_are_created_at_most_once(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a")
    with pytest.raises(ConfigError):
        consumer.connector.create_message_streams({"t": 0})
    consumer.reads(t=1)
    with pytest.raises(MessageStreamsExist):
        consumer.connector.create_message_streams({"t": 1})
    with pytest.raises(MessageStreamsExist):
        consumer.connector.create_message_streams_by_filter(Whitelist("t"))
    with pytest.raises(MessageStreamsExist):
        consumer.connector.set_consumer_rebalance_listener(RecordingListener())


def test_partitions_are_divided_and_taken_over_at_a_shutdown(harness: ZooKeeperGroupHarness) -> None:
    a = harness.consumer("a").joins(t=1)
    assert harness.owners() == ["g_a-0"] * 4
    b = harness.consumer("b").joins(t=2)
    assert harness.owners() == ["g_a-0", "g_a-0", "g_b-0", "g_b-1"]
    a.connector.shutdown()
    harness.go()
    assert harness.owners() == ["g_b-0", "g_b-0", "g_b-1", "g_b-1"]
    assert a.fetcher.ended
    assert len(b.fetcher.infos) == 4


def test_messages_are_decoded(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a")
    consumer.streams = consumer.connector.create_message_streams({"t": 1}, StringDecoder(), json.loads)["t"]
    harness.deliver(consumer, 1)
    (message,) = consumer.take(1)
    assert (message.key, message.message) == ("k", 0)


def test_keys_stay_bytes_if_only_values_have_a_decoder(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a")
    consumer.streams = consumer.connector.create_message_streams({"t": 1}, value_decoder=json.loads)["t"]
    harness.deliver(consumer, 1)
    (message,) = consumer.take(1)
    assert (message.key, message.message) == (b"k", 0)


def test_message_is_committed_once_the_next_is_requested(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a", auto_commit_interval_ms=100).reads(t=1)
    harness.brokers.add_topic("t", 1)
    harness.deliver(consumer, 3)
    assert offsets(consumer.take(2)) == [0, 1]
    harness.go(20)
    assert harness.offset() == b"1"


def test_explicit_commit_and_shutdown_count_delivered_messages() -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer("a", auto_commit_enable=False).joins(t=1).receives(5)
    consumer.take(2)
    consumer.connector.commit_offsets()
    assert harness.offset() == b"2"
    consumer.take(1)
    consumer.connector.shutdown()
    assert harness.offset() == b"2"
    other = harness.consumer("b").joins(t=1).receives(2)
    other.take(1)
    other.connector.shutdown()
    assert harness.offset() == b"3"


def test_message_whose_block_raises_does_not_count() -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer("a").joins(t=1).receives(5)

    def process() -> None:
        with consumer.connector:
            consumer.take(3)
            raise OSError("processing failed")

    with pytest.raises(OSError, match="processing failed"):
        process()
    assert harness.offset() == b"2"


def test_rebalance_waits_for_the_message_in_process() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a").joins(t=1).receives(3)
    assert [(m.partition, m.offset) for m in a.take(4)][-1] == (1, 0)
    harness.consumer("b").reads(t=1)
    harness.go(10, requests=False)
    assert harness.owners() == ["g_a-0", "g_a-0"]
    assert a.take(1) == []
    harness.go(40)
    assert harness.owners() == ["g_a-0", "g_b-0"]
    assert harness.offset(1) == b"1"


def test_message_in_process_of_a_kept_partition_is_not_redelivered() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a").joins(t=1).receives(3)
    assert offsets(a.take(1)) == [0]
    harness.consumer("b").reads(t=1)
    harness.go(80, requests=False)
    assert harness.owners() == ["g_a-0", "g_b-0"]
    assert [info.fetched_offset for info in a.fetcher.infos.values()] == [1]
    assert harness.offset() == b"0"
    a.fetcher.deliver(2)
    assert offsets(a.take(2)) == [1, 2]
    a.connector.commit_offsets()
    assert harness.offset() == b"3"


def test_message_of_a_kept_partition_does_not_delay_the_release() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a").joins(t=1).receives(3)
    assert offsets(a.take(1)) == [0]
    harness.consumer("b").reads(t=1)
    harness.go(10, requests=False)
    assert harness.owners() == ["g_a-0"]


def test_new_owner_starts_with_the_message_in_process() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a").joins(t=1).receives(3)
    assert [(m.partition, m.offset) for m in a.take(4)][-1] == (1, 0)
    b = harness.consumer("b").reads(t=1)
    harness.go(80, requests=False)
    assert {tp: info.fetched_offset for tp, info in b.fetcher.infos.items()} == {T1: 0}
    assert (harness.offset(0), harness.offset(1)) == (b"3", b"0")
    a.take(1)  # the late request; then it commits the partitions that it owns
    a.connector.commit_offsets()
    assert harness.offset(1) == b"0"


def test_kept_partition_continues_in_place_without_auto_commit() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a", auto_commit_enable=False).joins(t=1).receives(3)
    a.take(2)
    b = harness.consumer("b").joins(t=1)
    # A third message was requested before the rebalance, and all three are processed.
    assert {tp: info.fetched_offset for tp, info in a.fetcher.infos.items()} == {T0: 3}
    assert {tp: info.fetched_offset for tp, info in b.fetcher.infos.items()} == {T1: -1}
    assert harness.offset() is None


def test_rebalance_without_changes_does_not_stop_a_consumer(harness: ZooKeeperGroupHarness) -> None:
    a = harness.consumer("a").joins(t=1)
    harness.admin.create(f"{paths.BROKER_IDS}/2", b"{}")
    harness.consumer("b").joins(u=1)
    assert a.fetcher.starts == 1


def test_later_topics_and_partitions_are_read() -> None:
    harness = ZooKeeperGroupHarness(ta=1)
    consumer = harness.consumer("a")
    consumer.streams = consumer.connector.create_message_streams_by_filter(Whitelist("t."))
    static = harness.consumer("b", group_id="h").joins(tb=1)
    assert set(consumer.fetcher.infos) == {TopicPartition("ta", 0)}
    assert not static.fetcher.infos
    harness.brokers.add_topic("tb", 1)
    harness.brokers.add_topic("ta", 2)
    harness.brokers.add_topic("no", 1)
    harness.go()
    assert set(consumer.fetcher.infos) == {("ta", 0), ("ta", 1), ("tb", 0)}
    assert set(static.fetcher.infos) == {("tb", 0)}


def test_deleted_topic_is_released_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    harness = ZooKeeperGroupHarness(ta=1, tb=1)
    consumer = harness.consumer("a").joins(ta=1, tb=1)
    harness.brokers.delete_topic("tb")
    with caplog.at_level(logging.WARNING, "minikafka.clients.consumer"):
        harness.go()
    assert "topic tb was deleted while this consumer reads it" in caplog.text
    assert set(consumer.fetcher.infos) == {("ta", 0)}
    assert harness.owners("tb") == []


@pytest.mark.parametrize(
    ("connect", "path", "chroot"),
    [("zk:2181/kafak", "/kafak/brokers/ids", "'/kafak' here"), ("zk:2181", "/brokers/ids", "none here")],
)
def test_consumer_without_brokers_waits_for_the_first(
    harness: ZooKeeperGroupHarness, connect: str, path: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness.brokers.stop(1)
    consumer = harness.consumer("a", zookeeper_connect=connect).reads(t=1)
    with caplog.at_level(logging.WARNING, "minikafka.clients.consumer"):
        harness.go()
    assert consumer.fetcher.starts == 0
    warning = (
        f"g_a: no brokers to read from: {path} on ZooKeeper at zk:2181 is empty. Check that a "
        f"broker runs, and that zookeeper.connect='{connect}' is the same as in the broker's settings, "
        f"with its chroot ({chroot})"
    )
    assert set(caplog.messages) == {warning}
    harness.brokers.start(1)
    harness.go()
    assert len(consumer.fetcher.infos) == 4


def test_nothing_is_delivered_while_others_may_own_partitions(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a").joins(t=1).receives(3)
    harness.zookeeper.suspend(consumer.store)
    harness.clock.advance(2_000)
    assert len(consumer.take(1)) == 1
    harness.clock.advance(701)
    assert consumer.take(1) == []
    with pytest.raises(CoordinationLost, match="nothing is committed"):
        consumer.connector.commit_offsets()
    harness.zookeeper.resume(consumer.store)
    harness.go(1)
    assert len(consumer.take(1)) == 1


def test_consumer_registers_again_after_its_session_expired() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a, b = harness.consumer("a", auto_offset_reset="smallest").reads(t=1), harness.consumer("b").reads(t=1)
    harness.deliver(a, 3)
    a.take(2)
    harness.consumers = [b]
    cut_off(harness, a)
    harness.go()
    assert harness.owners() == ["g_b-0", "g_b-0"]
    assert a.take(1) == []
    harness.zookeeper.resume(a.store)
    assert a.take(1) == []
    harness.consumers = [a, b]
    harness.go()
    assert harness.owners() == ["g_a-0", "g_b-0"]
    assert harness.offset() is None
    a.fetcher.deliver(1)
    assert offsets(a.take(1)) == [0]


def test_late_expiry_event_pauses_the_new_session_only_until_renewal() -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer("a").joins(t=1)
    cut_off(harness, consumer)
    harness.zookeeper.resume(consumer.store)
    consumer.connector.load_balancer_listener.rebalance_event_triggered()
    harness.brokers.simulation.watches_are_held = True
    for _ in range(60):
        consumer.connector.step()
    consumer.fetcher.deliver(5)
    assert len(consumer.take(1)) == 1
    harness.brokers.simulation.watches_are_held = False
    harness.zookeeper.deliver()
    assert consumer.take(1) == []
    harness.go(101)
    assert len(consumer.take(1)) == 1


def test_deleted_registration_is_created_again(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a").joins(t=1)
    path = paths.consumer_id_path(GROUP, "g_a")
    harness.admin.delete(path)
    harness.go()
    assert harness.admin.exists(path) is not None
    assert len(consumer.fetcher.infos) == 4


def test_consumer_of_the_same_name_is_waited_for_then_refused(harness: ZooKeeperGroupHarness) -> None:
    first = harness.consumer("a").joins(t=1)
    second = harness.consumer("a").joins(t=1)
    assert second.fetcher.starts == 0
    first.connector.shutdown()
    harness.go()
    assert len(second.fetcher.infos) == 4
    third = harness.consumer("a", rebalance_max_retries=1).reads(t=1)
    harness.go(700)
    with pytest.raises(ConsumerRebalanceFailed, match=NodeExists.__name__):
        third.take(1)


def test_streams_raise_after_the_last_rebalance_attempt(harness: ZooKeeperGroupHarness) -> None:
    owner = paths.consumer_owner_path(GROUP, "t", 2)
    harness.admin.create(owner, b"g_other-0", make_parents=True)
    consumer = harness.consumer("a", rebalance_max_retries=3).reads(t=2)
    harness.go(30)
    assert harness.owners() == ["g_a-0", "g_a-0", "g_other-0", "g_a-1"]
    harness.go(60)
    assert harness.owners() == ["g_other-0"]
    assert harness.admin.children(paths.consumer_ids_path(GROUP)) == []
    for number in range(2):
        with pytest.raises(ConsumerRebalanceFailed, match=r"3 attempts .* t-2 is owned by g_other-0"):
            consumer.take(1, number)
    consumer.connector.shutdown()


def test_partition_is_read_once_its_owner_has_released_it(harness: ZooKeeperGroupHarness) -> None:
    owner = paths.consumer_owner_path(GROUP, "t", 2)
    harness.admin.create(owner, b"g_other-0", make_parents=True)
    consumer = harness.consumer("a", rebalance_max_retries=3).reads(t=1)
    harness.go(30)
    assert consumer.fetcher.starts == 0
    harness.admin.delete(owner)
    harness.go(30)
    assert len(consumer.fetcher.infos) == 4


def test_rebalance_succeeds_in_spite_of_lost_responses(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a").reads(t=1)
    for _ in range(60):
        harness.zookeeper.lose_next_answer(consumer.store)
        harness.go(10)
    assert harness.owners() == ["g_a-0"] * 4
    assert len(consumer.fetcher.infos) == 4


class RecordingListener:
    """A rebalance listener that records its calls, and may fail."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.fails = 0

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        self.calls.append(dict(ownership))

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[str, Mapping[int, ConsumerThreadId]]
    ) -> None:
        self.calls.append(
            (consumer_id, {t: {p: str(o) for p, o in a.items()} for t, a in assignment.items()})
        )
        if self.fails:
            self.fails -= 1
            raise ValueError("listener failed")


def test_rebalance_listener_is_called_before_release_and_fetch() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a, listener = harness.consumer("a"), RecordingListener()
    a.connector.set_consumer_rebalance_listener(listener)
    a.reads(t=1)
    harness.go()
    assert listener.calls == [{}, ("g_a", {"t": {0: "g_a-0", 1: "g_a-0"}})]
    listener.calls.clear()
    listener.fails = 1
    harness.consumer("b").joins(t=1)
    shared = ("g_a", {"t": {0: "g_a-0", 1: "g_b-0"}})
    assert listener.calls == [{"t": {0, 1}}, shared, {"t": {0}}, shared]
    assert set(a.fetcher.infos) == {T0}


@pytest.mark.parametrize("late", [False, True])
def test_rebalance_listeners_commit_excludes_the_message_in_process(late: bool) -> None:
    class Committing(RecordingListener):
        def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
            if not late:
                a.connector.commit_offsets()

        def before_starting_fetchers(self, *arguments: object) -> None:
            if late:
                a.connector.commit_offsets()

    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a", auto_commit_enable=False)
    a.connector.set_consumer_rebalance_listener(Committing())
    a.reads(t=1)
    harness.deliver(a, 3)
    assert offsets(a.take(2)) == [0, 1]
    harness.consumer("b").reads(t=1)
    harness.go(80, requests=False)
    assert harness.owners() == ["g_a-0", "g_b-0"]
    assert harness.offset() == b"1"
    a.connector.commit_offsets()
    assert harness.offset() == b"2"


def test_offsets_are_kept_at_the_coordinator_and_in_zookeeper(harness: ZooKeeperGroupHarness) -> None:
    harness.brokers.fill(T0, b"0", b"1")
    harness.brokers.commit("g", {T0: 2})
    consumer = harness.consumer("a", offsets_storage="kafka", auto_commit_interval_ms=100).reads(t=1)
    assert len(harness.brokers.asked(ApiKey.FIND_COORDINATOR)) == 1
    harness.go()
    assert {tp.partition: info.fetched_offset for tp, info in consumer.fetcher.infos.items()}[0] == 2
    consumer.fetcher.deliver(3)
    consumer.take(100)
    consumer.connector.shutdown()
    assert harness.brokers.committed("g")[T0] == 5
    assert harness.offset() == b"5"
    with pytest.raises(NetworkError, match="closed"):
        harness.coordinator.fetch([T0])


def test_stats_are_removed_with_the_last_consumer_of_a_client(harness: ZooKeeperGroupHarness) -> None:
    client = "stats-of-two"
    consumers = [harness.consumer(name, client_id=client).reads(t=1) for name in "ab"]
    harness.go()
    consumers[0].fetcher.deliver(5)
    consumers[0].take(11)
    before = ConsumerTopicStatsRegistry.get(client)
    fetches = FetchRequestAndResponseStatsRegistry.get(client)
    assert before.topic("t").messages.count == 10
    consumers[0].connector.shutdown()
    consumers[0].connector.shutdown()
    assert ConsumerTopicStatsRegistry.get(client) is before
    assert FetchRequestAndResponseStatsRegistry.get(client) is fetches
    consumers[1].connector.shutdown()
    assert client not in ConsumerTopicStatsRegistry._stats
    assert client not in FetchRequestAndResponseStatsRegistry._stats


def test_second_shutdown_does_nothing_and_streams_are_refused(harness: ZooKeeperGroupHarness) -> None:
    with harness.consumer("a").connector as connector:
        connector.shutdown()
    with pytest.raises(ValueError, match="g_a is shut down"):
        connector.create_message_streams({"t": 1})
    assert not connector.step()
