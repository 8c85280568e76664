"""All groups of one partition of ``__consumer_offsets``: what its leader, their coordinator, keeps of them.

Here the state machine of a group, its offsets and their form in the log come together. Whatever is to be
written comes out as records, in their order in the log, and what came of it is reported back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.errors import BrokerError, ErrorCode, LocalWireError
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.events import Effect, Event
from minikafka.groups.group import MEMBER_BYTES, Group, GroupDescription, protocols_bytes
from minikafka.groups.messages import (
    UNKNOWN_MS,
    GroupMetadataValue,
    OffsetCommitValue,
    ValueVersions,
    group_bytes,
    group_key,
    offset_bytes,
    offset_key,
)
from minikafka.groups.offsets import CommittedOffsets
from minikafka.groups.states import GroupState

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; no value is a tombstone."""

COMMIT_BYTES_MIN = 10 + 20
"""Of a commit, key and value without their texts."""

NO_GROUP = GroupDescription(GroupState.DEAD, "", "", ())
"""The description of a group that there is not."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a broker allows its groups, and how they are stored. Times are ms."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 300_000
    initial_rebalance_delay_ms: int = 3_000
    retention_ms: int = 10_080 * 60_000
    metadata_max_chars: int = 4_096
    versions: ValueVersions = field(default_factory=ValueVersions)


class _Entry:
    """A group, its offsets, and since when (wall time) it is in its state; None where that is not known."""

    def __init__(self, group: Group, since_ms: int | None) -> None:
        self.group = group
        self.offsets = CommittedOffsets()
        self.since_ms = since_ms
        self.counted_bytes = 0
        """What the shard counts of it."""


class GroupCoordinatorShard:
    """The groups of one partition. ``now_ms`` is monotonic, ``wall_ms`` since the epoch."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._entries: dict[str, _Entry] = {}
        self.memory_bytes = 0
        """What all groups with members, or that had some, take. Offsets are not counted, nor is an empty
        group that has some: it stays for as long as they do, whether it had members or not.
        """

    def __len__(self) -> int:
        return len(self._entries)

    # --- questions ------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """All groups."""
        return list(self._entries)

    def list_groups(self) -> list[tuple[str, str]]:
        """All groups with their protocol types."""
        return [(group_id, entry.group.protocol_type or "") for group_id, entry in self._entries.items()]

    def has_group(self, group_id: str) -> bool:
        """Return whether there is such a group."""
        return group_id in self._entries

    def describe(self, group_id: str) -> GroupDescription:
        """A group; ``GROUP_DENIED`` where there is none."""
        entry = self._entries.get(group_id)
        return NO_GROUP if entry is None else entry.group.describe()

    def offsets(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """All that a group has committed."""
        entry = self._entries.get(group_id)
        return {} if entry is None else entry.offsets.all()

    def extra_memory_bytes(self, group_id: str, event: events.Join) -> int:
        """How much more memory a Join takes; not more than 0 where it replaces one that took as much."""
        entry = self._entries.get(group_id)
        known_bytes = 0 if entry is None else entry.group.member_bytes(event.member_id)
        return MEMBER_BYTES + protocols_bytes(event.protocols) - known_bytes

    def offset(self, group_id: str, topic_partition: TopicPartition) -> OffsetCommitValue | None:
        """What a group has committed for a partition."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.offsets.get(topic_partition)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """When a group wants its Tick."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group.next_deadline_ms()

    # --- members --------------------------------------------------------------------------------------------

    def step(self, group_id: str, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """Tell a group what happened; the first member's Join makes it."""
        entry = self._entries.get(group_id)
        if isinstance(event, events.Join):
            if not self._allows(event.session_timeout_ms):
                return [events.Joined(event.request, ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)]
            if entry is None and not event.member_id:
                entry = self._add(group_id, wall_ms)
        if entry is None:
            return _refused(event, ErrorCode.UNKNOWN_MEMBER_ID)
        state = entry.group.state
        effects = entry.group.step(event, now_ms)
        self._count(entry)
        if entry.group.state is not state:
            entry.since_ms = wall_ms
        return effects

    def group_record(self, group_id: str, value: GroupMetadataValue) -> KeyValue:
        """What Store wants written."""
        entry = self._entries.get(group_id)
        since_ms = UNKNOWN_MS if entry is None or entry.since_ms is None else entry.since_ms
        value = replace(value, state_timestamp_ms=since_ms)
        return group_key(group_id), group_bytes(value, self._settings.versions)

    def _allows(self, session_timeout_ms: int) -> bool:
        settings = self._settings
        return settings.session_timeout_min_ms <= session_timeout_ms <= settings.session_timeout_max_ms

    def _add(self, group_id: str, wall_ms: int) -> _Entry:
        group = Group(group_id, initial_rebalance_delay_ms=self._settings.initial_rebalance_delay_ms)
        entry = self._entries[group_id] = _Entry(group, wall_ms)
        return entry

    def _count(self, entry: _Entry) -> None:
        """A group, or whether it has offsets, may have changed."""
        group = entry.group
        kept_by_offsets = group.state is GroupState.EMPTY and entry.offsets.has_any
        size = 0 if group.protocol_type is None or kept_by_offsets else group.memory_bytes
        self.memory_bytes += size - entry.counted_bytes
        entry.counted_bytes = size

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self, group_id: str, member_id: str, generation: int, now_ms: int, wall_ms: int
    ) -> ErrorCode:
        """Return whether a commit may be written. The first one of a consumer outside of a group makes it."""
        entry = self._entries.get(group_id)
        if entry is None:
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            entry = self._add(group_id, wall_ms)
        return entry.group.check_commit(member_id, generation, now_ms)

    def begin_commit(self, group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """A commit that may be written is on its way."""
        entry = self._entries[group_id]
        entry.offsets.begin(commits)
        self._count(entry)

    def end_commit(
        self, group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue], log_offset: int | None
    ) -> None:
        """It stands in the log from ``log_offset`` on, and every in-sync replica has it; None: it failed."""
        entry = self._entries.get(group_id)
        if entry is None:
            return
        if log_offset is None:
            entry.offsets.abort(commits)
        else:
            entry.offsets.complete(commits, log_offset)
        self._count(entry)

    # --- what goes ------------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> tuple[ErrorCode, list[KeyValue]]:
        """Delete a group that has no members, with its offsets; the tombstones."""
        entry = self._entries.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        error = entry.group.delete()
        if error is not ErrorCode.NONE:
            return error, []
        return error, self._tombstones(group_id, entry, entry.offsets.remove_all())

    def expire_offsets(self, group_id: str, wall_ms: int, limit: int) -> list[KeyValue]:
        """Forget what a group has that is too old, up to ``limit`` offsets, and the group when nothing is
        left of it; the tombstones.
        """
        entry = self._entries.get(group_id)
        if entry is None or entry.group.state is not GroupState.EMPTY:
            return []
        had_members = entry.group.protocol_type is not None
        since_ms = entry.since_ms if had_members else None
        removed = entry.offsets.expire(wall_ms, self._settings.retention_ms, since_ms, limit)
        return self._remove_if_empty(group_id, entry, removed)

    def topics_deleted(self, gone: Iterable[TopicPartition]) -> list[KeyValue]:
        """Forget the offsets of partitions that there are no more; the tombstones."""
        partitions = tuple(gone)
        tombstones: list[KeyValue] = []
        for group_id, entry in list(self._entries.items()):
            tombstones += self._remove_if_empty(group_id, entry, entry.offsets.remove(partitions))
        return tombstones

    def unload(self) -> list[Effect]:
        """Another broker takes over: every request that waits is answered, and nothing is left."""
        effects: list[Effect] = []
        for entry in self._entries.values():
            effects += entry.group.step(events.Unload(), 0)
        self._entries.clear()
        self.memory_bytes = 0
        return effects

    def _remove_if_empty(self, group_id: str, entry: _Entry, removed: list[TopicPartition]) -> list[KeyValue]:
        if entry.group.state is GroupState.EMPTY and not entry.offsets.has_any:
            entry.group.delete()
        return self._tombstones(group_id, entry, removed)

    def _tombstones(self, group_id: str, entry: _Entry, removed: list[TopicPartition]) -> list[KeyValue]:
        tombstones: list[KeyValue] = [
            (offset_key(group_id, topic_partition), None) for topic_partition in removed
        ]
        if entry.group.state is GroupState.DEAD:
            del self._entries[group_id]
            self.memory_bytes -= entry.counted_bytes
            if entry.group.generation > 0:  # else nothing but offsets was ever written of it
                tombstones.append((group_key(group_id), None))
        else:
            self._count(entry)
        return tombstones

    # --- loading --------------------------------------------------------------------------------------------

    def restore_group(self, group_id: str, value: GroupMetadataValue, now_ms: int) -> None:
        """Take in a generation as it was stored."""
        delay_ms = self._settings.initial_rebalance_delay_ms
        group = Group.restored(group_id, value, now_ms, initial_rebalance_delay_ms=delay_ms)
        since_ms = None if value.state_timestamp_ms == UNKNOWN_MS else value.state_timestamp_ms
        self._entries[group_id] = entry = _Entry(group, since_ms)
        self._count(entry)

    def restore_offset(
        self,
        group_id: str,
        topic_partition: TopicPartition,
        log_offset: int,
        value: OffsetCommitValue,
        wall_ms: int,
    ) -> None:
        """Take in an offset as it was stored, after the groups."""
        entry = self._entries.get(group_id) or self._add(group_id, wall_ms)
        entry.offsets.load(topic_partition, log_offset, value)
        self._count(entry)


def commit_records(
    group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue], settings: GroupSettings
) -> list[KeyValue]:
    """Commits as they are written. BrokerError INVALID_COMMIT_OFFSET_SIZE when a name or text is too long."""
    try:
        return [
            (
                offset_key(group_id, topic_partition),
                offset_bytes(value, settings.versions, settings.retention_ms),
            )
            for topic_partition, value in commits.items()
        ]
    except LocalWireError as error:
        raise BrokerError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, str(error)) from None


def commit_bytes(group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue]) -> int:
    """What commits take at least, as they are written, without a look at each character."""
    fixed = len(group_id) + COMMIT_BYTES_MIN
    return sum(fixed + len(key.topic) + len(value.metadata) for key, value in commits.items())


def _refused(event: Event, error: ErrorCode) -> list[Effect]:
    """The answer to an event of a group that there is not."""
    match event:
        case events.Join(request, member_id):
            return [events.Joined(request, error, member_id)]
        case events.Sync(request):
            return [events.Synced(request, error)]
        case events.Heartbeat(request) | events.Leave(request):
            return [events.Answered(request, error)]
    return []
