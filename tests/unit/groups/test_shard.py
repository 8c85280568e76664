"""The groups of one partition: their listing, the records written for them, and their loading."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.loading import GroupMetadataLoader
from minikafka.groups.members import GROUP_BYTES, PENDING_MEMBER_BYTES
from minikafka.groups.messages import (
    NEVER_MS,
    GroupMetadataValue,
    OffsetCommitValue,
    ValueVersions,
    group_bytes,
    group_key,
    offset_bytes,
    offset_key,
    read_group,
)
from minikafka.groups.shard import NO_GROUP, GroupCoordinatorShard, GroupSettings, commit_records
from minikafka.groups.states import GroupState
from minikafka.records.format.record import KeyValue
from minikafka.wire.consumer_protocol import Subscription, encode_subscription

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MANY = 1_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, retention_ms=1_000)

JOIN = events.Join("r", "", "m-1", "m", "/h", 60_000, 10_000, "consumer", (("range", b""),))


def at(offset: int, time_ms: int = 0) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1, "", time_ms, NEVER_MS)


def join(
    shard: GroupCoordinatorShard, *, member_id: str = "", session_ms: int = 10_000, wall_ms: int = 0
) -> events.Joined:
    event = replace(JOIN, member_id=member_id, session_timeout_ms=session_ms)
    *_, joined = shard.step("g", event, 0, wall_ms)
    assert isinstance(joined, events.Joined)
    return joined


def commit(
    shard: GroupCoordinatorShard, group_id: str, log_offset: int, **offsets: OffsetCommitValue
) -> None:
    commits = {TopicPartition("t", int(name[1:])): value for name, value in offsets.items()}
    assert shard.check_commit(group_id, events.MemberIdentity(""), -1, 0, 0) is ErrorCode.NONE
    shard.begin_commit(group_id, commits)
    shard.end_commit(group_id, commits, log_offset)


@pytest.fixture
def shard() -> GroupCoordinatorShard:
    return GroupCoordinatorShard(SETTINGS)


@pytest.mark.parametrize("session_ms", [5_999, 300_001])
def test_a_session_timeout_out_of_bounds_is_refused_and_makes_no_group(
    shard: GroupCoordinatorShard, session_ms: int
) -> None:
    assert join(shard, session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert len(shard) == 0


def test_member_of_an_unknown_group_is_unknown(shard: GroupCoordinatorShard) -> None:
    assert join(shard, member_id="m-9").error is ErrorCode.UNKNOWN_MEMBER_ID
    unknown, nobody = ErrorCode.UNKNOWN_MEMBER_ID, events.MemberIdentity("m-9")
    assert shard.step("g", events.Sync("r", "m-9", 1, {}), 0, 0) == [events.Synced("r", unknown)]
    assert shard.step("g", events.Heartbeat("r", "m-9", 1), 0, 0) == [events.Answered("r", unknown)]
    (left,) = shard.step("g", events.Leave("r", (nobody,)), 0, 0)
    assert left == events.Left("r", ErrorCode.NONE, ((nobody, unknown),))
    assert shard.check_commit("g", events.MemberIdentity("m-9"), 1, 0, 0) is ErrorCode.ILLEGAL_GENERATION
    assert shard.describe("g") == NO_GROUP
    assert len(shard) == 0


def test_generation_is_stored_with_its_state_time_if_possible() -> None:
    shard = GroupCoordinatorShard(
        GroupSettings(initial_rebalance_delay_ms=0, versions=ValueVersions(group=2))
    )
    joined = join(shard, wall_ms=77)
    effects = shard.step("g", events.Sync("r", joined.member_id, 1, {"m-1": b"x"}), 0, 80)
    (store,) = [effect for effect in effects if isinstance(effect, events.StoreGroup)]
    key, value = shard.group_record("g", store.value)
    assert key == group_key("g")
    assert value is not None
    assert read_group(value).state_timestamp_ms == 77


def test_a_deleted_group_is_buried_with_its_offsets(shard: GroupCoordinatorShard) -> None:
    join(shard)
    shard.step("g", events.Leave("r", (events.MemberIdentity("m-1"),)), 0, 0)
    commit(shard, "g", 5, t0=at(1), t1=at(2))
    error, tombstones = shard.delete("g")
    assert error is ErrorCode.NONE
    assert tombstones == [(offset_key("g", T0), None), (offset_key("g", T1), None), (group_key("g"), None)]
    assert shard.delete("g") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_group_without_members_gets_offset_tombstones_only(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1))
    assert shard.delete("g") == (ErrorCode.NONE, [(offset_key("g", T0), None)])


def test_group_with_members_is_not_deleted_and_offsets_stay(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1))
    join(shard)
    assert shard.delete("g") == (ErrorCode.NON_EMPTY_GROUP, [])
    assert shard.expire_offsets("g", 99_000_000, MANY) == []
    assert shard.offsets("g") == {T0: at(1)}


def test_a_group_goes_with_the_last_of_its_offsets(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1), t1=at(1))
    assert shard.expire_offsets("g", 99_000_000, 1) == [(offset_key("g", T0), None)]
    assert shard.offsets("g") == {T1: at(1)}
    assert shard.expire_offsets("g", 99_000_000, 1) == [(offset_key("g", T1), None)]
    assert len(shard) == 0
    assert shard.expire_offsets("g", 99_000_000, 1) == []


def test_a_group_without_offsets_goes_with_the_next_look(shard: GroupCoordinatorShard) -> None:
    join(shard)
    shard.step("g", events.Leave("r", (events.MemberIdentity("m-1"),)), 0, 0)
    assert shard.expire_offsets("g", 0, MANY) == [(group_key("g"), None)]
    assert len(shard) == 0


def test_a_group_that_is_committing_stays(shard: GroupCoordinatorShard) -> None:
    shard.check_commit("g", events.MemberIdentity(""), -1, 0, 0)
    shard.begin_commit("g", {T0: at(1)})
    assert shard.expire_offsets("g", 99_000, MANY) == []
    assert shard.group_ids() == ["g"]


def test_the_offsets_of_deleted_topics_are_buried_in_all_groups(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1), t1=at(1))
    commit(shard, "h", 6, t0=at(1))
    tombstones = shard.remove_offsets([T0])
    assert tombstones == [(offset_key("g", T0), None), (offset_key("h", T0), None)]
    assert shard.group_ids() == ["g"]


# --- offsets of a group that consumes -----------------------------------------------------------------------


def consuming(*topics: str, protocol_type: str = "consumer") -> GroupCoordinatorShard:
    """A shard whose group g has one member, which subscribes to ``topics``, and offsets of t."""
    shard = GroupCoordinatorShard(SETTINGS)
    commit(shard, "g", 5, t0=at(1), t1=at(2))
    subscription = encode_subscription(Subscription(topics))
    event = events.Join("r", "", "m", "c", "/h", 60_000, 10_000, protocol_type, (("range", subscription),))
    shard.step("g", event, 0, 0)
    for effect in shard.step("g", events.Sync("r", "m", 1, {}), 0, 0):
        if isinstance(effect, events.StoreGroup):
            shard.step("g", events.GroupStored(effect, ErrorCode.NONE), 0, 0)
    assert shard.describe("g").state is GroupState.STABLE
    return shard


def test_offsets_that_nobody_consumes_are_deleted() -> None:
    outcomes, tombstones = consuming("other").delete_offsets("g", [T0])
    assert outcomes == {T0: ErrorCode.NONE}
    assert tombstones == [(offset_key("g", T0), None)]


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    shard = consuming("t")
    assert shard.delete_offsets("g", [T0]) == ({T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}, [])
    assert shard.offsets("g") == {T0: at(1), T1: at(2)}


def test_members_that_are_no_consumers_keep_all_offsets() -> None:
    with pytest.raises(BrokerError) as refused:
        consuming("t", protocol_type="connect").delete_offsets("g", [T0])
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


def test_a_subscription_that_cannot_be_read_keeps_all_offsets(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1))
    join(shard)
    outcomes, tombstones = shard.delete_offsets("g", [T0])
    assert (outcomes, tombstones) == ({T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}, [])


def test_a_group_goes_with_the_last_offset_that_is_deleted(shard: GroupCoordinatorShard) -> None:
    commit(shard, "g", 5, t0=at(1))
    assert shard.delete_offsets("g", [T0, T1, T0]) == (
        {T0: ErrorCode.NONE, T1: ErrorCode.NONE},
        [(offset_key("g", T0), None)],
    )
    with pytest.raises(BrokerError) as refused:
        shard.delete_offsets("g", [T0])
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_that_nobody_consumes_expire_beside_members() -> None:
    assert consuming("t").expire_offsets("g", 1_000, MANY) == []
    shard = consuming("other")
    assert shard.expire_offsets("g", 999, MANY) == []
    assert len(shard.expire_offsets("g", 1_000, MANY)) == 2
    assert shard.describe("g").state is GroupState.STABLE


def test_a_group_with_an_id_that_was_told_is_not_forgotten(shard: GroupCoordinatorShard) -> None:
    told = replace(JOIN, requires_member_id=True)
    assert shard.extra_memory_bytes("g", told) == PENDING_MEMBER_BYTES + 3
    shard.step("g", told, 0, 0)
    assert shard.memory_bytes == GROUP_BYTES + PENDING_MEMBER_BYTES + 3
    assert shard.expire_offsets("g", 99_000, MANY) == []
    shard.step("g", events.Tick(), 10_000, 0)
    assert shard.expire_offsets("g", 99_000, MANY) == []
    assert (len(shard), shard.memory_bytes) == (0, 0)


def test_a_commit_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        commit_records("g" * 40_000, {T0: at(1)}, SETTINGS)
    assert refused.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


# --- loading ------------------------------------------------------------------------------------------------


def loaded(*records: KeyValue, wall_ms: int = 0) -> GroupCoordinatorShard:
    """Load the groups from a log of these records, in two windows."""
    loading = GroupMetadataLoader(SETTINGS)
    middle = len(records) // 2
    for start, window in ((0, records[:middle]), (middle, records[middle:])):
        keys = [key for key, _ in window]
        loading.add(keys, range(start, start + len(window)), [value for _, value in window])
    return loading.finish(0, wall_ms)


def committed(partition: TopicPartition, offset: int, group: str = "g") -> KeyValue:
    return offset_key(group, partition), offset_bytes(at(offset), ValueVersions(), SETTINGS.retention_ms)


def generation(number: int, group: str = "g") -> KeyValue:
    return group_key(group), group_bytes(
        GroupMetadataValue("consumer", number, None, None, -1, ()), ValueVersions()
    )


def test_newest_record_of_each_key_counts() -> None:
    shard = loaded(committed(T0, 5), committed(T1, 1), committed(T0, 4), generation(1), generation(2))
    assert shard.offsets("g") == {T0: at(4), T1: at(1)}
    assert shard.describe("g").state is GroupState.EMPTY


def test_tombstones_remove_offsets_and_groups_on_load() -> None:
    shard = loaded(committed(T0, 5), generation(1), (offset_key("g", T0), None), (group_key("g"), None))
    assert len(shard) == 0


def test_commit_after_a_tombstone_is_loaded() -> None:
    shard = loaded(committed(T0, 5), (offset_key("g", T0), None), committed(T0, 6))
    assert shard.offsets("g") == {T0: at(6)}


def test_both_versions_of_an_offsets_key_are_one() -> None:
    key, value = committed(T0, 5)
    old = b"\0\0" + key[2:]
    assert loaded((old, value), committed(T0, 6)).offsets("g") == {T0: at(6)}
    assert loaded(committed(T0, 6), (old, value)).offsets("g") == {T0: at(5)}
    assert loaded(committed(T0, 6), (old, None)).offsets("g") == {}


def test_a_commit_after_loading_is_newer_than_all_that_was_loaded() -> None:
    shard = loaded(committed(T0, 5), committed(T0, 6))
    commit(shard, "g", 2, t0=at(1))
    assert shard.offsets("g") == {T0: at(1)}


def test_loaded_offsets_without_members_expire_by_their_commits() -> None:
    shard = loaded(committed(T0, 5), generation(3), wall_ms=500)
    assert shard.expire_offsets("g", 999, MANY) == []
    assert shard.expire_offsets("g", 1_000, MANY) == [(offset_key("g", T0), None), (group_key("g"), None)]


def test_unreadable_records_are_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="minikafka")
    of_later_releases = b"\0\3" + group_key("g")[2:], b"\0\0"
    shard = loaded(
        committed(T0, 5),
        of_later_releases,
        (offset_key("g", T1), b"\0\1nonsense"),
        (group_key("h"), b"\0\7"),
        (b"", b""),
    )
    assert shard.offsets("g") == {T0: at(5)}
    assert [record.message for record in caplog.records] == [
        "skipped 4 group records, the first at offset 1: a key of a later release"
    ]


def test_records_without_a_key_are_passed_over() -> None:
    loading = GroupMetadataLoader(SETTINGS)
    loading.add([None], [0], [b"x"])
    assert len(loading.finish(0, 0)) == 0
