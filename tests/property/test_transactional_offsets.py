"""The offsets of a partition's groups under plain commits, commits in transactions, markers, failed appends,
tombstones and loads, in any order: always those that the log gives.

The oracle reads the log anew each time. A record counts by its place in the log; one of a transaction if the
next marker of its producer commits, and every in-sync replica has it; a tombstone hides what is before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.groups import events
from minikafka.groups.loading import GroupMetadataLoader
from minikafka.groups.messages import (
    NEVER_MS,
    OffsetCommitValue,
    OffsetKey,
    ValueVersions,
    offset_bytes,
    offset_key,
    read_key,
)
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.records.format.batch import ControlType
from minikafka.records.format.record import KeyValue
from minikafka.records.scan.isolation import TransactionPart

SETTINGS = GroupSettings(retention_ms=1_000)
EXPIRED_MS = 1_000_000
MANY = 1_000
NOBODY = events.MemberIdentity("")
NO_PRODUCER = -1

GROUPS = ("g", "h")
PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
SLOTS = [(group, key) for group in GROUPS for key in PARTITIONS]

Slot = tuple[str, TopicPartition]
Commits = dict[TopicPartition, OffsetCommitValue]

groups = st.sampled_from(GROUPS)
producers = st.integers(1, 3)
partitions = st.sets(st.sampled_from(PARTITIONS), min_size=1)


@dataclass(frozen=True)
class Entry:
    """A batch or a marker of the log."""

    offset: int
    producer: int
    pairs: tuple[KeyValue, ...] = ()
    mark: ControlType | None = None
    commits: tuple[tuple[Slot, OffsetCommitValue | None], ...] = ()
    identity: Commits | None = None
    """A plain commit, as the coordinator passed it on."""

    @property
    def end_offset(self) -> int:
        return self.offset + max(1, len(self.pairs))


class OffsetsMachine(RuleBasedStateMachine):
    """A coordinator, its log, and the number of entries that every in-sync replica has."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = GroupCoordinatorShard(SETTINGS)
        self.log: list[Entry] = []
        self.replicated = 0
        self.value = 0

    # --- what is written ------------------------------------------------------------------------------------

    def values(self, keys: set[TopicPartition]) -> Commits:
        self.value += 1
        return {key: OffsetCommitValue(self.value, -1, "", 0, NEVER_MS) for key in sorted(keys)}

    def append(self, entry: Entry) -> Entry:
        self.log.append(entry)
        return entry

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def append_commits(self, group: str, commits: Commits, producer: int = NO_PRODUCER) -> Entry:
        pairs = tuple(
            (offset_key(group, key), offset_bytes(value, ValueVersions(), SETTINGS.retention_ms))
            for key, value in commits.items()
        )
        rows = tuple(((group, key), value) for key, value in commits.items())
        plain = commits if producer == NO_PRODUCER else None
        return self.append(Entry(self.end_offset, producer, pairs, None, rows, plain))

    def append_tombstones(self, tombstones: list[KeyValue]) -> list[Slot]:
        keys = [read_key(key) for key, _ in tombstones]
        slots = [(key.group, key.topic_partition) for key in keys if isinstance(key, OffsetKey)]
        assert len(slots) == len(set(slots)) == len(tombstones)
        if tombstones:
            rows = tuple((slot, None) for slot in slots)
            self.append(Entry(self.end_offset, NO_PRODUCER, tuple(tombstones), None, rows))
        return slots

    def is_ending(self, producer: int) -> bool:
        """A marker is not yet replicated: the producer's coordinator begins no other transaction."""
        return any(entry.mark is not None and entry.producer == producer for entry in self.waiting())

    def waiting(self) -> list[Entry]:
        return self.log[self.replicated :]

    # --- events ---------------------------------------------------------------------------------------------

    @rule(group=groups, keys=partitions, fails=st.booleans())
    def commit(self, group: str, keys: set[TopicPartition], fails: bool) -> None:
        commits = self.values(keys)
        assert self.shard.check_commit(group, NOBODY, -1, 0, 0) is ErrorCode.NONE
        self.shard.begin_commit(group, commits)
        if fails:
            self.shard.end_commit(group, commits, None)
        else:
            self.append_commits(group, commits)

    @rule(group=groups, keys=partitions, producer=producers)
    def commit_in_a_transaction(self, group: str, keys: set[TopicPartition], producer: int) -> None:
        if not self.is_ending(producer):
            assert self.shard.check_txn_commit(group, NOBODY, -1) is ErrorCode.NONE
            commits = self.values(keys)
            entry = self.append_commits(group, commits, producer)
            self.shard.add_txn_commit(group, producer, commits, entry.offset, 0)

    @rule(producer=producers, mark=st.sampled_from(ControlType))
    def end_transaction(self, producer: int, mark: ControlType) -> None:
        self.append(Entry(self.end_offset, producer, mark=mark))

    @precondition(lambda self: self.replicated < len(self.log))
    @rule(count=st.integers(1, 4))
    def replicate(self, count: int) -> None:
        for entry in self.waiting()[:count]:
            if entry.identity is not None:
                self.shard.end_commit(entry.commits[0][0][0], entry.identity, entry.offset)
            self.report(entry)
            self.replicated += 1

    def report(self, entry: Entry) -> None:
        if entry.mark is not None:
            commit = entry.mark is ControlType.COMMIT
            self.shard.complete_transaction(entry.producer, entry.offset, commit=commit)

    @rule(keys=partitions)
    def delete_partitions(self, keys: set[TopicPartition]) -> None:
        known = {slot for slot in SLOTS if slot in self.visible() or slot in self.unstable()}
        removed = self.append_tombstones(self.shard.remove_offsets(keys))
        assert set(removed) == {(group, key) for group, key in known if key in keys}

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        known = {slot for slot in SLOTS if slot in self.visible() or slot in self.unstable()}
        exists = self.shard.has_group(group)
        error, tombstones = self.shard.delete(group)
        assert error is (ErrorCode.NONE if exists else ErrorCode.GROUP_ID_NOT_FOUND)
        assert set(self.append_tombstones(tombstones)) == {slot for slot in known if slot[0] == group}

    @rule()
    def expire(self) -> None:
        stable = {slot for slot in self.visible() if slot not in self.unstable()}
        tombstones = [pair for group in GROUPS for pair in self.shard.expire_offsets(group, EXPIRED_MS, MANY)]
        assert set(self.append_tombstones(tombstones)) == stable
        assert set(self.shard.group_ids()) == {group for group, _ in self.unstable()}

    @rule(windows=st.lists(st.integers(1, 5), min_size=1, max_size=5), again=st.integers(0, 20))
    def load(self, windows: list[int], again: int) -> None:
        """Load the log, window by window; then markers that it has are reported, some of them again."""
        loading = GroupMetadataLoader(SETTINGS)
        rest = self.log
        while rest:
            window, rest = rest[: windows[0]], rest[windows[0] :]
            windows = [*windows[1:], windows[0]]
            rows = [
                (key, entry.offset + at, value)
                for entry in window
                for at, (key, value) in enumerate(entry.pairs)
            ]
            parts = [
                TransactionPart(entry.producer, entry.offset, entry.end_offset - 1, entry.mark)
                for entry in window
                if entry.producer != NO_PRODUCER
            ]
            keys, offsets, values = zip(*rows, strict=True) if rows else ((), (), ())
            loading.add(keys, offsets, values, parts)
        self.shard = loading.finish(0, 0)
        for entry in self.log[max(0, self.replicated - again) :]:
            self.report(entry)
        self.replicated = len(self.log)

    # --- the oracle -----------------------------------------------------------------------------------------

    def marker_after(self, number: int) -> int:
        """The number of the entry that ends the transaction of an entry; that of the log's end for none."""
        for later in range(number + 1, len(self.log)):
            if self.log[later].mark is not None and self.log[later].producer == self.log[number].producer:
                return later
        return len(self.log)

    def visible(self) -> dict[Slot, OffsetCommitValue]:
        newest: dict[Slot, OffsetCommitValue | None] = {}
        for number, entry in enumerate(self.log):
            is_tombstone = bool(entry.commits) and entry.commits[0][1] is None
            decided = number if entry.producer == NO_PRODUCER else self.marker_after(number)
            if is_tombstone or (
                decided < self.replicated
                and (decided == number or self.log[decided].mark is ControlType.COMMIT)
            ):
                newest.update(entry.commits)
        return {slot: value for slot, value in newest.items() if value is not None}

    def unstable(self) -> set[Slot]:
        found: set[Slot] = set()
        for number, entry in enumerate(self.log):
            decided = number if entry.producer == NO_PRODUCER else self.marker_after(number)
            for slot, value in entry.commits:
                if value is None:
                    found.discard(slot)
                elif decided >= self.replicated:
                    found.add(slot)
        return found

    @invariant()
    def offsets_are_those_of_the_log(self) -> None:
        here = {(group, key): value for group in GROUPS for key, value in self.shard.offsets(group).items()}
        assert here == self.visible()
        assert {slot for slot in SLOTS if self.shard.is_unstable(*slot)} == self.unstable()


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(stateful_step_count=40)
