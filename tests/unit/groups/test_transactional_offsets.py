"""Offsets that producers commit in transactions: kept aside, visible with a commit, dropped with an abort."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.loading import GroupMetadataLoader
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue, ValueVersions, offset_bytes, offset_key
from minikafka.groups.offsets import CommittedOffsets
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.records.format.batch import ControlType
from minikafka.records.format.record import KeyValue
from minikafka.records.scan.isolation import TransactionPart

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
P, Q = 7, 8
"""Two producers."""
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, retention_ms=1_000)
LATER_MS = 99_000_000
MANY = 1_000
NOBODY = events.MemberIdentity("")


def at(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1, "", 0, NEVER_MS)


def is_unstable(offsets: CommittedOffsets) -> list[bool]:
    return [offsets.is_unstable(key) for key in (A, B)]


# --- the offsets of a group ---------------------------------------------------------------------------------


def test_offset_in_a_transaction_is_visible_with_its_commit() -> None:
    offsets = CommittedOffsets()
    offsets.add_transactional(P, {A: at(5)}, 10)
    assert (offsets.get(A), is_unstable(offsets)) == (None, [True, False])
    offsets.end_transaction(P, 11, commit=True)
    assert (offsets.get(A), is_unstable(offsets)) == (at(5), [False, False])


def test_offset_of_an_aborted_transaction_is_dropped() -> None:
    offsets = CommittedOffsets()
    offsets.load(A, 9, at(4))
    offsets.add_transactional(P, {A: at(5), B: at(1)}, 10)
    offsets.end_transaction(P, 11, commit=False)
    assert (offsets.all(), is_unstable(offsets)) == ({A: at(4)}, [False, False])


def test_newest_commit_of_a_transaction_counts() -> None:
    offsets = CommittedOffsets()
    for log_offset, offset in ((10, 5), (12, 6), (11, 7)):
        offsets.add_transactional(P, {A: at(offset)}, log_offset)
    offsets.end_transaction(P, 13, commit=True)
    assert offsets.all() == {A: at(6)}


def test_later_commit_in_the_log_wins_over_a_transaction() -> None:
    offsets = CommittedOffsets()
    offsets.add_transactional(P, {A: at(5)}, 10)
    offsets.add_transactional(Q, {A: at(6)}, 11)
    offsets.begin(plain := {A: at(7), B: at(8)})
    offsets.complete(plain, 12)
    offsets.end_transaction(Q, 13, commit=True)
    offsets.end_transaction(P, 14, commit=True)
    assert offsets.all() == {A: at(7), B: at(8)}


def test_later_transaction_wins_whichever_commits_first() -> None:
    offsets = CommittedOffsets()
    offsets.add_transactional(P, {A: at(5)}, 10)
    offsets.add_transactional(Q, {A: at(6)}, 11)
    offsets.end_transaction(Q, 12, commit=True)
    assert is_unstable(offsets) == [True, False]
    offsets.end_transaction(P, 13, commit=True)
    assert (offsets.all(), is_unstable(offsets)) == ({A: at(6)}, [False, False])


def test_marker_ends_only_its_producers_transaction() -> None:
    offsets = CommittedOffsets()
    offsets.add_transactional(P, {A: at(5)}, 10)
    offsets.end_transaction(Q, 11, commit=True)
    assert (offsets.all(), is_unstable(offsets)) == ({}, [True, False])


def test_marker_does_not_end_what_is_after_it_in_the_log() -> None:
    offsets = CommittedOffsets()
    offsets.add_transactional(P, {A: at(5)}, 10)
    offsets.add_transactional(P, {B: at(6)}, 12)
    offsets.end_transaction(P, 11, commit=True)
    assert (offsets.all(), is_unstable(offsets)) == ({A: at(5)}, [False, True])
    offsets.end_transaction(P, 11, commit=True)
    assert is_unstable(offsets) == [False, True]
    offsets.end_transaction(P, 13, commit=False)
    assert (offsets.all(), is_unstable(offsets)) == ({A: at(5)}, [False, False])


def test_commit_that_is_being_written_is_unstable() -> None:
    offsets = CommittedOffsets()
    offsets.begin(commit := {A: at(5)})
    assert is_unstable(offsets) == [True, False]
    offsets.complete(commit, 10)
    assert is_unstable(offsets) == [False, False]


def test_removed_offset_does_not_come_back_with_a_commit() -> None:
    offsets = CommittedOffsets()
    offsets.load(B, 9, at(1))
    offsets.add_transactional(P, {A: at(5), B: at(6)}, 10)
    offsets.add_transactional(Q, {A: at(7)}, 11)
    assert offsets.remove([A]) == [A]
    offsets.end_transaction(P, 13, commit=True)
    offsets.end_transaction(Q, 14, commit=True)
    assert offsets.all() == {B: at(6)}


def test_all_offsets_are_removed_with_those_of_transactions() -> None:
    offsets = CommittedOffsets()
    offsets.load(A, 9, at(1))
    offsets.add_transactional(P, {A: at(5), B: at(6)}, 10)
    assert offsets.remove_all() == [A, B]
    assert not offsets.has_any
    assert not offsets.is_in_transaction(P)


def test_offset_in_an_open_transaction_does_not_expire() -> None:
    offsets = CommittedOffsets()
    offsets.load(A, 8, at(1))
    offsets.load(B, 9, at(1))
    offsets.add_transactional(P, {A: at(5)}, 10)
    assert offsets.expire(LATER_MS, 1_000, None, MANY) == [B]
    offsets.end_transaction(P, 11, commit=False)
    assert offsets.expire(LATER_MS, 1_000, None, MANY) == [A]


# --- the groups of a partition ------------------------------------------------------------------------------


@pytest.fixture
def shard() -> GroupCoordinatorShard:
    return GroupCoordinatorShard(SETTINGS)


def joined(shard: GroupCoordinatorShard, instance_id: str | None = None) -> str:
    """Add a member to group g, in its first generation; return its id."""
    event = events.Join("r", "", "m", "c", "/h", 60_000, 10_000, "consumer", (("range", b""),), instance_id)
    *_, answer = shard.step("g", event, 0, 0)
    assert isinstance(answer, events.Joined)
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)
    return answer.member_id


def test_unknown_group_accepts_a_commit_without_a_generation(shard: GroupCoordinatorShard) -> None:
    assert shard.check_txn_commit("g", NOBODY, -1) is ErrorCode.NONE
    assert shard.check_txn_commit("g", events.MemberIdentity("m", "i"), -1) is ErrorCode.NONE
    assert shard.check_txn_commit("g", events.MemberIdentity("m"), 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(shard) == 0


@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation", "error"),
    [
        ("", None, -1, ErrorCode.NONE),
        ("m", None, 1, ErrorCode.NONE),
        ("m", "one", 1, ErrorCode.NONE),
        ("m", None, 0, ErrorCode.ILLEGAL_GENERATION),
        ("m", None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("m", None, -1, ErrorCode.ILLEGAL_GENERATION),
        ("x", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", None, -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "one", 1, ErrorCode.FENCED_INSTANCE_ID),
        ("", "one", -1, ErrorCode.FENCED_INSTANCE_ID),
        ("m", "two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_group_with_members_checks_what_the_commit_names(
    shard: GroupCoordinatorShard, member_id: str, instance_id: str | None, generation: int, error: ErrorCode
) -> None:
    assert joined(shard, "one") == "m"
    member = events.MemberIdentity(member_id, instance_id)
    assert shard.check_txn_commit("g", member, generation) is error


def test_first_commit_in_a_transaction_creates_its_group(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    assert shard.group_ids() == ["g"]
    assert shard.is_unstable("g", A)
    assert not shard.is_unstable("h", A)
    assert shard.offsets("g") == {}


def test_marker_ends_a_transaction_in_all_its_groups(shard: GroupCoordinatorShard) -> None:
    for log_offset, (group, producer) in enumerate([("g", P), ("h", P), ("h", Q), ("i", Q)]):
        shard.add_txn_commit(group, producer, {A: at(log_offset)}, log_offset, 0)
    shard.complete_transaction(P, 10, commit=True)
    assert [shard.offset(group, A) for group in "ghi"] == [at(0), at(1), None]
    shard.complete_transaction(Q, 11, commit=False)
    assert [shard.offset(group, A) for group in "ghi"] == [at(0), at(1), None]
    assert not any(shard.is_unstable(group, A) for group in "ghi")


def test_marker_leaves_later_offsets_of_other_groups_aside(shard: GroupCoordinatorShard) -> None:
    for group, log_offset in (("g", 10), ("h", 12), ("i", 9)):
        shard.add_txn_commit(group, P, {A: at(log_offset)}, log_offset, 0)
    shard.complete_transaction(P, 11, commit=True)
    assert [shard.offset(group, A) for group in "ghi"] == [at(10), None, at(9)]
    shard.complete_transaction(P, 13, commit=True)
    assert shard.offset("h", A) == at(12)


def test_marker_of_an_unknown_producer_changes_nothing(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    shard.complete_transaction(Q, 11, commit=True)
    shard.complete_transaction(P, 12, commit=True)
    shard.complete_transaction(P, 13, commit=False)
    assert shard.offsets("g") == {A: at(5)}


def test_group_stays_while_a_transaction_with_its_offsets_is_open(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    assert shard.expire_offsets("g", LATER_MS, MANY) == []
    assert shard.group_ids() == ["g"]
    shard.complete_transaction(P, 11, commit=False)
    assert shard.expire_offsets("g", LATER_MS, MANY) == []
    assert shard.group_ids() == []


def test_deleted_group_takes_its_offsets_in_transactions_along(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    assert shard.delete("g") == (ErrorCode.NONE, [(offset_key("g", A), None)])
    shard.add_txn_commit("g", Q, {B: at(6)}, 12, 0)
    shard.complete_transaction(P, 13, commit=True)
    assert (shard.offsets("g"), shard.is_unstable("g", B)) == ({}, True)


def test_deleted_topic_takes_its_offsets_in_transactions_along(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    shard.add_txn_commit("h", P, {A: at(5), B: at(6)}, 11, 0)
    assert shard.remove_offsets([A]) == [(offset_key("g", A), None), (offset_key("h", A), None)]
    shard.complete_transaction(P, 13, commit=True)
    assert shard.group_ids() == ["h"]
    assert shard.offsets("h") == {B: at(6)}


def test_unloaded_partition_keeps_no_transactions(shard: GroupCoordinatorShard) -> None:
    shard.add_txn_commit("g", P, {A: at(5)}, 10, 0)
    shard.unload()
    shard.complete_transaction(P, 11, commit=True)
    assert len(shard) == 0


# --- loading ------------------------------------------------------------------------------------------------


class Log:
    """A partition of the offsets topic, whose groups are loaded one entry at a time."""

    def __init__(self) -> None:
        self.loading = GroupMetadataLoader(SETTINGS)
        self.end_offset = 0

    def add(self, *pairs: KeyValue, producer: int | None = None) -> None:
        """Append a batch; with a producer, in its transaction."""
        offsets = range(self.end_offset, self.end_offset + len(pairs))
        parts = [] if producer is None else [TransactionPart(producer, offsets[0], offsets[-1], None)]
        self.loading.add([key for key, _ in pairs], offsets, [value for _, value in pairs], parts)
        self.end_offset += len(pairs)

    def end(self, producer: int, mark: ControlType) -> None:
        """Append a marker, which has no record among the columns."""
        part = TransactionPart(producer, self.end_offset, self.end_offset, mark)
        self.loading.add([], [], [], [part])
        self.end_offset += 1

    def loaded(self) -> GroupCoordinatorShard:
        return self.loading.finish(0, 0)


def pair(key: TopicPartition, offset: int, group: str = "g") -> KeyValue:
    return offset_key(group, key), offset_bytes(at(offset), ValueVersions(), SETTINGS.retention_ms)


def tombstone(key: TopicPartition, group: str = "g") -> KeyValue:
    return offset_key(group, key), None


@pytest.mark.parametrize("mark", ControlType)
def test_open_transaction_is_loaded_and_ends_with_a_marker(mark: ControlType) -> None:
    log = Log()
    log.add(pair(A, 4))
    log.add(pair(A, 5), pair(B, 6), producer=P)
    shard = log.loaded()
    assert shard.offsets("g") == {A: at(4)}
    assert [shard.is_unstable("g", key) for key in (A, B)] == [True, True]
    shard.complete_transaction(P, 3, commit=mark is ControlType.COMMIT)
    assert shard.offsets("g") == ({A: at(5), B: at(6)} if mark is ControlType.COMMIT else {A: at(4)})


def test_ended_transactions_are_loaded_as_their_markers_say() -> None:
    log = Log()
    log.add(pair(A, 5), producer=P)
    log.add(pair(B, 6), producer=Q)
    log.end(P, ControlType.COMMIT)
    log.end(Q, ControlType.ABORT)
    shard = log.loaded()
    assert shard.offsets("g") == {A: at(5)}
    assert not any(shard.is_unstable("g", key) for key in (A, B))


def test_tombstone_removes_what_is_open_before_it() -> None:
    log = Log()
    log.add(pair(A, 5), pair(B, 6), producer=P)
    log.add(tombstone(A))
    log.add(pair(A, 7))
    shard = log.loaded()
    assert [shard.is_unstable("g", key) for key in (A, B)] == [False, True]
    shard.complete_transaction(P, 4, commit=True)
    assert shard.offsets("g") == {A: at(7), B: at(6)}


def test_tombstone_of_an_older_transaction_removes_nothing_later() -> None:
    log = Log()
    log.add(pair(B, 1), producer=P)
    log.add(tombstone(A))
    log.end(P, ControlType.ABORT)
    log.add(pair(A, 5), producer=Q)
    shard = log.loaded()
    assert shard.is_unstable("g", A)


def test_tombstone_in_a_transaction_only_undoes_its_own_commit() -> None:
    log = Log()
    log.add(pair(A, 4), pair(B, 4))
    log.add(pair(A, 5), tombstone(A), tombstone(B), producer=P)
    log.end(P, ControlType.COMMIT)
    assert log.loaded().offsets("g") == {A: at(4), B: at(4)}


def test_unreadable_offset_in_an_open_transaction_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.add((offset_key("g", A), b"\0\1nonsense"), (None, b""), pair(B, 6), producer=P)  # type: ignore[arg-type]
    shard = log.loaded()
    assert [shard.is_unstable("g", key) for key in (A, B)] == [False, True]
    assert [record.message[:40] for record in caplog.records] == ["skipped 1 group records, the first at of"]


def test_open_transaction_is_kept_for_a_group_with_a_generation(shard: GroupCoordinatorShard) -> None:
    joined(shard)
    (store,) = [
        effect
        for effect in shard.step("g", events.Sync("r", "m", 1, {}), 0, 0)
        if isinstance(effect, events.StoreGroup)
    ]
    log = Log()
    log.add(pair(A, 5), producer=P)
    log.add(shard.group_record("g", replace(store.value, protocol=None, leader=None, members=())))
    loaded = log.loaded()
    assert loaded.is_unstable("g", A)
    assert loaded.expire_offsets("g", LATER_MS, MANY) == []
