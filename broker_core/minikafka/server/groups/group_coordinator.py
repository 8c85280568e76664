"""The group coordinator: requests, timers and the log of ``__consumer_offsets`` for the groups of a broker.

Each group belongs to one partition of ``__consumer_offsets``, by the hash of its name; the partition's leader
coordinates it. The state machines are in ``minikafka.groups``; this module turns their decisions into records
and responses.

- A step runs under the core's lock. Its records are appended in the same step, so that the log has them in
  the order of the decisions. Requests that depend on them complete once every in-sync replica has the records
  (the high watermark has passed them), or after ``offsets.commit.timeout.ms``.
- When this broker becomes leader of a partition, a separate thread loads its groups (``group_loader``). They
  answer GROUP_LOAD_IN_PROGRESS meanwhile, and NOT_COORDINATOR after the partition has moved away.
- Offsets that a producer commits in a transaction are one batch of its id and epoch. They are kept aside from
  when it is appended until ``transaction_completed`` reports the marker that ends the transaction.
- A group's next deadline is a delayed operation (``Broker.wait``). Heartbeats only postpone the deadline, so
  they cost nothing there.

Texts: "Consumer Offset Tracking", the offset manager.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, value_or_error
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.groups import events
from minikafka.groups.group import GroupSummary
from minikafka.groups.messages import OffsetCommitValue
from minikafka.groups.shard import GroupCoordinatorShard, GroupListing, commit_bytes, commit_records
from minikafka.log.producers.producer_state import Guard
from minikafka.partition.partition import Partition
from minikafka.records.format.record import KeyValue
from minikafka.server.admin.topics import start_auto_creation
from minikafka.server.coordination.coordinators import partition_for
from minikafka.server.coordination.delayed_write import Timer
from minikafka.server.coordination.partition_writer import PartitionWriter
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import portions
from minikafka.server.groups.group_loader import GroupLoader
from minikafka.server.metrics.definitions import REBALANCES
from minikafka.server.workers.worker import Worker

_log = logging.getLogger(__name__)

T = TypeVar("T")

Commits = Mapping[TopicPartition, OffsetCommitValue]

_TOMBSTONES_PER_STEP = 1_000
_OFFSETS_PER_STEP = 2_000
_GROUPS_PER_STEP = 1_000
"""Groups checked for expired offsets in one step."""
_LOAD_RETRY_MS = 5_000
_REASON_CHARS = 400
"""The longest reason of a rebalance in the log; a client's own may have any length."""
MAX_MEMBERS_BYTES = 128 << 20
"""The memory limit for members of all groups: their metadata, their assignments, and 2 kB each."""
MAX_NEW_GROUPS_BYTES = 64 << 20
"""Above this, new groups are refused: a client can invent any number of names."""
_FULL_LOG_INTERVAL_MS = 10_000

FAILED_COMMIT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error of a failed write -> the error for a commit, which clients can handle."""
_FAILED_STORE = {
    **FAILED_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN,
}
"""Error of a failed write -> the error for members that wait for their assignment."""


@dataclass(slots=True)
class _Load:
    """Changes to the groups of a partition since their load began; it may read them or not."""

    deleted: list[TopicPartition] = field(default_factory=list)
    """Partitions that were deleted."""
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    """Producer id, offset of the marker in the log, and whether it commits."""


def _check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for an empty name, which only commits outside of a group may have."""
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


class GroupCoordinator:
    """The groups of one broker. Methods that are not called within a step must not hold the core's lock."""

    def __init__(self, broker: Broker, loading: Worker, random_bytes: Callable[[int], bytes]) -> None:
        self.broker = broker
        self._random_bytes = random_bytes
        self._config = broker.config.offsets
        self._settings = broker.config.groups
        self._writer = PartitionWriter(broker, self._config.codec, self._config.commit_timeout_ms)
        self._loader = GroupLoader(self._settings, broker.clock, self._config.load_bytes)
        self._loading = loading
        self.shards: dict[int, GroupCoordinatorShard] = {}
        """Partition -> its groups. Any thread may copy it."""
        self._loads: dict[int, _Load] = {}
        """The partitions that are being loaded."""
        self._timers: dict[str, Timer] = {}
        self._to_expire: deque[tuple[int, str]] = deque()
        """Partition and name of each group still to be checked for expired offsets."""
        self._stopped = False
        self._log_full_at_ms = 0

    # --- partitions of groups -------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of the offsets topic that a group belongs to."""
        return partition_for(self.broker, OFFSETS_TOPIC, self._config.partitions, group_id)

    def new_member_id(self, name: str) -> str:
        """Return a new member id in Kafka's form: the instance id or the client id, and a random UUID."""
        return f"{name}-{uuid.UUID(bytes=self._random_bytes(16), version=4)}"

    def create_topic(self) -> None:
        """Create the offsets topic unless it exists. Raises BrokerError when that is not possible."""
        start_auto_creation(
            self.broker,
            OFFSETS_TOPIC,
            self._config.partitions,
            min(self._config.replication_factor, len(self.broker.metadata_cache.brokers)),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config.segment_bytes),
            },
        )

    def _shard_of(self, group_id: str) -> GroupCoordinatorShard:
        """Return the shard of a group. Called within a step. Raises BrokerError if it is not available."""
        if self._stopped:
            raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        topic_partition = self.partition_of(group_id)
        if topic_partition.partition in self._loads:
            raise BrokerError(ErrorCode.GROUP_LOAD_IN_PROGRESS, f"{topic_partition} is being loaded")
        shard = self.shards.get(topic_partition.partition)
        if shard is None:
            raise BrokerError(
                ErrorCode.NOT_COORDINATOR_FOR_GROUP,
                f"this broker does not lead {topic_partition} of group {group_id}",
            )
        return shard

    # --- members --------------------------------------------------------------------------------------------

    def handle_event(self, group_id: str, event: events.Event) -> None:
        """Pass a member's event to its group; the response goes to the callable ``event.request``.

        Raises BrokerError when this broker does not coordinate the group.
        """
        _check_group_id(group_id)

        def step() -> None:
            shard = self._shard_of(group_id)
            if isinstance(event, events.Join):
                self._check_room(shard, group_id, event)
            self._step(shard, group_id, event)

        self._run_in_step(step)

    def _check_room(self, shard: GroupCoordinatorShard, group_id: str, event: events.Join) -> None:
        """Check that there is room for a member.

        Raise MESSAGE_TOO_LARGE when its group could never be stored, whichever protocol is chosen, and
        GROUP_COORDINATOR_NOT_AVAILABLE, which clients retry, when groups use too much memory.
        """
        more_bytes = shard.extra_memory_bytes(group_id, event)
        if more_bytes <= 0:
            return
        partition = self.broker.partitions.get(self.partition_of(group_id))
        if partition is not None:
            # Only the metadata of the chosen protocol is stored.
            self._writer.check_size(
                partition, min((len(metadata) for _, metadata in event.protocols), default=0)
            )
        used_bytes = sum(shard.memory_bytes for shard in self.shards.values())
        limit_bytes = MAX_MEMBERS_BYTES if shard.has_group(group_id) else MAX_NEW_GROUPS_BYTES
        if used_bytes + more_bytes > limit_bytes:
            self._log_full(used_bytes)
            raise BrokerError(
                ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, f"no memory for more members of group {group_id}"
            )

    def _log_full(self, used_bytes: int) -> None:
        now_ms = self.broker.clock.monotonic_ms()
        if now_ms >= self._log_full_at_ms:
            self._log_full_at_ms = now_ms + _FULL_LOG_INTERVAL_MS
            text = "group members use %d bytes: rejecting new members above %d bytes, new groups above %d"
            _log.warning(text, used_bytes, MAX_MEMBERS_BYTES, MAX_NEW_GROUPS_BYTES)

    def _step(self, shard: GroupCoordinatorShard, group_id: str, event: events.Event) -> None:
        clock = self.broker.clock
        self._perform(shard, group_id, shard.step(group_id, event, clock.monotonic_ms(), clock.now_ms()))
        if not isinstance(event, events.Heartbeat):  # which only postpones deadlines
            self._schedule_timer(shard, group_id)

    def _perform(self, shard: GroupCoordinatorShard, group_id: str, effects: Iterable[events.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, events.StoreGroup):
                self._store(shard, group_id, effect)
            elif isinstance(effect, events.Rebalancing):
                self.broker.metrics.count(REBALANCES)
                _log.info("rebalancing group %s: %r", group_id, effect.reason[:_REASON_CHARS])
            else:
                self.broker.after(partial(effect.request, effect))

    def _store(self, shard: GroupCoordinatorShard, group_id: str, effect: events.StoreGroup) -> None:
        def done(error: ErrorCode, offset: int) -> None:
            if error is not ErrorCode.NONE:
                generation = effect.value.generation
                _log.error("failed to store generation %d of group %s: %s", generation, group_id, error.name)
            outcome = events.GroupStored(effect, _FAILED_STORE.get(error, error))
            self._step(shard, group_id, outcome)

        topic_partition = self.partition_of(group_id)
        try:
            partition = self.broker.partition(topic_partition)
            self._writer.check_size(
                partition, sum(len(m.subscription) + len(m.assignment) for m in effect.value.members)
            )
            pairs = [shard.group_record(group_id, effect.value)]
            records = self._writer.validated_records(partition, pairs)
        except BrokerError as error:
            done(error.code, -1)
        else:
            self._writer.append(topic_partition, records, done)

    def _schedule_timer(self, shard: GroupCoordinatorShard, group_id: str) -> None:
        """Schedule the group's next Tick. Called within a step."""
        deadline_ms = shard.next_deadline_ms(group_id)
        timer = self._timers.get(group_id)
        if deadline_ms is None or self._stopped or (timer is not None and timer.deadline_ms <= deadline_ms):
            return  # a timer that fires early is scheduled again
        if timer is not None:
            self.broker.purgatory.remove(timer)
        self._timers[group_id] = timer = Timer(deadline_ms, partial(self._on_timer, group_id))
        self.broker.wait(timer, [], deadline_ms)

    def _on_timer(self, group_id: str, timer: Timer) -> None:
        def step() -> None:
            if self._timers.get(group_id) is timer:
                del self._timers[group_id]
            shard = self.shards.get(self.partition_of(group_id).partition)
            if shard is not None and not self._stopped:
                self._step(shard, group_id, events.Tick())

        self.broker.run(step)

    # --- offsets --------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member: events.MemberIdentity,
        generation: int,
        commits: Commits,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Commit offsets; ``done`` is called with the outcome, outside of the lock, now or later."""
        topic_partition = self.partition_of(group_id)
        try:
            partition = self.broker.partition(topic_partition)
            pairs = self._commit_records(partition, group_id, commits)
            records = self._writer.validated_records(partition, pairs)
        except BrokerError as error:
            self._refuse(group_id, error, done)
            return

        def step() -> None:
            clock = self.broker.clock
            try:
                shard = self._shard_of(group_id)
            except BrokerError as error:
                self.broker.after(partial(done, error.code))
                return
            refusal = shard.check_commit(group_id, member, generation, clock.monotonic_ms(), clock.now_ms())
            if refusal is not ErrorCode.NONE:
                self.broker.after(partial(done, refusal))
                return
            shard.begin_commit(group_id, commits)

            def written(error: ErrorCode, offset: int) -> None:
                shard.end_commit(group_id, commits, offset if error is ErrorCode.NONE else None)
                self.broker.after(partial(done, FAILED_COMMIT.get(error, error)))

            self._writer.append(topic_partition, records, written)

        self.broker.run(step)

    def txn_commit(
        self,
        group_id: str,
        member: events.MemberIdentity,
        generation: int,
        producer_id: int,
        producer_epoch: int,
        commits: Commits,
        done: Callable[[ErrorCode], None],
        guard: Guard = None,
    ) -> None:
        """Commit offsets in the open transaction of a producer; ``done`` is called as by ``commit``.

        The caller has verified, with ``guard``, that the group's partition is in the transaction. A commit
        that fails after it was appended takes part in the transaction all the same: the log has it.
        """
        topic_partition = self.partition_of(group_id)
        try:
            partition = self.broker.partition(topic_partition)
            pairs = self._commit_records(partition, group_id, commits)
            records = self._writer.transactional_records(partition, pairs, producer_id, producer_epoch)
        except BrokerError as error:
            self._refuse(group_id, error, done)
            return

        def written(error: ErrorCode, offset: int) -> None:
            self.broker.after(partial(done, FAILED_COMMIT.get(error, error)))

        def step() -> None:
            try:
                shard = self._shard_of(group_id)
            except BrokerError as error:
                self.broker.after(partial(done, error.code))
                return
            refusal = shard.check_txn_commit(group_id, member, generation)
            if refusal is not ErrorCode.NONE:
                self.broker.after(partial(done, refusal))
                return
            offset = self._writer.append(topic_partition, records, written, guard)
            if offset is not None:
                shard.add_txn_commit(group_id, producer_id, commits, offset, self.broker.clock.now_ms())

        self.broker.run(step)

    def transaction_completed(
        self, topic_partition: TopicPartition, producer_id: int, marker_offset: int, *, commit: bool
    ) -> None:
        """Commit or drop the offsets in a producer's transaction. Called within a step, when every in-sync
        replica has the marker, which is at ``marker_offset`` of that partition of the offsets topic.
        """
        number = topic_partition.partition
        if number in self._loads:
            self._loads[number].markers.append((producer_id, marker_offset, commit))
        elif number in self.shards:
            self.shards[number].complete_transaction(producer_id, marker_offset, commit=commit)

    def _commit_records(self, partition: Partition, group_id: str, commits: Commits) -> list[KeyValue]:
        self._writer.check_size(partition, commit_bytes(group_id, commits))
        return commit_records(group_id, commits, self._settings)

    def _refuse(self, group_id: str, error: BrokerError, done: Callable[[ErrorCode], None]) -> None:
        """Report that a commit cannot be written. A broker that is not the coordinator has no such partition,
        and reports that it is not.
        """
        failure = FAILED_COMMIT.get(error.code, error.code)

        def step() -> None:
            shard = value_or_error(lambda: self._shard_of(group_id))
            self.broker.after(partial(done, shard.code if isinstance(shard, BrokerError) else failure))

        self.broker.run(step)

    def offsets(self, group_id: str, wanted: Sequence[TopicPartition] | None = None) -> Commits:
        """Return the committed offsets of ``wanted``, or of all partitions.

        Raises BrokerError when this broker does not coordinate the group.
        """
        return self._look_up(group_id, wanted, require_stable=False)[0]

    def stable_offsets(
        self, group_id: str, wanted: Sequence[TopicPartition] | None = None
    ) -> tuple[Commits, set[TopicPartition]]:
        """Return the committed offsets, as ``offsets``, without those of partitions with a pending commit or
        one in an open transaction, and these partitions: they are UNSTABLE_OFFSET_COMMIT.
        """
        return self._look_up(group_id, wanted, require_stable=True)

    def _look_up(
        self, group_id: str, wanted: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> tuple[Commits, set[TopicPartition]]:
        found: dict[TopicPartition, OffsetCommitValue] = {}
        unstable: set[TopicPartition] = set()

        def add_all() -> None:
            shard = self._shard_of(group_id)
            found.update(shard.offsets(group_id))
            if require_stable:
                unstable.update(key for key in found if shard.is_unstable(group_id, key))

        def add(keys: Sequence[TopicPartition]) -> None:
            shard = self._shard_of(group_id)
            for key in keys:
                if (value := shard.offset(group_id, key)) is not None:
                    found[key] = value
                if require_stable and shard.is_unstable(group_id, key):
                    unstable.add(key)

        if wanted is None:
            self._run_in_step(add_all)
        else:
            # At least one step, for its error. Other requests get the lock between steps.
            for keys in portions(wanted, _OFFSETS_PER_STEP) or [wanted]:
                self._run_in_step(partial(add, keys))
        for key in unstable:
            found.pop(key, None)
        return found, unstable

    # --- administration -------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupSummary:
        """Return a group; ``NO_GROUP`` when it does not exist. Raises BrokerError as ``handle_event``."""
        _check_group_id(group_id)
        return self._run_in_step(lambda: self._shard_of(group_id).describe(group_id))

    def groups(self) -> tuple[ErrorCode, list[GroupListing]]:
        """Return all groups here, and an error if some are not loaded."""

        def listing(number: int) -> list[GroupListing]:
            shard = self.shards.get(number)
            return [] if shard is None else shard.list_groups()

        if self._stopped:
            return ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, []
        found: list[GroupListing] = []
        for number in self._run_in_step(lambda: list(self.shards)):  # other requests get the lock in between
            found += self._run_in_step(partial(listing, number))
        return ErrorCode.GROUP_LOAD_IN_PROGRESS if self._loads else ErrorCode.NONE, found

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""

        def deletion() -> ErrorCode:
            try:
                error, tombstones = self._shard_of(group_id).delete(group_id)
            except BrokerError as refused:
                return refused.code
            self._append_tombstones(self.partition_of(group_id), tombstones)
            return error

        return self._run_in_step(deletion)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets of partitions that no member consumes; return the outcomes.

        Raises BrokerError when the group does not exist, is not here, or has members that are not consumers.
        """
        _check_group_id(group_id)

        def deletion() -> dict[TopicPartition, ErrorCode]:
            outcomes, tombstones = self._shard_of(group_id).delete_offsets(group_id, partitions)
            self._append_tombstones(self.partition_of(group_id), tombstones)
            return outcomes

        return self._run_in_step(deletion)

    def expire(self) -> bool:
        """Remove expired offsets and empty groups: one step of a pass over all groups.

        Return True when the pass is not finished. The caller continues soon, and releases the lock between.
        """

        def step() -> bool:
            looking, room = self._to_expire, _TOMBSTONES_PER_STEP
            if not looking:
                looking += (
                    (number, group_id)
                    for number, shard in self.shards.items()
                    for group_id in shard.group_ids()
                )
            tombstones: dict[int, list[KeyValue]] = {}
            for _ in range(min(len(looking), _GROUPS_PER_STEP)):
                number, group_id = looking[0]
                shard = self.shards.get(number)
                found = (
                    [] if shard is None else shard.expire_offsets(group_id, self.broker.clock.now_ms(), room)
                )
                tombstones.setdefault(number, []).extend(found)
                room -= len(found)
                if room <= 0:
                    break  # this group may have more expired offsets
                looking.popleft()
            for number, pairs in tombstones.items():
                self._append_tombstones(TopicPartition(OFFSETS_TOPIC, number), pairs)
            return bool(looking)

        return not self._stopped and self._run_in_step(step)

    def partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """Remove all committed offsets of deleted partitions. Called within a step."""
        for number, shard in self.shards.items():
            self._append_tombstones(TopicPartition(OFFSETS_TOPIC, number), shard.remove_offsets(deleted))
        for load in self._loads.values():
            load.deleted += deleted

    def _append_tombstones(self, topic_partition: TopicPartition, tombstones: list[KeyValue]) -> None:
        """Append tombstones. If one is lost, its record expires again after the next load."""
        for pairs in portions(tombstones, _TOMBSTONES_PER_STEP):
            try:
                records = self._writer.validated_records(self.broker.partition(topic_partition), pairs)
            except BrokerError as error:
                _log.error("failed to write %d tombstones to %s: %s", len(pairs), topic_partition, error)
            else:
                self._writer.append(topic_partition, records, lambda error, offset: None)

    def _run_in_step(self, question: Callable[[], T]) -> T:
        """Run ``question`` under the core's lock; return its result, or raise its BrokerError."""
        answer = self.broker.run(lambda: value_or_error(question))
        if not isinstance(answer, BrokerError):
            return answer
        try:
            raise answer
        finally:
            del answer  # its traceback keeps this frame, and so the request, alive

    # --- the partitions of the offsets topic ----------------------------------------------------------------

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Load or unload a partition of the offsets topic after a leader change. Called within a step."""
        if topic_partition.topic != OFFSETS_TOPIC:
            return
        number, partition = topic_partition.partition, self.broker.partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            self._unload(number)
        elif number not in self.shards and number not in self._loads and not self._stopped:
            if partition.log.start_offset == partition.log.end_offset:
                self.shards[number] = GroupCoordinatorShard(self._settings)
            else:
                self._loads[number] = _Load()
                self._loading.submit(partial(self._load, partition, self._loads[number]))

    def stop(self) -> None:
        """Answer all waiting members, and refuse new requests."""
        self._loader.stop()

        def step() -> None:
            self._stopped = True
            for number in [*self.shards, *self._loads]:
                self._unload(number)

        self.broker.run(step)

    def _unload(self, number: int) -> None:
        self._loads.pop(number, None)
        shard = self.shards.pop(number, None)
        if shard is not None:
            self._perform(shard, "", shard.unload())

    def _load(self, partition: Partition, load: _Load) -> None:
        """Load a partition, or retry later. On the loader's thread.

        Skipping unreadable records would lose commits, and consumers would start from somewhere else.
        """
        topic_partition = partition.topic_partition
        number = topic_partition.partition
        try:
            shard = self._loader.load(partition.log, topic_partition)
        except MinikafkaError as error:
            _log.error("failed to load the groups of %s, retrying: %s", topic_partition, error)
            shard = None

        def step() -> None:
            if self._loads.get(number) is not load:
                return  # unloaded meanwhile; if this broker leads it again, another load is queued
            if shard is None:
                deadline_ms = self.broker.clock.monotonic_ms() + _LOAD_RETRY_MS
                again = partial(self._load, partition, load)
                self.broker.wait(Timer(deadline_ms, lambda _: self._loading.submit(again)), [], deadline_ms)
                return
            del self._loads[number]
            self.shards[number] = shard
            for producer_id, marker_offset, commit in load.markers:
                shard.complete_transaction(producer_id, marker_offset, commit=commit)
            self._append_tombstones(topic_partition, shard.remove_offsets(load.deleted))
            for group_id in shard.group_ids():
                self._schedule_timer(shard, group_id)

        self.broker.run(step)
