"""Offsets that producers commit in transactions: their batches, what is refused, and how they are loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.groups.events import MemberIdentity
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue
from minikafka.partition.partition import Partition
from minikafka.records.format.batch import BatchHeader, ControlType, read_header
from minikafka.records.scan.scan import scan
from minikafka.server import assembly
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

E = ErrorCode
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P, Q = 7, 8
"""Two producers."""
NOBODY = MemberIdentity("")


@pytest.fixture(autouse=True)
def coordinators(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GroupCoordinator]]:
    """The coordinators of the brokers that are started."""
    found: list[GroupCoordinator] = []

    class Noted(GroupCoordinator):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr(assembly, "GroupCoordinator", Noted)
    yield found
    found.clear()


class Coordinator:
    """A broker that coordinates group g, beside topic t, without transactions of its own."""

    def __init__(self, found: list[GroupCoordinator], *, brokers: int = 1, **more: str) -> None:
        self.world = Simulation()
        self._found = found
        self.settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}}
        self.world.start_brokers(brokers, self.settings)
        while self.world.call(requests.find_coordinator()).error_code:
            self.world.settle()
        self.world.create_topic("t", partitions=2)
        self.outcomes: list[ErrorCode] = []

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of the broker that leads the offsets topic."""
        return next(one for one in reversed(self._found) if self.leads(one))

    @staticmethod
    def leads(coordinator: GroupCoordinator) -> bool:
        partition = coordinator.broker.partitions.get(OFFSETS)
        return partition is not None and partition.is_leader

    @property
    def partition(self) -> Partition:
        return self.groups.broker.partitions[OFFSETS]

    def begin(
        self,
        offset: int,
        *keys: TopicPartition,
        producer: int = P,
        epoch: int = 0,
        member: MemberIdentity = NOBODY,
        generation: int = -1,
        metadata: str = "",
    ) -> None:
        """Commit ``offset`` of all ``keys`` (t-0 by default); the outcome comes to ``outcomes``."""
        value = OffsetCommitValue(offset, -1, metadata, 0, NEVER_MS)
        commits = dict.fromkeys(keys or (T0,), value)
        self.groups.txn_commit("g", member, generation, producer, epoch, commits, self.outcomes.append)

    def commit(self, offset: int, *keys: TopicPartition, **more: object) -> ErrorCode:
        self.begin(offset, *keys, **more)  # type: ignore[arg-type]
        return self.outcomes.pop()

    def mark(self, kind: ControlType, *, producer: int = P, epoch: int = 0) -> int:
        """Append the marker that ends the transaction of a producer; return its offset."""
        commit = kind is ControlType.COMMIT
        appended = self.partition.append_end_marker(producer, epoch, 0, commit=commit)
        offset = appended.append_info.first_offset
        self.groups.broker.run(lambda: self.groups.broker.touch(OFFSETS))
        return offset

    def complete(self, kind: ControlType, offset: int, *, producer: int = P) -> None:
        """Report that every in-sync replica has a marker."""
        commit = kind is ControlType.COMMIT
        groups = self.groups
        groups.broker.run(lambda: groups.transaction_completed(OFFSETS, producer, offset, commit=commit))

    def end(self, kind: ControlType, *, producer: int = P, epoch: int = 0) -> None:
        self.complete(kind, self.mark(kind, producer=producer, epoch=epoch), producer=producer)

    def offsets(self) -> dict[TopicPartition, int]:
        return {key: value.offset for key, value in self.groups.offsets("g").items()}

    def unstable(self) -> set[TopicPartition]:
        return self.groups.stable_offsets("g", [T0, T1])[1]

    def headers(self) -> list[BatchHeader]:
        """The headers of all batches in the offsets topic."""
        log = self.partition.log
        read = log.read(log.start_offset, 1 << 20)
        data = read.slice.read() if read.slice is not None else b""
        found, at = [], 0
        while at < len(data):
            found.append(read_header(data, at))
            at += found[-1].size_bytes
        assert scan(data, base_offset=None).next_offset == log.end_offset
        return found

    def restart(self) -> None:
        self.world.machine.stop()
        self.world.machine.start(self.settings)
        self.world.settle()


@pytest.fixture
def coordinator(coordinators: list[GroupCoordinator]) -> Coordinator:
    return Coordinator(coordinators)


def test_offsets_in_a_transaction_are_one_batch_of_its_producer(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, T0, T1, epoch=3) is E.NONE
    (header,) = coordinator.headers()
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (P, 3, -1)
    assert (header.transactional, header.control, header.count) == (True, False, 2)


@pytest.mark.parametrize(
    "more", [{"offsets_topic_compression_codec": "1"}, {"log_message_timestamp_type": "LogAppendTime"}]
)
def test_batch_is_valid_with_every_setting_of_the_topic(
    coordinators: list[GroupCoordinator], more: dict[str, str]
) -> None:
    coordinator = Coordinator(coordinators, **more)
    assert coordinator.commit(5, T0, T1) is E.NONE
    (header,) = coordinator.headers()
    assert (header.producer_id, header.transactional) == (P, True)


def test_offsets_are_visible_once_their_transaction_is_committed(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    assert (coordinator.offsets(), coordinator.unstable()) == ({}, {T0})
    coordinator.end(ControlType.COMMIT)
    assert (coordinator.offsets(), coordinator.unstable()) == ({T0: 5}, set())
    coordinator.commit(6)
    coordinator.end(ControlType.ABORT)
    assert (coordinator.offsets(), coordinator.unstable()) == ({T0: 5}, set())


def test_clients_see_an_offset_once_its_transaction_is_committed(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    coordinator.end(ControlType.COMMIT)
    (topic,) = coordinator.world.call(requests.fetch_offsets("t")).topics
    assert [part.committed_offset for part in topic.partitions] == [5]


def test_stable_offsets_leave_out_what_may_change(coordinator: Coordinator) -> None:
    coordinator.world.call(requests.commit_offsets("t", offsets={1: 4}))
    coordinator.commit(5)
    stable, unstable = coordinator.groups.stable_offsets("g", [T0, T1])
    assert ({key: value.offset for key, value in stable.items()}, unstable) == ({T1: 4}, {T0})
    coordinator.commit(6, T1, producer=Q)
    assert coordinator.groups.stable_offsets("g", [T0, T1]) == ({}, {T0, T1})
    assert coordinator.offsets() == {T1: 4}


def test_all_stable_offsets_name_committed_partitions_only(coordinator: Coordinator) -> None:
    coordinator.world.call(requests.commit_offsets("t", offsets={1: 4}))
    coordinator.commit(5, T0, T1)
    assert coordinator.groups.stable_offsets("g") == ({}, {T1})
    coordinator.end(ControlType.ABORT)
    assert {key: value.offset for key, value in coordinator.groups.stable_offsets("g")[0].items()} == {T1: 4}


def test_commit_that_is_sent_again_is_appended_again(coordinator: Coordinator) -> None:
    assert [coordinator.commit(offset) for offset in (5, 5, 4)] == [E.NONE] * 3
    assert [header.base_offset for header in coordinator.headers()] == [0, 1, 2]
    coordinator.end(ControlType.COMMIT)
    assert coordinator.offsets() == {T0: 4}


def test_commit_of_another_epoch_does_not_join_the_transaction(coordinator: Coordinator) -> None:
    coordinator.commit(5, epoch=2)
    assert coordinator.commit(6, epoch=1) is E.INVALID_PRODUCER_EPOCH
    assert coordinator.commit(7, T1, epoch=3) is E.INVALID_TXN_STATE
    coordinator.end(ControlType.COMMIT, epoch=2)
    assert coordinator.commit(7, T1, epoch=3) is E.NONE
    coordinator.end(ControlType.COMMIT, epoch=3)
    assert coordinator.offsets() == {T0: 5, T1: 7}


def test_commit_of_a_member_is_checked(coordinator: Coordinator) -> None:
    member = coordinator.world.call(requests.join_group("g", {"range": b""}))
    identity = MemberIdentity(member.member_id)
    assert coordinator.commit(5, member=identity, generation=1) is E.NONE
    assert coordinator.commit(5, member=identity, generation=0) is E.ILLEGAL_GENERATION
    assert coordinator.commit(5, T1, member=MemberIdentity("x"), generation=1) is E.UNKNOWN_MEMBER_ID
    assert coordinator.commit(5, T1, member=MemberIdentity("x", "i")) is E.UNKNOWN_MEMBER_ID
    assert coordinator.unstable() == {T0}
    assert coordinator.commit(5, T1) is E.NONE


def test_commit_to_an_unknown_group_of_a_member_creates_nothing(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, member=MemberIdentity("x"), generation=1) is E.UNKNOWN_MEMBER_ID
    assert coordinator.groups.groups() == (E.NONE, [])
    assert coordinator.headers() == []


def test_commit_that_cannot_be_appended_is_not_kept(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    coordinator.world.call(requests.alter_configs(OFFSETS_TOPIC, name="min.insync.replicas", value="2"))
    coordinator.world.settle()
    assert coordinator.commit(6, T0, T1) is E.GROUP_COORDINATOR_NOT_AVAILABLE
    assert coordinator.unstable() == {T0}
    coordinator.world.call(requests.alter_configs(OFFSETS_TOPIC, name="min.insync.replicas", value="1"))
    coordinator.world.settle()
    coordinator.end(ControlType.COMMIT)
    assert coordinator.offsets() == {T0: 5}


def test_commit_that_no_message_can_hold_is_refused(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, metadata="x" * 2_000_000) is E.INVALID_COMMIT_OFFSET_SIZE
    assert coordinator.headers() == []


def test_older_message_format_has_no_transactions(coordinators: list[GroupCoordinator]) -> None:
    coordinator = Coordinator(coordinators, log_message_format_version="0.10.1")
    assert coordinator.commit(5) is E.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert coordinator.headers() == []


def test_broker_that_stops_coordinates_no_commit(coordinator: Coordinator) -> None:
    coordinator.groups.stop()
    assert coordinator.commit(5) is E.GROUP_COORDINATOR_NOT_AVAILABLE
    with pytest.raises(BrokerError):
        coordinator.groups.stable_offsets("g", [T0])


# --- OffsetFetch --------------------------------------------------------------------------------------------


def fetch(
    coordinator: Coordinator, version: int, *partitions: int, stable: bool = True
) -> dict[int, tuple[int, ErrorCode]]:
    """Fetch offsets of t, or all; return offset and error of each partition."""
    topics = (OffsetFetchRequestTopic("t", partitions),) if partitions else None
    groups = (OffsetFetchRequestGroup("g", topics),)
    body = OffsetFetchRequest("g", topics, groups, require_stable=stable)
    answer = coordinator.world.call(Request(ApiKey.OFFSET_FETCH, version, body))
    found = answer.groups[0] if version >= 8 else answer
    return {
        part.partition_index: (part.committed_offset, ErrorCode(part.error_code))
        for topic in found.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", [7, 8, 9])
def test_client_that_requires_stable_offsets_waits_for_them(coordinator: Coordinator, version: int) -> None:
    coordinator.world.call(requests.commit_offsets("t", offsets={0: 3, 1: 4}))
    coordinator.commit(5)
    assert fetch(coordinator, version, 0, 1) == {0: (-1, E.UNSTABLE_OFFSET_COMMIT), 1: (4, E.NONE)}
    assert fetch(coordinator, version) == {0: (-1, E.UNSTABLE_OFFSET_COMMIT), 1: (4, E.NONE)}
    assert fetch(coordinator, version, 0, stable=False) == {0: (3, E.NONE)}
    coordinator.end(ControlType.COMMIT)
    assert fetch(coordinator, version, 0, 1) == {0: (5, E.NONE), 1: (4, E.NONE)}


def test_client_before_stable_offsets_gets_the_committed_one(coordinator: Coordinator) -> None:
    coordinator.world.call(requests.commit_offsets("t", offsets={0: 3}))
    coordinator.commit(5)
    assert fetch(coordinator, 6, 0) == {0: (3, E.NONE)}


# --- replication and loading --------------------------------------------------------------------------------


def test_offset_that_is_being_replicated_is_not_stable(coordinators: list[GroupCoordinator]) -> None:
    coordinator = Coordinator(coordinators, brokers=2, offsets_topic_replication_factor="2")
    leader = coordinator.groups.broker.broker_id
    coordinator.world.machine_of(1 - leader).held = True
    value = OffsetCommitValue(5, -1, "", 0, NEVER_MS)
    coordinator.groups.commit("g", NOBODY, -1, {T0: value}, coordinator.outcomes.append)
    assert coordinator.unstable() == {T0}
    coordinator.world.machine_of(1 - leader).held = False
    coordinator.world.pass_time(2_000)
    assert (coordinator.outcomes, coordinator.unstable(), coordinator.offsets()) == ([E.NONE], set(), {T0: 5})


def test_commit_that_times_out_shares_its_transactions_fate(coordinators: list[GroupCoordinator]) -> None:
    coordinator = Coordinator(coordinators, brokers=2, offsets_topic_replication_factor="2")
    leader = coordinator.groups.broker.broker_id
    other = coordinator.world.machine_of(1 - leader)
    other.held = True
    coordinator.begin(5)
    assert (coordinator.outcomes, coordinator.unstable()) == ([], {T0})
    coordinator.world.pass_time(6_000)
    assert (coordinator.outcomes, coordinator.unstable()) == ([E.REQUEST_TIMED_OUT], {T0})
    other.held = False
    coordinator.world.pass_time(2_000)
    coordinator.end(ControlType.COMMIT)
    assert coordinator.offsets() == {T0: 5}


@pytest.mark.parametrize("kind", ControlType)
def test_open_transaction_is_loaded_and_ends_later(coordinator: Coordinator, kind: ControlType) -> None:
    coordinator.commit(4)
    coordinator.end(ControlType.COMMIT)
    coordinator.commit(5, T0, T1)
    coordinator.restart()
    assert (coordinator.offsets(), coordinator.unstable()) == ({T0: 4}, {T0, T1})
    coordinator.end(kind)
    expected = {T0: 5, T1: 5} if kind is ControlType.COMMIT else {T0: 4}
    assert (coordinator.offsets(), coordinator.unstable()) == (expected, set())


def test_ended_transactions_are_loaded_by_their_markers(coordinator: Coordinator) -> None:
    coordinator.commit(4)
    coordinator.commit(5, T1, producer=Q)
    coordinator.end(ControlType.COMMIT)
    coordinator.end(ControlType.ABORT, producer=Q)
    coordinator.commit(6)
    coordinator.end(ControlType.ABORT)
    coordinator.restart()
    assert (coordinator.offsets(), coordinator.unstable()) == ({T0: 4}, set())


def test_marker_that_comes_while_groups_are_loaded_counts(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    coordinator.world.loading_is_held = True
    coordinator.restart()
    assert coordinator.commit(6) is E.GROUP_LOAD_IN_PROGRESS
    offset = coordinator.partition.log.end_offset  # beyond what the load reads
    coordinator.complete(ControlType.COMMIT, offset)
    coordinator.world.loading_is_held = False
    coordinator.world.settle()
    assert (coordinator.offsets(), coordinator.unstable()) == ({T0: 5}, set())


def test_marker_of_a_partition_led_elsewhere_changes_nothing(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    groups = coordinator.groups
    other = TopicPartition(OFFSETS_TOPIC, 1)
    groups.broker.run(lambda: groups.transaction_completed(other, P, 9, commit=True))
    assert (coordinator.offsets(), coordinator.unstable()) == ({}, {T0})
