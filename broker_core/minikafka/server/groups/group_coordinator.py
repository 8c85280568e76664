"""The group coordinator: where the groups' decisions meet requests, the log and time.

Each group belongs to one partition of ``__consumer_offsets``, by its name's hash; the partition's leader
coordinates it. What groups decide, and what was committed, is in ``minikafka.groups``; here decisions become
records and answers.

- A step runs under the core's lock. What it wants written is appended in the same step, so that records stand
  in the log in the order of the decisions. What waits for it goes on once every in-sync replica has the
  records (the high watermark has passed them), or after ``offsets.commit.timeout.ms``.
- A partition that this broker comes to lead is loaded first, by a thread of its own (``loader``); its
  groups answer GROUP_LOAD_IN_PROGRESS meanwhile, NOT_COORDINATOR after it has gone.
- A group's next deadline waits among the requests that wait (``Broker.wait``): heartbeats only move it away,
  so that they cost nothing there.

Texts: "Consumer Offset Tracking", the offset manager.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, StorageError
from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.groups import events
from minikafka.groups.group import GroupDescription
from minikafka.groups.messages import OffsetCommitValue
from minikafka.groups.shard import GroupCoordinatorShard, KeyValue, commit_bytes, commit_records
from minikafka.partition.partition import LogAppendResult, Partition
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import validate
from minikafka.records.format.hashes import partition_of_group
from minikafka.records.format.message_set import Codec, Record, build_message_set
from minikafka.server.admin.topics import start_auto_creation
from minikafka.server.core.broker import Broker
from minikafka.server.groups.group_loader import GroupLoader
from minikafka.server.workers.worker import Worker

_log = logging.getLogger(__name__)

T = TypeVar("T")

Commits = Mapping[TopicPartition, OffsetCommitValue]
WriteCallback = Callable[[ErrorCode, int], None]
"""Told, in a step, what came of a write: the error, and the offset of its first record (-1 with an error)."""

_TOMBSTONES_PER_STEP = 1_000
_OFFSETS_PER_STEP = 2_000
_GROUPS_PER_STEP = 1_000
"""Looked at in one step."""
_LOAD_RETRY_MS = 5_000
MAX_MEMBERS_BYTES = 128 << 20
"""What the members of all groups here may take together: their metadata, their assignments, and 2 kB each."""
MAX_NEW_GROUPS_BYTES = 64 << 20
"""Above this, groups that were not there before get no members: names can be made up."""
_FULL_LOG_INTERVAL_MS = 10_000

_FAILED_COMMIT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a failed write means to whoever commits: clients know what to do about these."""
_FAILED_STORE = {
    **_FAILED_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN,
}
"""The same for members that wait for their assignment."""


def _check_group_id(group_id: str) -> None:
    """A group with members has a name; without one, consumers outside of groups keep their offsets."""
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID, "a group's name must not be empty")


class _DelayedWrite:
    """Records that were appended, until every in-sync replica has them. A ticket of ``Broker.wait``."""

    def __init__(
        self, broker: Broker, partition: Partition, appended: LogAppendResult, done: WriteCallback
    ) -> None:
        self._broker = broker
        self._partition = partition
        self._first = appended.append_info.first_offset
        self._last = appended.append_info.last_offset
        self._leader_epoch = appended.leader_epoch
        self._done = done
        self.failure: ErrorCode | None = None

    def satisfied(self, key: Hashable | None = None) -> bool:
        if self.failure is None:
            try:
                return self._partition.is_committed(self._last, self._leader_epoch)
            except BrokerError as error:
                self.failure = error.code
        return True

    def complete(self) -> None:
        self._broker.run(self.finish)

    def abandon(self, reason: str) -> None:
        _log.error("what waits for a write to %s gets no answer: %s", self._partition.topic_partition, reason)

    def finish(self) -> None:
        """In a step: say what came of it."""
        safe = self.satisfied()
        if self.failure is not None:
            self._done(self.failure, -1)
        elif safe:
            self._done(ErrorCode.NONE, self._first)
        else:
            self._done(ErrorCode.REQUEST_TIMED_OUT, -1)


class _Timer:
    """A group's next deadline. A ticket of ``Broker.wait``, which nothing but time completes."""

    def __init__(self, deadline_ms: int, ring: Callable[[_Timer], None]) -> None:
        self.deadline_ms = deadline_ms
        self._on_timer = ring

    def satisfied(self, key: Hashable | None = None) -> bool:
        return False

    def complete(self) -> None:
        self._on_timer(self)

    def abandon(self, reason: str) -> None:
        _log.error("a group's deadline passed unheard: %s", reason)


class GroupCoordinator:
    """The groups of one broker. Methods without "in a step" are called outside of the core's lock."""

    def __init__(self, broker: Broker, loading: Worker, random_bytes: Callable[[int], bytes]) -> None:
        self.broker = broker
        self._random_bytes = random_bytes
        self._config = broker.config.offsets
        self._settings = broker.config.groups
        self._loader = GroupLoader(self._settings, broker.clock, self._config.load_bytes)
        self._loading = loading
        self._shards: dict[int, GroupCoordinatorShard] = {}
        """By partition."""
        self._loads: dict[int, list[TopicPartition]] = {}
        """Partitions that are being loaded, and what the cluster has lost since each load began."""
        self._timers: dict[str, _Timer] = {}
        self._looking: deque[tuple[int, str]] = deque()
        """Groups, with their partitions, that are still to be looked at for what is too old."""
        self._stopped = False
        self._tell_full_at_ms = 0

    # --- where a group is -----------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition that a group belongs to."""
        known = self.broker.image.topics.get(OFFSETS_TOPIC)
        count = max(known) + 1 if known else self._config.partitions
        return TopicPartition(OFFSETS_TOPIC, partition_of_group(group_id, count))

    def new_member_id(self, client_id: str) -> str:
        """An id for a member, as the release makes them: the client's, and a random UUID."""
        return f"{client_id}-{uuid.UUID(bytes=self._random_bytes(16), version=4)}"

    def create_topic(self) -> None:
        """Have the offsets topic made, if it is not there. Raises BrokerError when it cannot be."""
        start_auto_creation(
            self.broker,
            OFFSETS_TOPIC,
            self._config.partitions,
            min(self._config.replication_factor, len(self.broker.image.brokers)),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self._config.segment_bytes),
            },
        )

    def _shard_of(self, group_id: str) -> GroupCoordinatorShard:
        """In a step. Raises BrokerError with the reason why this broker cannot speak for the group now."""
        if self._stopped:
            raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, "the broker stops")
        topic_partition = self.partition_of(group_id)
        if topic_partition.partition in self._loads:
            raise BrokerError(ErrorCode.GROUP_LOAD_IN_PROGRESS, f"{topic_partition} is being loaded")
        shard = self._shards.get(topic_partition.partition)
        if shard is None:
            raise BrokerError(
                ErrorCode.NOT_COORDINATOR_FOR_GROUP, f"{topic_partition} of group {group_id} is not led here"
            )
        return shard

    # --- members --------------------------------------------------------------------------------------------

    def handle_event(self, group_id: str, event: events.Event) -> None:
        """Tell a group what one of its members wants; its answer goes to ``event.request``, a callable.

        Raises BrokerError when this broker cannot speak for the group.
        """
        _check_group_id(group_id)

        def step() -> None:
            shard = self._shard_of(group_id)
            if isinstance(event, events.Join):
                self._check_room(shard, group_id, event)
            self._step(shard, group_id, event)

        self._run_in_step(step)

    def _check_room(self, shard: GroupCoordinatorShard, group_id: str, event: events.Join) -> None:
        """Raise MESSAGE_TOO_LARGE for a member whose group could never be stored, whichever of its protocols
        is chosen; and GROUP_COORDINATOR_NOT_AVAILABLE, after which clients ask again, where groups take too
        much memory.
        """
        more_bytes = shard.extra_memory_bytes(group_id, event)
        if more_bytes <= 0:
            return
        partition = self.broker.partitions.get(self.partition_of(group_id))
        if partition is not None:
            # The members choose one protocol, and only that is stored.
            self._check_size(partition, min((len(metadata) for _, metadata in event.protocols), default=0))
        used_bytes = sum(shard.memory_bytes for shard in self._shards.values())
        limit_bytes = MAX_MEMBERS_BYTES if shard.has_group(group_id) else MAX_NEW_GROUPS_BYTES
        if used_bytes + more_bytes > limit_bytes:
            self._log_full(used_bytes)
            raise BrokerError(
                ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, f"group {group_id}: no room for one more member"
            )

    def _log_full(self, used_bytes: int) -> None:
        now_ms = self.broker.clock.monotonic_ms()
        if now_ms >= self._tell_full_at_ms:
            self._tell_full_at_ms = now_ms + _FULL_LOG_INTERVAL_MS
            told = "members of groups take %d bytes: new ones are refused (at %d; those of new groups at %d)"
            _log.warning(told, used_bytes, MAX_MEMBERS_BYTES, MAX_NEW_GROUPS_BYTES)

    def _step(self, shard: GroupCoordinatorShard, group_id: str, event: events.Event) -> None:
        clock = self.broker.clock
        self._perform(shard, group_id, shard.step(group_id, event, clock.monotonic_ms(), clock.now_ms()))
        if not isinstance(event, events.Heartbeat):  # which only puts deadlines off
            self._schedule_timer(shard, group_id)

    def _perform(self, shard: GroupCoordinatorShard, group_id: str, effects: Iterable[events.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, events.Store):
                self._store(shard, group_id, effect)
            else:
                self.broker.after(partial(effect.request, effect))

    def _store(self, shard: GroupCoordinatorShard, group_id: str, effect: events.Store) -> None:
        def done(error: ErrorCode, offset: int) -> None:
            if error is not ErrorCode.NONE:
                generation = effect.value.generation
                _log.error("generation %d of group %s is not stored: %s", generation, group_id, error.name)
            outcome = events.Stored(effect.value, _FAILED_STORE.get(error, error))
            self._step(shard, group_id, outcome)

        topic_partition = self.partition_of(group_id)
        try:
            partition = self.broker.partition(topic_partition)
            self._check_size(
                partition, sum(len(m.subscription) + len(m.assignment) for m in effect.value.members)
            )
            pairs = [shard.group_record(group_id, effect.value)]
            message_set = self._message_set(partition, pairs)
        except BrokerError as error:
            done(error.code, -1)
        else:
            self._append(topic_partition, message_set, done)

    def _schedule_timer(self, shard: GroupCoordinatorShard, group_id: str) -> None:
        """In a step: see that the group gets its Tick in time."""
        deadline_ms = shard.next_deadline_ms(group_id)
        timer = self._timers.get(group_id)
        if deadline_ms is None or self._stopped or (timer is not None and timer.deadline_ms <= deadline_ms):
            return  # one that comes too early looks again
        if timer is not None:
            self.broker.waiting.remove(timer)
        self._timers[group_id] = timer = _Timer(deadline_ms, partial(self._on_timer, group_id))
        self.broker.wait(timer, [], deadline_ms)

    def _on_timer(self, group_id: str, timer: _Timer) -> None:
        def step() -> None:
            if self._timers.get(group_id) is timer:
                del self._timers[group_id]
            shard = self._shards.get(self.partition_of(group_id).partition)
            if shard is not None and not self._stopped:
                self._step(shard, group_id, events.Tick())

        self.broker.run(step)

    # --- offsets --------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        commits: Commits,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Commit offsets; ``done`` is told what came of it, outside of the lock, now or later."""
        topic_partition = self.partition_of(group_id)
        try:
            partition = self.broker.partition(topic_partition)
            self._check_size(partition, commit_bytes(group_id, commits))
            pairs = commit_records(group_id, commits, self._settings)
            message_set = self._message_set(partition, pairs)
        except BrokerError as error:
            failure = _FAILED_COMMIT.get(error.code, error.code)
            # A broker that is not the coordinator has no such partition, and says so in its own words.
            self.broker.run(partial(self._refuse, group_id, failure, done))
            return

        def step() -> None:
            clock = self.broker.clock
            try:
                shard = self._shard_of(group_id)
            except BrokerError as error:
                self.broker.after(partial(done, error.code))
                return
            refusal = shard.check_commit(
                group_id, member_id, generation, clock.monotonic_ms(), clock.now_ms()
            )
            if refusal is not ErrorCode.NONE:
                self.broker.after(partial(done, refusal))
                return
            shard.begin_commit(group_id, commits)

            def written(error: ErrorCode, offset: int) -> None:
                shard.end_commit(group_id, commits, offset if error is ErrorCode.NONE else None)
                self.broker.after(partial(done, _FAILED_COMMIT.get(error, error)))

            self._append(topic_partition, message_set, written)

        self.broker.run(step)

    def _refuse(self, group_id: str, failure: ErrorCode, done: Callable[[ErrorCode], None]) -> None:
        try:
            self._shard_of(group_id)
        except BrokerError as error:
            failure = error.code
        self.broker.after(partial(done, failure))

    def offsets(self, group_id: str, wanted: Sequence[TopicPartition] | None = None) -> Commits:
        """What a group has committed for the wanted partitions, or all. BrokerError when this broker cannot
        speak for it.
        """
        if wanted is None:
            return self._run_in_step(lambda: self._shard_of(group_id).offsets(group_id))

        def some(keys: Sequence[TopicPartition]) -> Commits:
            shard = self._shard_of(group_id)
            return {key: value for key in keys if (value := shard.offset(group_id, key)) is not None}

        found: dict[TopicPartition, OffsetCommitValue] = {}
        # At least once, for the error. Others have the lock in between.
        for start in range(0, max(1, len(wanted)), _OFFSETS_PER_STEP):
            found |= self._run_in_step(partial(some, wanted[start : start + _OFFSETS_PER_STEP]))
        return found

    # --- administration -------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription:
        """A group; ``GROUP_DENIED`` for one that there is not. Raises BrokerError as ``handle_event``."""
        _check_group_id(group_id)
        return self._run_in_step(lambda: self._shard_of(group_id).describe(group_id))

    def groups(self) -> tuple[ErrorCode, list[tuple[str, str]]]:
        """Names and protocol types of all groups here, and whether that is all."""

        def listing(number: int) -> list[tuple[str, str]]:
            shard = self._shards.get(number)
            return [] if shard is None else shard.list_groups()

        if self._stopped:
            return ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, []
        found = []
        for number in self._run_in_step(lambda: list(self._shards)):  # others have the lock in between
            found += self._run_in_step(partial(listing, number))
        return ErrorCode.GROUP_LOAD_IN_PROGRESS if self._loads else ErrorCode.NONE, found

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group that has no members, with its offsets."""

        def deletion() -> ErrorCode:
            try:
                error, tombstones = self._shard_of(group_id).delete(group_id)
            except BrokerError as refused:
                return refused.code
            self._append_tombstones(self.partition_of(group_id), tombstones)
            return error

        return self._run_in_step(deletion)

    def expire(self) -> bool:
        """Forget offsets that are too old, and groups of which nothing is left: one step of a look at all
        groups. True when the look is to be gone on with: soon, but others shall have the lock between.
        """

        def step() -> bool:
            looking, room = self._looking, _TOMBSTONES_PER_STEP
            if not looking:
                looking += (
                    (number, one) for number, shard in self._shards.items() for one in shard.group_ids()
                )
            tombstones: dict[int, list[KeyValue]] = {}
            for _ in range(min(len(looking), _GROUPS_PER_STEP)):
                number, group_id = looking[0]
                shard = self._shards.get(number)
                found = (
                    [] if shard is None else shard.expire_offsets(group_id, self.broker.clock.now_ms(), room)
                )
                tombstones.setdefault(number, []).extend(found)
                room -= len(found)
                if room <= 0:
                    break  # this group may have more
                looking.popleft()
            for number, pairs in tombstones.items():
                self._append_tombstones(TopicPartition(OFFSETS_TOPIC, number), pairs)
            return bool(looking)

        return not self._stopped and self._run_in_step(step)

    def partitions_deleted(self, gone: Sequence[TopicPartition]) -> None:
        """In a step: the cluster has these partitions no more; nor has any group an offset there."""
        for number, shard in self._shards.items():
            self._append_tombstones(TopicPartition(OFFSETS_TOPIC, number), shard.topics_deleted(gone))
        for lost in self._loads.values():
            lost += gone

    def _append_tombstones(self, topic_partition: TopicPartition, tombstones: list[KeyValue]) -> None:
        """Write tombstones. One that is lost is written again when what it buries has expired anew."""
        for start in range(0, len(tombstones), _TOMBSTONES_PER_STEP):
            pairs = tombstones[start : start + _TOMBSTONES_PER_STEP]
            try:
                message_set = self._message_set(self.broker.partition(topic_partition), pairs)
            except BrokerError as error:
                _log.error("%d tombstones for %s: %s", len(pairs), topic_partition, error)
            else:
                self._append(topic_partition, message_set, lambda error, offset: None)

    def _run_in_step(self, question: Callable[[], T]) -> T:
        """The answer to a question that only a step can answer, or its BrokerError."""
        answers: list[T | BrokerError] = []

        def step() -> None:
            try:
                answers.append(question())
            except BrokerError as error:
                answers.append(error.with_traceback(None))

        self.broker.run(step)
        answer = answers.pop()
        if not isinstance(answer, BrokerError):
            return answer
        try:
            raise answer
        finally:
            del answer  # with its traceback it holds this frame, and what the request brought

    # --- the partitions of the offsets topic ----------------------------------------------------------------

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """In a step: this broker leads a partition, or does not any more."""
        if topic_partition.topic != OFFSETS_TOPIC:
            return
        number, partition = topic_partition.partition, self.broker.partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            self._unload(number)
        elif number not in self._shards and number not in self._loads and not self._stopped:
            if partition.log.start_offset == partition.log.end_offset:
                self._shards[number] = GroupCoordinatorShard(self._settings)
            else:
                self._loads[number] = []
                self._loading.submit(partial(self._load, partition, self._loads[number]))

    def stop(self) -> None:
        """Answer every member that waits, and take no more."""
        self._loader.stop()

        def step() -> None:
            self._stopped = True
            for number in [*self._shards, *self._loads]:
                self._unload(number)

        self.broker.run(step)

    def _unload(self, number: int) -> None:
        self._loads.pop(number, None)
        shard = self._shards.pop(number, None)
        if shard is not None:
            self._perform(shard, "", shard.unload())

    def _load(self, partition: Partition, lost: list[TopicPartition]) -> None:
        """On the loader's thread: load a partition, or try again later. ``lost``: see ``_loads``.

        To go on without what cannot be read would be to forget commits: consumers would begin anew somewhere.
        """
        topic_partition = partition.topic_partition
        number = topic_partition.partition
        try:
            shard = self._loader.load(partition.log, topic_partition)
        except MinikafkaError as error:
            _log.error("the groups of %s cannot be loaded, it is tried again: %s", topic_partition, error)
            shard = None

        def step() -> None:
            if self._loads.get(number) is not lost:
                return  # the partition has gone meanwhile; if it has come back, it is loaded anew
            if shard is None:
                deadline_ms = self.broker.clock.monotonic_ms() + _LOAD_RETRY_MS
                load = partial(self._load, partition, lost)
                self.broker.wait(_Timer(deadline_ms, lambda _: self._loading.submit(load)), [], deadline_ms)
                return
            del self._loads[number]
            self._shards[number] = shard
            self._append_tombstones(topic_partition, shard.topics_deleted(lost))
            for group_id in shard.group_ids():
                self._schedule_timer(shard, group_id)

        self.broker.run(step)

    # --- writing --------------------------------------------------------------------------------------------

    def _check_size(self, partition: Partition, least_bytes: int) -> None:
        """Raise MESSAGE_TOO_LARGE, before anything is made, for records of at least so many bytes that the
        log will not take.
        """
        if self._config.codec is Codec.NONE and least_bytes > partition.log.config.max_message_bytes:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{least_bytes} bytes or more: {partition.topic_partition} takes "
                f"{partition.log.config.max_message_bytes} at once",
            )

    def _message_set(self, partition: Partition, pairs: Sequence[KeyValue]) -> ValidatedRecords:
        """The records as they go into the log. Raises BrokerError MESSAGE_TOO_LARGE and the like."""
        config, now_ms = partition.log.config, self.broker.clock.now_ms()
        records = [Record(key, value, now_ms) for key, value in pairs]
        data = build_message_set(records, magic=config.message_magic, codec=self._config.codec)
        limits = Limits(
            max_message_bytes=config.max_message_bytes,
            timestamp_type=config.message_timestamp_type,
            compacted=config.compacted,
            max_magic=2,
        )
        return validate(bytearray(data), limits, now_ms)

    def _append(
        self, topic_partition: TopicPartition, message_set: ValidatedRecords, done: WriteCallback
    ) -> None:
        """In a step: append to a partition of the offsets topic; ``done`` is told in this step or another."""
        broker = self.broker
        try:
            partition = broker.partition(topic_partition)
            appended = partition.append(message_set, all_in_sync=True, now_ms=broker.clock.now_ms())
        except BrokerError as error:
            _log.info("%s takes nothing: %s", topic_partition, error)
            done(error.code, -1)
            return
        except StorageError as error:
            broker.log_failed(topic_partition, f"{topic_partition} takes nothing: {error}")
            done(ErrorCode.KAFKA_STORAGE_ERROR, -1)
            return
        broker.touch(topic_partition)
        write = _DelayedWrite(broker, partition, appended, done)
        if write.satisfied():
            write.finish()
            return
        broker.wait(write, [topic_partition], broker.clock.monotonic_ms() + self._config.commit_timeout_ms)
        if appended.must_flush:
            broker.after(partial(self._flush, partition, write))

    def _flush(self, partition: Partition, write: _DelayedWrite) -> None:
        """After a step: what was appended becomes as safe as ``flush.messages`` asks."""
        try:
            end_offset = partition.log.flush()
        except StorageError as error:
            name = partition.topic_partition
            self.broker.log_failed(name, f"{name} cannot be flushed: {error}")
            write.failure = ErrorCode.KAFKA_STORAGE_ERROR
            end_offset = 0

        def flushed() -> None:
            if partition.complete_flush(end_offset) or write.failure is not None:
                self.broker.touch(partition.topic_partition)

        self.broker.run(flushed)
