"""The memory of the groups of a partition, as the shard counts it."""

from __future__ import annotations

import random

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.members import GROUP_BYTES, MEMBER_BYTES, PROTOCOL_BYTES
from minikafka.groups.messages import GroupMetadataValue, OffsetCommitValue
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.groups.states import GroupState

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
HOUR_MS = 3_600_000


def join(member_id: str, new_id: str, *metadata: bytes) -> events.Join:
    protocols = tuple((f"p{number}", data) for number, data in enumerate(metadata))
    return events.Join("r", member_id, new_id, "c", "/h", 60_000, 10_000, "consumer", protocols)


def test_a_member_counts_with_what_it_says_of_itself() -> None:
    shard = GroupCoordinatorShard(SETTINGS)
    shard.step("g", join("", "m", bytes(1_000), bytes(500)), 0, 0)
    assert shard.memory_bytes == GROUP_BYTES + MEMBER_BYTES + 2 * (PROTOCOL_BYTES + 2) + 1_500


def test_a_member_that_joins_again_counts_once() -> None:
    shard = GroupCoordinatorShard(SETTINGS)
    shard.step("g", join("", "m", bytes(1_000)), 0, 0)
    before = shard.memory_bytes
    assert shard.extra_memory_bytes("g", join("m", "", bytes(1_200))) == 200
    shard.step("g", join("m", "", bytes(1_200)), 0, 0)
    assert shard.memory_bytes == before + 200


def test_nothing_is_left_of_members_and_groups_that_are_gone() -> None:
    random_ = random.Random(5)
    shard = GroupCoordinatorShard(SETTINGS)
    for number in range(2_000):
        ids = [f"m{other}" for other in range(max(0, number - 12), number)] or ["m"]
        group, member_id = f"g{random_.randrange(3)}", random_.choice(ids)
        generation = random_.randrange(1, 4)
        event: events.Event = random_.choice(
            [
                join("", f"m{number}", bytes(random_.randrange(50)), b""),
                join(member_id, "", bytes(random_.randrange(50))),
                events.Sync("r", member_id, generation, {assigned: bytes(30) for assigned in ids}),
                events.Leave("r", (events.MemberIdentity(member_id),)),
                events.Tick(),
            ]
        )
        for effect in shard.step(group, event, 0, 0):
            if isinstance(effect, events.StoreGroup):
                error = random_.choice([ErrorCode.NONE, ErrorCode.UNKNOWN])
                shard.step(group, events.GroupStored(effect, error), 0, 0)
    assert shard.memory_bytes > 0
    for time_ms in range(HOUR_MS, 10 * HOUR_MS, HOUR_MS):
        for group in shard.group_ids():
            for effect in shard.step(group, events.Tick(), time_ms, 0):
                if isinstance(effect, events.StoreGroup):
                    shard.step(group, events.GroupStored(effect, ErrorCode.NONE), time_ms, 0)
    assert shard.memory_bytes == 3 * GROUP_BYTES
    for group in shard.group_ids():
        shard.delete(group)
    assert shard.memory_bytes == 0


T0 = TopicPartition("t", 0)


def left_with_an_offset() -> GroupCoordinatorShard:
    """A shard with a group whose only member has committed and left."""
    shard = GroupCoordinatorShard(SETTINGS)
    for effect in shard.step("g", join("", "m", b"x"), 0, 0):
        if isinstance(effect, events.StoreGroup):
            shard.step("g", events.GroupStored(effect, ErrorCode.NONE), 0, 0)
    value = OffsetCommitValue(1, -1, "", 0, 0)
    shard.begin_commit("g", {T0: value})
    shard.end_commit("g", {T0: value}, 0)
    assert shard.memory_bytes > GROUP_BYTES
    for effect in shard.step("g", events.Leave("r", (events.MemberIdentity("m"),)), 0, 0):
        if isinstance(effect, events.StoreGroup):
            shard.step("g", events.GroupStored(effect, ErrorCode.NONE), 0, 0)
    assert shard.describe("g").state is GroupState.EMPTY
    return shard


def test_empty_group_kept_by_offsets_takes_no_room_from_new_ones() -> None:
    shard = left_with_an_offset()
    assert shard.memory_bytes == 0
    shard.step("g", join("", "m2", b"x"), 0, 0)
    assert shard.memory_bytes > GROUP_BYTES


def test_an_empty_group_without_offsets_counts_until_it_is_forgotten() -> None:
    shard = GroupCoordinatorShard(SETTINGS)
    shard.step("g", join("", "m", b"x"), 0, 0)
    for effect in shard.step("g", events.Leave("r", (events.MemberIdentity("m"),)), 0, 0):
        if isinstance(effect, events.StoreGroup):
            shard.step("g", events.GroupStored(effect, ErrorCode.NONE), 0, 0)
    assert shard.memory_bytes == GROUP_BYTES
    shard.expire_offsets("g", HOUR_MS, 10)
    assert (len(shard), shard.memory_bytes) == (0, 0)


def test_a_group_that_is_loaded_with_offsets_only_takes_no_room_either() -> None:
    shard = GroupCoordinatorShard(SETTINGS)
    shard.restore_group("g", GroupMetadataValue("consumer", 3, None, None, 0, ()), 0)
    assert shard.memory_bytes == GROUP_BYTES
    shard.restore_offset("g", T0, 0, OffsetCommitValue(1, -1, "", 0, 0), 0)
    assert shard.memory_bytes == 0
    shard.remove_offsets([T0])
    assert (len(shard), shard.memory_bytes) == (0, 0)


def test_a_group_that_another_broker_takes_over_counts_no_more() -> None:
    shard = GroupCoordinatorShard(SETTINGS)
    shard.step("g", join("", "m", b"x"), 0, 0)
    shard.unload()
    assert shard.memory_bytes == 0
