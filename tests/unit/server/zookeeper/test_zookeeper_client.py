"""The broker's ZooKeeper client, over the in-memory ZooKeeper."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import BadVersion, CoordinationError, CoordinationLost, NodeExists, NoNode
from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.controller import events
from minikafka.controller.assignment import Assignment
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.cluster import ProducerIdBlock
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import SessionTicket, Stat
from minikafka.server.workers.worker import InlineWorker
from minikafka.server.zookeeper.counters import next_broker_id
from minikafka.server.zookeeper.zookeeper_client import TOPICS_AT_ONCE, ZooKeeperClient

E = TypeVar("E", bound=events.Event)
T0 = TopicPartition("t", 0)
OWN = BrokerRegistration(LiveBroker.plaintext(1, "localhost", 9092))
LED = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), controller_epoch=1)


class ClientHarness:
    """A ZooKeeper client, the calls of its listener, and the ZooKeeper behind it."""

    def __init__(self, zookeeper: MemoryZooKeeper | None = None) -> None:
        self.zookeeper = zookeeper or MemoryZooKeeper()
        self.store: MemoryStore = self.zookeeper.connect()
        self.worker = InlineWorker()
        self.client = ZooKeeperClient(
            self.store, ManualClock(), self.worker, random_bytes=random.Random(1).randbytes
        )
        self.heard: list[events.Event] = []
        self.controllers: list[int] = []
        self.reasons: list[str] = []
        self.tickets_kept = 0
        self.unreadable: frozenset[str] = frozenset()
        self.deleted: list[str] = []
        self.vanished: list[str] = []
        self.changed: list[str] = []
        self.counters_missed_times = 0
        self.controller_epoch = 0

    def start(self) -> ClientHarness:
        def keep_ticket() -> None:
            self.tickets_kept += 1

        self.client.start(OWN, self, keep_ticket)
        self.settle()
        return self

    def post(self, event: events.Event) -> None:
        self.heard.append(event)

    def controller_changed(self, controller_id: int) -> None:
        self.controllers.append(controller_id)

    def unreadable_changed(self, topics: frozenset[str]) -> None:
        self.unreadable = topics

    def topics_vanished(self, topics: frozenset[str]) -> None:
        self.vanished += sorted(topics)

    def when_done(self, done: Callable[[], None]) -> None:
        done()

    def create_topic(self, topic: str, assignment: Assignment, config: Mapping[str, str]) -> None:
        found = self.client.topics.create({topic: (assignment, config)})
        if found:
            raise NodeExists(f"{topic} exists")

    def delete_unreadable(self, topic: str) -> None:
        self.deleted.append(topic)

    def config_changed(self, change: ConfigChange) -> None:
        self.changed.append(f"{change.entity_type}/{change.entity_name}")

    def configs_missed(self) -> None:
        self.changed.append("all")

    def counters_missed(self) -> None:
        self.counters_missed_times += 1

    def fatal(self, reason: str) -> None:
        self.reasons.append(reason)

    def settle(self) -> None:
        while self.zookeeper.deliver() + self.worker.run_until_idle():
            pass

    def last(self, kind: type[E]) -> E:
        return [event for event in self.heard if isinstance(event, kind)][-1]


@pytest.fixture
def harness() -> ClientHarness:
    return ClientHarness().start()


def test_the_first_broker_becomes_controller_with_epoch_1_and_sees_itself(harness: ClientHarness) -> None:
    elected = harness.last(events.Elected)
    assert elected.epoch == 1
    assert elected.brokers == {1: OWN.broker}
    assert harness.controllers[-1] == 1


def test_registration_and_controller_are_ephemeral_states_are_not(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.client.write_leaderships({T0: LED}, create=True)
    assert harness.store.read("/brokers/ids/1")[1].ephemeral_owner == harness.store.session_id
    assert harness.store.read("/controller")[1].ephemeral_owner == harness.store.session_id
    assert harness.store.read("/brokers/topics/t/partitions/0/state")[1].ephemeral_owner == 0


def test_brokers_that_start_together_agree_on_one_cluster_id() -> None:
    zookeeper = MemoryZooKeeper()
    assert ClientHarness(zookeeper).client.cluster_id == ClientHarness(zookeeper).client.cluster_id


def test_a_topic_written_by_hand_without_settings_is_seen(harness: ClientHarness) -> None:
    harness.store.create("/brokers/topics/raw", b'{"version":1,"partitions":{"0":[1]}}')
    harness.settle()
    changed = harness.last(events.TopicsChanged)
    assert changed.assignments == {"raw": {0: (1,)}}
    assert harness.client.settings.of_topics(["raw"]) == {"raw": {}}


def test_a_topic_whose_znode_is_nonsense_is_left_out_and_named(
    harness: ClientHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.store.create("/brokers/topics/bad", b"nonsense")
    harness.store.create("/brokers/topics/good", b'{"version":1,"partitions":{"0":[1]}}')
    harness.settle()
    changed = harness.last(events.TopicsChanged)
    assert list(changed.assignments) == ["good"]
    assert "ignored an invalid znode: /brokers/topics/bad" in caplog.text


def topics_of(harness: ClientHarness) -> list[int]:
    """Return the number of topics in each TopicsChanged event."""
    return [len(event.assignments) for event in harness.heard if isinstance(event, events.TopicsChanged)]


def test_many_new_topics_are_told_a_few_at_a_time(harness: ClientHarness) -> None:
    harness.heard.clear()
    for number in range(2 * TOPICS_AT_ONCE + 1):
        harness.store.create(f"/brokers/topics/t{number}", b'{"version":1,"partitions":{"0":[1]}}')
    harness.settle()
    assert [count for count in topics_of(harness) if count] == [TOPICS_AT_ONCE, TOPICS_AT_ONCE, 1]


def test_news_that_come_together_are_looked_at_once(harness: ClientHarness) -> None:
    harness.heard.clear()
    for number in range(5):
        harness.store.create(f"/brokers/topics/t{number}", b'{"version":1,"partitions":{"0":[1]}}')
        harness.zookeeper.deliver()
    harness.settle()
    assert topics_of(harness) == [5]


def test_a_new_topic_that_is_to_be_deleted_is_told_before_its_turn(harness: ClientHarness) -> None:
    for number in range(2 * TOPICS_AT_ONCE):
        harness.store.create(f"/brokers/topics/a{number}", b'{"version":1,"partitions":{"0":[1]}}')
    harness.store.create("/brokers/topics/z", b'{"version":1,"partitions":{"0":[1]}}')
    harness.store.create("/admin/delete_topics/z")
    harness.heard.clear()
    harness.client._see_deletions()
    changed, asked = harness.heard[:2]
    assert isinstance(changed, events.TopicsChanged)
    assert "z" in changed.assignments
    assert asked == events.DeletionRequested(frozenset("z"))


def test_new_controller_processes_topics_without_states_in_batches() -> None:
    zookeeper = MemoryZooKeeper()
    other = zookeeper.connect()
    for number in range(2 * TOPICS_AT_ONCE):
        path, data = f"/brokers/topics/t{number}", b'{"version":1,"partitions":{"0":[1]}}'
        other.create(path, data, make_parents=True)
    other.create("/brokers/topics/z", b'{"version":1,"partitions":{"0":[1]}}')
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    other.create("/brokers/topics/z/partitions/0/state", state, make_parents=True)
    harness = ClientHarness(zookeeper).start()
    elected = harness.last(events.Elected)
    assert len(elected.assignments) == TOPICS_AT_ONCE + 1
    assert "z" in elected.assignments
    assert sum(topics_of(harness)) == TOPICS_AT_ONCE


def test_changed_settings_are_read_of_their_topic_alone(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("a", "b", "c"):
        harness.create_topic(topic, {0: (1,)}, {})
    harness.settle()
    read: list[str] = []
    read_all = harness.store.read_all
    monkeypatch.setattr(
        harness.store, "read_all", lambda wanted: read_all(read.extend(wanted := [*wanted]) or wanted)
    )
    harness.client.settings.change("topics", "b", {"flush.ms": "1"})
    harness.settle()
    assert [path for path in read if path.startswith("/config/topics/")] == ["/config/topics/b"]


@pytest.mark.parametrize("entity", ["topics/t", "clients/app", "users/a/clients/app", "brokers/7"])
def test_an_entity_whose_settings_were_changed_is_reported(harness: ClientHarness, entity: str) -> None:
    change = f'{{"version":2,"entity_path":"{entity}"}}'.encode()
    harness.store.create("/config/changes/config_change_", change, sequential=True)
    harness.settle()
    assert harness.changed == [entity]


def test_client_and_broker_configs_are_read_again_in_a_new_session(harness: ClientHarness) -> None:
    harness.zookeeper.expire(harness.store)
    harness.settle()
    assert harness.changed == ["all"]


def test_config_change_is_written_with_a_notification(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {"segment.bytes": "100"})
    harness.client.settings.change("topics", "t", {"retention.ms": "5"})
    harness.settle()
    assert harness.changed == ["topics/t"]
    assert harness.client.settings.of_topics(["t"]) == {"t": {"retention.ms": "5"}}
    harness.client.settings.change("topics", "by-hand", {"retention.ms": "6"})
    assert harness.client.settings.of_topics(["by-hand"]) == {"by-hand": {"retention.ms": "6"}}, (
        "it had no settings' znode before"
    )


def test_added_partitions_are_written_and_reported(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.settle()
    for _ in range(2):  # run again after an answer that was lost
        harness.client.add_partitions("t", {1: (1,), 2: (1,)})
    assert json.loads(harness.store.read("/brokers/topics/t")[0])["partitions"] == {
        "0": [1],
        "1": [1],
        "2": [1],
    }
    changed = harness.last(events.TopicsChanged)
    assert changed.assignments == {"t": {0: (1,), 1: (1,), 2: (1,)}}


@pytest.mark.parametrize("added", [{0: (2,)}, {2: (1,)}])
def test_concurrently_changed_partitions_are_not_overwritten(
    harness: ClientHarness, added: dict[int, tuple[int, ...]]
) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    with pytest.raises(BadVersion, match="have changed to"):
        harness.client.add_partitions("t", added)
    assert json.loads(harness.store.read("/brokers/topics/t")[0])["partitions"] == {"0": [1]}


def test_a_topic_that_is_being_deleted_gets_no_more_partitions(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.client.request_deletions(["t"])
    with pytest.raises(NoNode, match="is being deleted"):
        harness.client.add_partitions("t", {1: (1,)})


def test_config_changes_are_logged_when_they_are_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "minikafka.server.zookeeper.entity_settings")
    harness = ClientHarness().start()
    harness.create_topic("t", {0: (1,)}, {"flush.ms": "1"})
    assert harness.client.settings.of_all_topics() == {"t": {"flush.ms": "1"}}
    harness.store.write("/config/topics/t", b'{"version":1,"config":{"flush.ms":"2"}}')
    for _ in range(2):
        assert harness.client.settings.of_topics(["t"]) == {"t": {"flush.ms": "2"}}
    harness.client.remove_topic("t")
    harness.create_topic("t", {0: (1,)}, {"flush.ms": "3"})
    assert harness.client.settings.of_topics(["t"]) == {"t": {"flush.ms": "3"}}
    assert caplog.messages == ["configs of topic t changed: flush.ms 1 -> 2"]


def test_settings_that_have_become_nonsense_are_the_last_ones_still(
    harness: ClientHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t", {0: (1,)}, {"retention.ms": "-1"})
    harness.client.settings.of_topics(["t"])
    harness.store.write("/config/topics/t", b"{")
    for _ in range(2):
        assert harness.client.settings.of_topics(["t"]) == {"t": {"retention.ms": "-1"}}
    harness.store.delete("/config/topics/t")
    assert harness.client.settings.of_topics(["t"]) == {"t": {}}
    assert caplog.text.count("ignored an invalid znode: /config/topics/t") == 1


def test_a_topic_that_exists_is_not_created_again_and_keeps_its_settings(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {"retention.ms": "1"})
    with pytest.raises(NodeExists):
        harness.create_topic("t", {0: (1,)}, {"retention.ms": "2"})
    assert harness.client.settings.of_topics(["t"]) == {"t": {"retention.ms": "1"}}


def test_partitions_added_by_a_tool_are_reported(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.settle()
    harness.store.write("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
    harness.settle()
    changed = harness.last(events.TopicsChanged)
    assert changed.assignments == {"t": {0: (1,), 1: (1,)}}


@pytest.mark.parametrize(("replicas", "bounced_brokers"), [([1, 2], {T0: (1,)}), ([1], {})])
def test_new_controller_finds_brokers_that_bounced_since_a_state(
    replicas: list[int], bounced_brokers: dict[TopicPartition, tuple[int, ...]]
) -> None:
    harness = ClientHarness()
    path = "/brokers/topics/t/partitions/0/state"
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1]}
    harness.store.create(
        "/brokers/topics/t", json.dumps({"version": 1, "partitions": {"0": replicas}}).encode()
    )
    harness.store.create(path, json.dumps(state).encode(), make_parents=True)
    elected = harness.start().last(events.Elected)
    assert elected.bounced_brokers == bounced_brokers


def test_broker_registered_before_a_state_is_not_bounced(harness: ClientHarness) -> None:
    registered = {1: harness.store.read("/brokers/ids/1")[1].created_at}
    harness.create_topic("t", {0: (1,)}, {})
    harness.client.write_leaderships({T0: LED}, create=True)
    assert harness.client.states.read_with_bounced_brokers({T0: (1,)}, registered) == ({T0: LED}, {})


def test_state_written_first_by_another_is_kept_and_returned(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    state = b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1]}'
    harness.store.create("/brokers/topics/t/partitions/0/state", state, make_parents=True)
    held = harness.client.write_leaderships({T0: LED}, create=True)
    assert held == {T0: LeaderAndIsr(1, 4, (1,), (1,), 9)}


def test_a_state_is_replaced_only_at_the_version_that_the_controller_knew(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.client.write_leaderships({T0: LED}, create=True)
    second = LeaderAndIsr(1, 1, (1,), (1,), 1, version=1)
    assert harness.client.write_leaderships({T0: second}, create=False) == {T0: second}
    late = LeaderAndIsr(1, 7, (1,), (1,), 1, version=1)
    assert harness.client.write_leaderships({T0: late}, create=False) == {T0: second}


def test_no_state_is_written_for_a_topic_that_is_gone(harness: ClientHarness) -> None:
    assert harness.client.write_leaderships({T0: LED}, create=True) == {}
    assert harness.store.exists("/brokers/topics/t") is None


def test_expired_session_registers_again_in_a_new_controller_epoch(harness: ClientHarness) -> None:
    harness.zookeeper.expire(harness.store)
    harness.settle()
    elected = harness.last(events.Elected)
    assert elected.epoch == 2
    assert harness.store.exists("/brokers/ids/1") is not None
    assert harness.tickets_kept == 1


def test_unsaved_session_is_logged_once_and_saved_later(caplog: pytest.LogCaptureFixture) -> None:
    harness, files = ClientHarness(), MemoryFiles()
    files.make_dirs("d")
    client = harness.client
    client.start(OWN, harness, lambda: client.end_predecessor(files, "d"))
    harness.settle()
    harness.zookeeper.expire(harness.store)
    files.fail_next_open(match="zookeeper-session")  # of the old one: there is none
    files.fail_next_write(match="zookeeper-session")
    harness.settle()
    elected = harness.last(events.Elected)
    assert elected.epoch == 2
    assert not client.ticket_kept
    files.fail_next_sync(match="zookeeper-session")
    client.retry_ticket()
    assert caplog.text.count("failed to save the ZooKeeper session") == 1
    assert not client.ticket_kept
    client.retry_ticket()
    assert client.ticket_kept
    assert SessionTicket.from_json(read_file(files, "d/zookeeper-session"), "") == harness.store.ticket


def test_an_election_whose_answer_was_lost_is_still_an_election() -> None:
    harness = ClientHarness()
    own = b'{"version":1,"brokerid":1,"timestamp":"0"}'
    harness.zookeeper.lose_next_answer(harness.store)
    with pytest.raises(CoordinationLost):
        harness.store.create("/controller", own, ephemeral=True)
    harness.start()
    assert isinstance(harness.last(events.Elected), events.Elected)


def test_when_another_broker_holds_the_office_ours_waits_and_follows() -> None:
    zookeeper = MemoryZooKeeper()
    other = zookeeper.connect()
    other.create("/controller", b'{"version":1,"brokerid":7,"timestamp":"0"}', ephemeral=True)
    harness = ClientHarness(zookeeper).start()
    assert harness.controllers[-1] == 7
    assert not [event for event in harness.heard if isinstance(event, events.Elected)]
    other.close()
    harness.settle()
    assert harness.controllers[-1] == 1
    assert isinstance(harness.last(events.Elected), events.Elected)


def test_invalid_state_leaves_only_its_partition_without_leader(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = MemoryZooKeeper()
    other = zookeeper.connect()
    other.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}', make_parents=True)
    other.create("/brokers/topics/t/partitions/0/state", b"{", make_parents=True)
    harness = ClientHarness(zookeeper).start()
    elected = harness.last(events.Elected)
    assert elected.assignments == {"t": {0: (1,)}}
    assert elected.leaderships == {}
    assert "/brokers/topics/t/partitions/0/state: " in caplog.text


def test_a_broker_that_cannot_register_again_says_why_and_gives_up(harness: ClientHarness) -> None:
    harness.zookeeper.expire(harness.store)
    other = harness.zookeeper.connect()
    other.create("/brokers/ids/1", b"{}", ephemeral=True)
    harness.settle()
    assert len(harness.reasons) == 1
    assert "failed to register again" in harness.reasons[0]


@pytest.mark.parametrize("path", ["/brokers/ids/1", "/controller"])
def test_a_znode_that_goes_between_two_looks_is_made_by_this_broker(
    harness: ClientHarness, path: str
) -> None:
    harness.zookeeper.expire(harness.store)
    other = harness.zookeeper.connect()
    value = {"/brokers/ids/1": b"{}", "/controller": b'{"version":1,"brokerid":7,"timestamp":"0"}'}[path]
    create, read = harness.store.create, harness.store.read

    def created_by_another_first(created: str, data: bytes, **how: Any) -> str:
        if created == path and other.exists(path) is None:
            harness.store.create = create  # type: ignore[method-assign]
            other.create(path, value, ephemeral=True)
        return create(created, data, **how)

    def gone(wanted: str) -> tuple[bytes, Stat]:
        if wanted == path and other.exists(path) is not None:
            harness.store.read = read  # type: ignore[method-assign]
            other.close()
        return read(wanted)

    harness.store.create = created_by_another_first  # type: ignore[method-assign]
    harness.store.read = gone  # type: ignore[method-assign]
    harness.settle()
    assert harness.reasons == []
    for own in ("/brokers/ids/1", "/controller"):
        assert harness.store.read(own)[1].ephemeral_owner == harness.store.session_id
    assert harness.last(events.Elected).epoch == 2


def test_a_topic_loses_its_configs_first_and_its_mark_last(harness: ClientHarness) -> None:
    harness.create_topic("t", {0: (1,)}, {})
    harness.client.request_deletions(["t"])
    harness.settle()
    requested = harness.last(events.DeletionRequested)
    assert requested.topics == {"t"}
    deleted: list[str] = []
    delete = harness.store.delete

    def spy(path: str, version: int = -1, *, recursive: bool = False) -> None:
        deleted.append(path)
        delete(path, version, recursive=recursive)

    harness.store.delete = spy  # type: ignore[method-assign]
    harness.client.remove_topic("t")
    assert deleted == ["/config/topics/t", "/brokers/topics/t", "/admin/delete_topics/t"]


def test_generated_broker_ids_lie_above_the_reserved_ones_and_rise() -> None:
    harness = ClientHarness()
    assert [next_broker_id(harness.client.store, 1000) for _ in range(3)] == [1001, 1002, 1003]


def test_producer_id_blocks_of_all_brokers_follow_each_other(harness: ClientHarness) -> None:
    assert harness.client.take_producer_ids() == range(1000)
    harness.store.write(paths.PRODUCER_IDS, ProducerIdBlock(7, 5000, 5999).to_json())
    assert harness.client.take_producer_ids() == range(6000, 7000)
    held = ProducerIdBlock.from_json(harness.store.read(paths.PRODUCER_IDS)[0])
    assert held == ProducerIdBlock(1, 6000, 6999)


def test_producer_id_block_is_above_ids_in_use_after_a_restore(
    harness: ClientHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.store.create(paths.PRODUCER_IDS, ProducerIdBlock(7, 5000, 5999).to_json())
    assert harness.client.take_producer_ids(above=5999) == range(6000, 7000)
    assert caplog.messages == []
    harness.store.write(paths.PRODUCER_IDS, ProducerIdBlock(7, 1000, 1999).to_json())
    block = harness.client.take_producer_ids(above=6999)
    assert block == range(1_007_000, 1_008_000)
    assert harness.client.take_producer_ids(above=6999) == range(1_008_000, 1_009_000)
    (message,) = caplog.messages
    assert "from 2000, but 6999 is in use" in message


def test_producer_ids_in_use_raise_a_lower_counter(harness: ClientHarness) -> None:
    harness.client.raise_producer_ids(1, -1)
    assert harness.store.exists(paths.PRODUCER_IDS) is None
    harness.client.raise_producer_ids(1, 4711)
    assert harness.client.take_producer_ids() == range(1_006_000, 1_007_000)
    harness.client.raise_producer_ids(1, 4711)
    assert harness.client.take_producer_ids() == range(1_007_000, 1_008_000)


def test_producer_ids_chosen_by_clients_are_ignored(harness: ClientHarness) -> None:
    assert harness.client.take_producer_ids(above=(1 << 63) - 1) == range(1000)


def test_empty_producer_id_znode_starts_at_zero(harness: ClientHarness) -> None:
    harness.store.create(paths.PRODUCER_IDS)
    assert harness.client.take_producer_ids() == range(1000)


def test_concurrent_producer_id_blocks_do_not_overlap(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, others = harness.store.read, [ProducerIdBlock(7, 0, 999), ProducerIdBlock(7, 1000, 1999)]

    def overtaken(path: str) -> tuple[bytes, Stat]:
        found = read(path)
        if others:
            harness.store.write(path, others.pop(0).to_json())
        return found

    monkeypatch.setattr(harness.store, "read", overtaken)
    assert harness.client.take_producer_ids() == range(2000, 3000)


@pytest.mark.parametrize("data", [b"nonsense", ProducerIdBlock(7, 0, (1 << 63) - 1000).to_json()])
def test_producer_ids_that_cannot_be_taken_are_an_error(harness: ClientHarness, data: bytes) -> None:
    harness.store.create(paths.PRODUCER_IDS, data)
    with pytest.raises(CoordinationError, match=paths.PRODUCER_IDS):
        harness.client.take_producer_ids()
    assert harness.store.read(paths.PRODUCER_IDS)[0] == data


def test_broker_is_elected_again_after_another_in_the_same_session(harness: ClientHarness) -> None:
    other = harness.zookeeper.connect()
    harness.store.delete(paths.CONTROLLER)
    other.create(paths.CONTROLLER, b'{"version":1,"brokerid":2,"timestamp":"0"}', ephemeral=True)
    harness.settle()
    assert isinstance(harness.heard[-1], events.Resigned)
    other.close()
    harness.settle()
    elected = harness.last(events.Elected)
    assert elected.epoch == 2


def test_controller_takes_a_new_epoch_after_the_counter_went_back(harness: ClientHarness) -> None:
    harness.store.write(paths.CONTROLLER_EPOCH, b"0")
    harness.zookeeper.suspend(harness.store)
    harness.zookeeper.resume(harness.store)
    harness.settle()
    elected = harness.last(events.Elected)
    assert elected.epoch == 1002
    assert harness.counters_missed_times == 1


def test_rejected_controller_raises_its_epoch_only_while_elected(harness: ClientHarness) -> None:
    harness.client.epoch_refused(1)
    elected = harness.last(events.Elected)
    assert elected.epoch == 1002
    count = len(harness.heard)
    harness.client.epoch_refused(1)
    assert len(harness.heard) == count
