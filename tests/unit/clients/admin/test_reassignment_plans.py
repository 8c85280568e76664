from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin import plan_files, reassignment_plans
from minikafka.clients.admin.partitions import LeaderAndIsr, Replicas
from minikafka.clients.admin.plan_files import ReassignmentPlan
from minikafka.clients.admin.reassignment_plans import (
    Move,
    PartitionReassignment,
    PlanChanges,
    ReassignmentStatus,
)
from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.controller import Reassignments
from minikafka.registry.store import Store
from tests.support.zookeeper_with_topics import assign, cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"t": {0: (0, 1), 1: (1, 0)}}


def plan(store: Store, wanted: Replicas) -> list[Move]:
    return reassignment_plans.changes_of(ZooKeeperPartitions(store), ReassignmentPlan(wanted)).moves


def request(store: Store, moves: list[Move]) -> None:
    reassignment_plans.begin(ZooKeeperPartitions(store), PlanChanges(moves, []))


def verify(store: Store, wanted: Replicas) -> list[PartitionReassignment]:
    return reassignment_plans.verify(ZooKeeperPartitions(store), ReassignmentPlan(wanted))


def is_under_way(store: Store, wanted: Replicas) -> bool:
    return reassignment_plans.is_under_way(ZooKeeperPartitions(store), ReassignmentPlan(wanted))


def test_generate_spreads_topics_over_brokers_and_changes_nothing() -> None:
    store = cluster({"t": dict.fromkeys(range(6), (0, 1)), "u": {0: (0,)}})
    moves = reassignment_plans.generate(ZooKeeperPartitions(store), ["t", "u"], [1, 2], rng=random.Random(1))
    assert [move.topic_partition for move in moves][-1] == TopicPartition("u", 0)
    assert all(set(move.after) == {1, 2} for move in moves[:-1])
    assert {move.after[0] for move in moves[:-1]} == {1, 2}
    assert len(moves[-1].after) == 1
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


def test_a_proposal_may_give_a_topic_more_replicas() -> None:
    (move, _) = reassignment_plans.generate(
        ZooKeeperPartitions(cluster(TOPICS)), ["t"], [0, 1, 2], replicas=3
    )
    assert sorted(move.after) == [0, 1, 2]
    assert (move.adds, move.removes) == ((2,), ())


def test_a_proposal_keeps_replicas_in_different_racks() -> None:
    store = cluster({"t": dict.fromkeys(range(4), (0,))}, brokers=0)
    for number, rack in enumerate("aabb"):
        broker = LiveBroker.plaintext(number, "h", 9000, rack)
        store.create(paths.broker_path(number), BrokerRegistration(broker).to_json())
    for move in reassignment_plans.generate(ZooKeeperPartitions(store), ["t"], [0, 1, 2, 3], replicas=2):
        assert len({number // 2 for number in move.after}) == 2


@pytest.mark.parametrize(
    ("topics", "brokers", "words"),
    [
        (["t/partitions"], [0], "there is no topic 't/partitions'"),
        (["tt"], [0], "there is no topic 'tt'; there is 't'"),
        (["t"], [0, 9], r"brokers=\[0, 9\]: 9 is not alive; live brokers: 0, 1, 2"),
        (["t"], [0, 0], "expected one or more distinct brokers"),
        (["t"], [0], "2 replicas of topic 't' need as many brokers, got 1: give 2 brokers, or --replicas 1"),
    ],
)
def test_a_proposal_that_cannot_be_is_refused(topics: list[str], brokers: list[int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        reassignment_plans.generate(ZooKeeperPartitions(cluster(TOPICS)), topics, brokers)


def test_a_plan_has_what_changes_and_leaves_out_what_is_so_already() -> None:
    moves = plan(cluster(TOPICS), {T0: (2, 1), T1: (1, 0)})
    assert moves == [Move(T0, (0, 1), (2, 1))]
    assert (moves[0].adds, moves[0].removes) == ((2,), (0,))
    # The order of the replicas says who is to lead.
    assert plan(cluster(TOPICS), {T1: (0, 1)}) == [Move(T1, (1, 0), (0, 1))]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({TopicPartition("t", 2): (0,)}, "partitions='t-2': topic 't' has partitions 0 to 1; nothing was"),
        ({TopicPartition("x", 0): (0,)}, "there is no topic 'x'; nothing was changed"),
        ({T0: (0, 7)}, r"brokers=\[0, 7\]: 7 is not alive; live brokers: 0, 1, 2; nothing was changed"),
        ({T0: (2, 2)}, r"t-0=\[2, 2\]: expected one or more distinct brokers; nothing was changed"),
        ({T0: ()}, "one or more distinct brokers; nothing was changed"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wanted: dict[TopicPartition, tuple[int, ...]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(cluster(TOPICS), wanted)


def test_request_is_written_to_its_znode_and_only_one_at_a_time() -> None:
    store = cluster(TOPICS)
    moves = plan(store, {T0: (2, 1)})
    request(store, moves)
    assert Reassignments.from_json(store.read(paths.REASSIGN_PARTITIONS)[0]).partitions == {T0: (2, 1)}
    with pytest.raises(
        CoordinationError, match="another reassignment is in progress: t-0; this plan was not started"
    ):
        request(store, moves)


def test_request_too_large_for_a_znode_is_rejected_before_any_write() -> None:
    store = cluster(TOPICS)
    moves = [Move(TopicPartition("t", number), (0,), (0, 1, 2)) for number in range(20_000)]
    with pytest.raises(ConfigError, match=r"20000 partitions are \d+ bytes"):
        request(store, moves)
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


def test_without_a_controller_nothing_is_asked_for() -> None:
    store = cluster(TOPICS)
    store.delete(paths.CONTROLLER)
    with pytest.raises(CoordinationError, match="there is no controller"):
        request(store, [Move(T0, (0,), (1,))])
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


def test_verifying_tells_what_is_done_under_way_and_failed() -> None:
    store = cluster(TOPICS)
    wanted = {T0: (2, 1), T1: (1, 2)}

    def verdicts() -> list[ReassignmentStatus]:
        return [partition.status for partition in verify(store, wanted)]

    assert verdicts() == [ReassignmentStatus.FAILED, ReassignmentStatus.FAILED]
    request(store, plan(store, wanted))
    assert verdicts() == [ReassignmentStatus.UNDER_WAY, ReassignmentStatus.UNDER_WAY]
    assign(store, "t", {0: (2, 1), 1: (1, 0)})
    store.write(paths.REASSIGN_PARTITIONS, Reassignments({T1: (1, 2)}).to_json())
    assert verdicts() == [ReassignmentStatus.DONE, ReassignmentStatus.UNDER_WAY]
    store.delete(paths.REASSIGN_PARTITIONS)
    assert verdicts() == [ReassignmentStatus.DONE, ReassignmentStatus.FAILED]


def test_what_has_failed_has_a_reason() -> None:
    store = cluster(TOPICS)
    store.create(paths.REASSIGN_PARTITIONS, Reassignments({T1: (2, 0)}).to_json(), make_parents=True)
    wanted = {T0: (2, 1), T1: (1, 2), TopicPartition("t", 7): (0,), TopicPartition("x", 0): (0,)}
    verdicts = verify(store, wanted)
    assert [partition.reason for partition in verdicts] == [
        "has replicas [0, 1], wanted [2, 1]; no reassignment is in progress",
        "has replicas [1, 0], wanted [1, 2]; a reassignment to [2, 0] is in progress",
        "topic 't' has partitions 0 to 1",
        "there is no topic 'x'",
    ]
    assert {partition.status for partition in verdicts} == {ReassignmentStatus.FAILED}
    assert [partition.deleted for partition in verdicts] == [False, False, True, True]


@pytest.mark.parametrize(
    ("asked", "wanted", "own"),
    [
        ({}, {T0: (0, 1)}, False),
        ({T0: (2, 1)}, {T0: (2, 1)}, True),
        ({T0: (2, 1)}, {T0: (2, 1), T1: (1, 0)}, True),  # the other is done
        ({T0: (2, 1)}, {T0: (2, 1), T1: (1, 2)}, False),
        ({T0: (2, 1)}, {T0: (0, 1)}, False),
        ({T0: (2, 1)}, {T1: (1, 0)}, False),
        ({T0: (2, 1), T1: (1, 2)}, {T1: (1, 2)}, True),
    ],
)
def test_a_plan_is_under_way_when_all_of_it_is_asked_for_or_done(
    asked: dict[TopicPartition, tuple[int, ...]], wanted: dict[TopicPartition, tuple[int, ...]], own: bool
) -> None:
    store = cluster(TOPICS)
    if asked:
        store.create(paths.REASSIGN_PARTITIONS, Reassignments(asked).to_json(), make_parents=True)
    assert is_under_way(store, wanted) is own


def test_reassignment_to_a_dead_broker_names_the_broker_to_start() -> None:
    store = cluster(TOPICS)
    request(store, plan(store, {T0: (2, 1)}))
    store.delete(paths.broker_path(2))
    with pytest.raises(CoordinationError, match=r"in progress, and waits for .* start \[2\]"):
        is_under_way(store, {T0: (2, 1)})


def test_the_only_partition_of_a_topic_is_named() -> None:
    store = cluster({"t": {0: (0, 1)}})
    with pytest.raises(ConfigError, match="partitions='t-1': topic 't' has only partition 0; nothing was"):
        plan(store, {T1: (0, 1)})


def test_a_reassignment_without_a_leader_names_the_brokers_in_sync() -> None:
    store = cluster({"t": {0: (0, 1)}})
    request(store, plan(store, {T0: (2,)}))
    store.delete(paths.broker_path(0))
    assert is_under_way(store, {T0: (2,)})
    store.delete(paths.broker_path(1))
    with pytest.raises(CoordinationError, match=r"waits for .* start \[0, 1\]"):
        is_under_way(store, {T0: (2,)})
    (row,) = reassignment_plans.ongoing(ZooKeeperPartitions(store))
    assert row.reason == "waits for brokers that are not alive: start [0, 1]"


def test_an_error_about_a_file_names_its_path() -> None:
    with pytest.raises(ConfigError, match=r"--file='d/plan\.json': expected at least one partition"):
        plan_files.read_reassignment(b'{"partitions": []}', "--file", "d/plan.json")
    for data in (b"", b"{", b"[]", b'{"topics": [{}]}'):
        with pytest.raises(ConfigError, match=r"--file='d/topics\.json'"):
            plan_files.read_topics(data, "--file", "d/topics.json")


ROW = '{"partitions": [{"topic": "t", "partition": 0, "replicas": [0, 1], "log_dirs": %s}]}'


@pytest.mark.parametrize(
    ("log_dirs", "words"),
    [
        ('"any"', "t-0: expected a list of directories as log_dirs"),
        ('[null, "any"]', "t-0: expected a list of directories as log_dirs"),
        ('["/disk2"]', "t-0 has 2 replicas and 1 log_dirs: give one for each replica, 'any' for those that"),
        ('["disk2", "any"]', "log_dirs of broker 0 must be an absolute path or 'any', got 'disk2'"),
    ],
)
def test_directories_of_another_form_are_refused(log_dirs: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--file='p.json': .*{words}"):
        plan_files.read_reassignment((ROW % log_dirs).encode(), "--file", "p.json")


def test_a_file_has_directories_for_some_replicas() -> None:
    any_dir = plan_files.read_reassignment((ROW % '["any", "any"]').encode(), "--file")
    assert any_dir == ReassignmentPlan({T0: (0, 1)})
    found = plan_files.read_reassignment((ROW % '["/disk2", "any"]').encode(), "--file")
    assert found == ReassignmentPlan({T0: (0, 1)}, {T0: {0: "/disk2"}})
    assert plan_files.read_reassignment(plan_files.reassignment_json(found).encode()) == found


def test_directories_need_the_brokers() -> None:
    wanted = ReassignmentPlan({T0: (0, 1)}, {T0: {0: "/disk2"}})
    with pytest.raises(ConfigError, match="leave out --zookeeper, or the directories"):
        reassignment_plans.changes_of(ZooKeeperPartitions(cluster(TOPICS)), wanted)


def test_the_file_of_a_proposal_is_what_is_read() -> None:
    wanted = ReassignmentPlan({T0: (2, 1), T1: (1, 2)})
    assert plan_files.read_reassignment(plan_files.reassignment_json(wanted).encode()) == wanted
    assert plan_files.read_topics(b'{"topics": [{"topic": "t"}, {"topic": "u"}]}') == ["t", "u"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\n", "the file is empty"),
        (b"{", "invalid JSON"),
        (b'{"partitions": []}', "expected at least one partition"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "invalid replicas"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "invalid replicas"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "a list of broker ids"),
    ],
)
def test_a_file_of_another_form_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--file='p.json': [^:]*{words}"):
        plan_files.read_reassignment(data, "--file", "p.json")


@pytest.mark.parametrize(
    "data", [b"{", b'{"topics": ["t"]}', b'{"topics": [{"topic": 1}]}', b'{"topics": []}']
)
def test_a_list_of_topics_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="--file="):
        plan_files.read_topics(data, "--file")


class LaggingPartitions(ZooKeeperPartitions):
    """Partitions of which one replica is known to be in sync at first."""

    may_lag = True
    looks = 0

    def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        self.looks += 1
        found = super().states(partitions)
        seen = None if self.looks > 1 else 1
        return {tp: LeaderAndIsr(state.leader, state.in_sync[:seen]) for tp, state in found.items()}


def test_replicas_of_a_plan_that_is_done_are_looked_at_until_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    backend = LaggingPartitions(cluster(TOPICS))
    rows = reassignment_plans.verify(backend, ReassignmentPlan({T0: (0, 1), T1: (1, 0)}))
    assert {row.status for row in rows} == {ReassignmentStatus.DONE}
    assert [sorted(row.in_sync) for row in rows] == [[0, 1], [0, 1]]
    assert backend.looks == 2
