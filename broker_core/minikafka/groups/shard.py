"""All groups of one partition of ``__consumer_offsets``, in its leader, which is their coordinator.

It combines the state machine of each group, its offsets and their format in the log. Writes are returned as
records, in log order, and the caller reports their outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import int32
from minikafka.base.errors import BrokerError, ErrorCode, LocalWireError
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.events import Effect, Event
from minikafka.groups.group import NO_LIMIT, Group, GroupSummary
from minikafka.groups.members import MEMBER_BYTES, PENDING_MEMBER_BYTES, protocols_bytes
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
from minikafka.records.format.record import KeyValue
from minikafka.wire.consumer_protocol import PROTOCOL_TYPE

COMMIT_BYTES_MIN = 10 + 20
"""The size of a commit, key and value, without its strings."""

NO_GROUP = GroupSummary(GroupState.DEAD, "", "", ())
"""The description of a group that does not exist."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A broker's settings for groups, and the versions in which they are stored. Times are ms."""

    session_timeout_min_ms: int = setting(
        "group.min.session.timeout.ms", int32(0), 6_000, "The shortest session of a member."
    )
    session_timeout_max_ms: int = setting(
        "group.max.session.timeout.ms", int32(0), 300_000, "The longest session of a member."
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", int32(0), 3_000, "How long a new group waits for more members."
    )
    max_size: int = setting("group.max.size", int32(1), NO_LIMIT, "The most members of a group.")
    retention_ms: int = setting(
        "offsets.retention.minutes",
        int32(1).then(lambda minutes: minutes * 60_000),
        10_080,
        "How long offsets of a group without members are kept.",
    )
    metadata_max_chars: int = setting(
        "offset.metadata.max.bytes", int32(0), 4_096, "The longest text that a commit may carry."
    )
    versions: ValueVersions = field(default_factory=ValueVersions)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in ListGroups."""

    group_id: str
    protocol_type: str
    state: GroupState


class _Entry:
    """A group, its offsets, and the time (wall clock) when it entered its state; None if not known."""

    def __init__(self, group: Group, since_ms: int | None) -> None:
        self.group = group
        self.offsets = CommittedOffsets()
        self.since_ms = since_ms
        self.counted_bytes = 0
        """The part of the shard's ``memory_bytes`` for this group."""


class GroupCoordinatorShard:
    """The groups of one partition. ``now_ms`` is monotonic, ``wall_ms`` since the epoch."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._entries: dict[str, _Entry] = {}
        self._transactions: dict[int, set[str]] = {}
        """Producer id -> the groups that may have offsets in its open transaction."""
        self.memory_bytes = 0
        """Approximate bytes of memory of all groups that have, or had, members. Offsets do not count, and
        neither does an empty group with offsets: it stays as long as they do, with or without former members.
        """

    def __len__(self) -> int:
        return len(self._entries)

    # --- queries --------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""
        return list(self._entries)

    def list_groups(self) -> list[GroupListing]:
        """Return all groups."""
        return [
            GroupListing(group_id, entry.group.protocol_type or "", entry.group.state)
            for group_id, entry in self._entries.items()
        ]

    def groups(self) -> list[Group]:
        """Return the groups. Any thread may call this, and read what does not change with time."""
        return [entry.group for entry in list(self._entries.values())]

    def all_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of each group. Any thread may call this."""
        return {group_id: entry.offsets.snapshot() for group_id, entry in list(self._entries.items())}

    def offset_count(self) -> int:
        """Return the number of committed offsets of all groups. Any thread may call this."""
        return sum(len(entry.offsets) for entry in list(self._entries.values()))

    def has_group(self, group_id: str) -> bool:
        """Return whether the group exists."""
        return group_id in self._entries

    def describe(self, group_id: str) -> GroupSummary:
        """Return the description of a group; ``NO_GROUP`` if it does not exist."""
        entry = self._entries.get(group_id)
        return NO_GROUP if entry is None else entry.group.describe()

    def offsets(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """Return all committed offsets of a group."""
        entry = self._entries.get(group_id)
        return {} if entry is None else entry.offsets.all()

    def extra_memory_bytes(self, group_id: str, event: events.Join) -> int:
        """Return the additional memory of a Join; at most 0 if it replaces an equal or larger one."""
        entry = self._entries.get(group_id)
        if event.requires_member_id and not event.member_id:
            return PENDING_MEMBER_BYTES + len(event.new_member_id)
        known_bytes = 0 if entry is None else entry.group.member_bytes(event)
        return MEMBER_BYTES + protocols_bytes(event.protocols) - known_bytes

    def offset(self, group_id: str, topic_partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the committed offset of a group for a partition; None if there is none."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.offsets.get(topic_partition)

    def is_unstable(self, group_id: str, topic_partition: TopicPartition) -> bool:
        """Return whether an offset of a group has a pending commit, or one in an open transaction."""
        entry = self._entries.get(group_id)
        return entry is not None and entry.offsets.is_unstable(topic_partition)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time of a group's next deadline, at which Tick is due."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group.next_deadline_ms()

    # --- members --------------------------------------------------------------------------------------------

    def step(self, group_id: str, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """Pass an event to a group; the first member's Join creates the group."""
        entry = self._entries.get(group_id)
        if isinstance(event, events.Join):
            if not self._allows(event.session_timeout_ms):
                return [events.Joined(event.request, ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)]
            if entry is None and not event.member_id:
                entry = self._add(group_id, wall_ms)
        if entry is None:
            return _reject(event, ErrorCode.UNKNOWN_MEMBER_ID)
        state = entry.group.state
        effects = entry.group.step(event, now_ms)
        self._count(entry)
        if entry.group.state is not state:
            entry.since_ms = wall_ms
        return effects

    def group_record(self, group_id: str, value: GroupMetadataValue) -> KeyValue:
        """Return the record for a StoreGroup effect."""
        entry = self._entries.get(group_id)
        since_ms = UNKNOWN_MS if entry is None or entry.since_ms is None else entry.since_ms
        value = replace(value, state_timestamp_ms=since_ms)
        return group_key(group_id), group_bytes(value, self._settings.versions)

    def _allows(self, session_timeout_ms: int) -> bool:
        settings = self._settings
        return settings.session_timeout_min_ms <= session_timeout_ms <= settings.session_timeout_max_ms

    def _add(self, group_id: str, since_ms: int | None) -> _Entry:
        settings = self._settings
        group = Group(
            group_id,
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            max_size=settings.max_size,
        )
        entry = self._entries[group_id] = _Entry(group, since_ms)
        return entry

    def _count(self, entry: _Entry) -> None:
        """Update the memory of a group after it, or its offsets, may have changed."""
        group = entry.group
        kept_by_offsets = (
            entry.offsets.has_any and group.state is GroupState.EMPTY and not group.members.pending
        )
        size = 0 if kept_by_offsets else group.memory_bytes
        self.memory_bytes += size - entry.counted_bytes
        entry.counted_bytes = size

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self, group_id: str, member: events.MemberIdentity, generation: int, now_ms: int, wall_ms: int
    ) -> ErrorCode:
        """Return NONE if a commit may be written, otherwise the error.

        The first commit of a consumer that is not a member creates the group.
        """
        entry = self._entries.get(group_id)
        if entry is None:
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            entry = self._add(group_id, wall_ms)
        return entry.group.check_commit(member, generation, now_ms)

    def begin_commit(self, group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Add a pending commit, after ``check_commit``."""
        entry = self._entries[group_id]
        entry.offsets.begin(commits)
        self._count(entry)

    def end_commit(
        self, group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue], log_offset: int | None
    ) -> None:
        """Complete a pending commit, which is in the log from ``log_offset`` on; None: it failed."""
        entry = self._entries.get(group_id)
        if entry is None:
            return
        if log_offset is None:
            entry.offsets.abort(commits)
        else:
            entry.offsets.complete(commits, log_offset)
        self._count(entry)

    # --- offsets in transactions ----------------------------------------------------------------------------

    def check_txn_commit(self, group_id: str, member: events.MemberIdentity, generation: int) -> ErrorCode:
        """Return NONE if a commit in a transaction may be written, otherwise the error."""
        entry = self._entries.get(group_id)
        if entry is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
        return entry.group.check_txn_commit(member, generation)

    def add_txn_commit(
        self,
        group_id: str,
        producer_id: int,
        commits: Mapping[TopicPartition, OffsetCommitValue],
        log_offset: int,
        wall_ms: int,
    ) -> None:
        """Keep a commit in a transaction aside, which is in the log from ``log_offset`` on.

        The first one of an unknown group creates the group.
        """
        entry = self._entries.get(group_id) or self._add(group_id, wall_ms)
        entry.offsets.add_transactional(producer_id, commits, log_offset)
        self._transactions.setdefault(producer_id, set()).add(group_id)
        self._count(entry)

    def complete_transaction(self, producer_id: int, marker_offset: int, *, commit: bool) -> None:
        """Commit or drop the offsets in a producer's transaction, in all groups. The marker that ends it is
        in the log at ``marker_offset``, and every in-sync replica has it; later offsets stay aside.
        """
        for group_id in list(self._transactions.get(producer_id, ())):
            entry = self._entries.get(group_id)
            if entry is not None:
                entry.offsets.end_transaction(producer_id, marker_offset, commit=commit)
                self._count(entry)
            if entry is None or not entry.offsets.is_in_transaction(producer_id):
                self._transactions[producer_id].remove(group_id)
        if not self._transactions.get(producer_id, True):
            del self._transactions[producer_id]

    # --- deletion and expiration ----------------------------------------------------------------------------

    def delete(self, group_id: str) -> tuple[ErrorCode, list[KeyValue]]:
        """Delete a group without members, with its offsets; return the tombstones."""
        entry = self._entries.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        error = entry.group.delete()
        if error is not ErrorCode.NONE:
            return error, []
        return error, self._tombstones(group_id, entry, entry.offsets.remove_all())

    def expire_offsets(self, group_id: str, wall_ms: int, limit: int) -> list[KeyValue]:
        """Remove up to ``limit`` expired offsets of a group, and the group if nothing is left of it; return
        the tombstones.
        """
        entry = self._entries.get(group_id)
        if entry is None:
            return []
        group, since_ms, consumed = entry.group, None, frozenset[str]()
        if group.state is GroupState.STABLE and (topics := group.subscribed_topics()) is not None:
            consumed = topics
        elif group.state is not GroupState.EMPTY:
            return []
        elif group.protocol_type is not None:
            since_ms = entry.since_ms
        removed = entry.offsets.expire(wall_ms, self._settings.retention_ms, since_ms, limit, consumed)
        return self._remove_if_empty(group_id, entry, removed)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, ErrorCode], list[KeyValue]]:
        """Delete the offsets of partitions that no member consumes; return the outcomes and the tombstones.

        Raises BrokerError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if its members are not consumers.
        """
        entry = self._entries.get(group_id)
        if entry is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        group, wanted = entry.group, tuple(dict.fromkeys(partitions))
        consumed: Iterable[TopicPartition] = ()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != PROTOCOL_TYPE:
                raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
            topics = group.subscribed_topics()
            consumed = {key for key in wanted if topics is None or key.topic in topics}
        removed = entry.offsets.remove(key for key in wanted if key not in consumed)
        outcomes = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key in consumed else ErrorCode.NONE for key in wanted
        }
        return outcomes, self._remove_if_empty(group_id, entry, removed)

    def remove_offsets(self, deleted: Iterable[TopicPartition]) -> list[KeyValue]:
        """Remove the offsets of deleted partitions; return the tombstones."""
        partitions = tuple(deleted)
        tombstones: list[KeyValue] = []
        for group_id, entry in list(self._entries.items()):
            tombstones += self._remove_if_empty(group_id, entry, entry.offsets.remove(partitions))
        return tombstones

    def unload(self) -> list[Effect]:
        """Remove all groups, as another broker takes over; every waiting request gets a response."""
        effects: list[Effect] = []
        for entry in self._entries.values():
            effects += entry.group.step(events.Unload(), 0)
        self._entries.clear()
        self._transactions.clear()
        self.memory_bytes = 0
        return effects

    def _remove_if_empty(self, group_id: str, entry: _Entry, removed: list[TopicPartition]) -> list[KeyValue]:
        group = entry.group
        if group.state is GroupState.EMPTY and not entry.offsets.has_any and not group.members.pending:
            group.delete()
        return self._tombstones(group_id, entry, removed)

    def _tombstones(self, group_id: str, entry: _Entry, removed: list[TopicPartition]) -> list[KeyValue]:
        tombstones: list[KeyValue] = [
            (offset_key(group_id, topic_partition), None) for topic_partition in removed
        ]
        if entry.group.state is GroupState.DEAD:
            del self._entries[group_id]
            self.memory_bytes -= entry.counted_bytes
            if entry.group.generation > 0:  # otherwise only its offsets were ever written
                tombstones.append((group_key(group_id), None))
        else:
            self._count(entry)
        return tombstones

    # --- loading --------------------------------------------------------------------------------------------

    def restore_group(self, group_id: str, value: GroupMetadataValue, now_ms: int) -> None:
        """Add a group from its stored generation."""
        since_ms = None if value.state_timestamp_ms == UNKNOWN_MS else value.state_timestamp_ms
        entry = self._add(group_id, since_ms)
        entry.group.restore(value, now_ms)
        self._count(entry)

    def restore_offset(
        self,
        group_id: str,
        topic_partition: TopicPartition,
        log_offset: int,
        value: OffsetCommitValue,
        wall_ms: int,
    ) -> None:
        """Add a stored offset, after the groups."""
        entry = self._entries.get(group_id) or self._add(group_id, wall_ms)
        entry.offsets.load(topic_partition, log_offset, value)
        self._count(entry)


def commit_records(
    group_id: str, commits: Mapping[TopicPartition, OffsetCommitValue], settings: GroupSettings
) -> list[KeyValue]:
    """Return the records of commits.

    Raises INVALID_COMMIT_OFFSET_SIZE (BrokerError) when a string is too long.
    """
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
    """Return a lower bound of the size of commits in the log, without encoding their strings."""
    fixed = len(group_id) + COMMIT_BYTES_MIN
    return sum(fixed + len(key.topic) + len(value.metadata) for key, value in commits.items())


def _reject(event: Event, error: ErrorCode) -> list[Effect]:
    """Return the response to an event of a group that does not exist."""
    match event:
        case events.Join(request, member_id):
            return [events.Joined(request, error, member_id)]
        case events.Sync(request):
            return [events.Synced(request, error)]
        case events.Heartbeat(request):
            return [events.Answered(request, error)]
        case events.Leave(request, members):
            return [events.Left(request, ErrorCode.NONE, tuple((member, error) for member in members))]
    return []
