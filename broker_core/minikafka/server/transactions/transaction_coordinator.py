"""The transaction coordinator: requests, timers and the log of ``__transaction_state`` for the transactions
of a broker.

Each transactional id belongs to one partition of ``__transaction_state``, by its hash; the partition's leader
coordinates it. The state machines are in ``minikafka.transactions``; this module turns their decisions into
records, markers and responses.

- A step runs under the core's lock. Its record is appended in the same step, so that the log has the records
  in the order of the decisions. What follows a record, the response and the markers, follows once every
  in-sync replica has it.
- When this broker becomes leader of a partition, a separate thread loads its transactions
  (``transaction_loader``). They are available, and unfinished ends go on, once every in-sync replica has all
  that was loaded: a later leader must not find another outcome. Kafka's coordinator does not wait for that.
- The leader epoch of the partition is the coordinator epoch in the markers, by which leaders of partitions
  refuse those of a former coordinator.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.net.connection_quotas import LogLimit
from minikafka.partition.partition import Partition
from minikafka.records.format.compression import Codec
from minikafka.records.format.record import KeyValue
from minikafka.server.admin.topics import start_auto_creation
from minikafka.server.coordination.coordinators import partition_for
from minikafka.server.coordination.delayed_write import Timer
from minikafka.server.coordination.partition_writer import PartitionWriter
from minikafka.server.core.broker import Broker
from minikafka.server.core.producer_id_allocation import take_producer_id
from minikafka.server.served_versions import newest_versions
from minikafka.server.transactions.transaction_loader import TransactionLoader
from minikafka.server.workers.worker import Worker
from minikafka.transactions.decisions import (
    Answer,
    AppendOutcome,
    AppendTransition,
    Decision,
    IdExpiration,
    TransactionDescription,
    TransactionListing,
    TxnMarkers,
)
from minikafka.transactions.shard import ANY_DURATION_MS, TransactionCoordinatorShard
from minikafka.transactions.states import COMPLETED
from minikafka.wire.api import ApiKey

_log = logging.getLogger(__name__)

T = TypeVar("T")

APPEND_TIMEOUT_MS = 5_000
"""How long a change waits for the replicas (Kafka: the time-out of the request that is answered)."""
_LOAD_RETRY_MS = 5_000
_REPLICATION_CHECK_MS = 50
"""The interval of checks that the replicas have what was loaded."""
_APPEND_RETRY_MS = 500
"""The pause before the end of a transaction is appended again."""
_ABORTS_PER_STEP = 100
_TOMBSTONES_PER_STEP = 25
"""Few enough that a batch of the longest ids is smaller than a message may be."""

Done = Callable[[Answer], None]
"""Called with the response, outside of the lock."""


class MarkerSender(Protocol):
    """Writes the markers of transactions, and reports them to ``TransactionCoordinator.markers_written``."""

    def send(self, markers: TxnMarkers) -> None:
        """Write markers until each partition has its own. Called within a step."""

    def drop(self, is_dropped: Callable[[TxnMarkers], bool]) -> None:
        """Forget markers: another broker coordinates their transactions. Called within a step."""

    def partitions_deleted(self, deleted: Iterable[TopicPartition]) -> None:
        """Send nothing more to deleted partitions. Called within a step."""


@dataclass(slots=True, eq=False)
class _Led:
    """A partition of the topic that this broker leads."""

    topic_partition: TopicPartition
    shard: TransactionCoordinatorShard


@dataclass(slots=True, eq=False)
class _Load:
    """A load of a partition that has begun in ``epoch``, and the partitions that were deleted since."""

    epoch: int
    deleted: list[TopicPartition] = field(default_factory=list)


class TransactionCoordinator:
    """The transactions of one broker. Methods that are not called within a step must not hold the core's
    lock.
    """

    def __init__(self, broker: Broker, loading: Worker, sender: MarkerSender) -> None:
        self.broker = broker
        self._sender = sender
        self._config = broker.config.transaction_state
        self._writer = PartitionWriter(broker, Codec.NONE, APPEND_TIMEOUT_MS)
        self._settings = broker.config.transactions
        self._loader = TransactionLoader(self._settings, broker.clock, self._config.load_bytes)
        self._loading = loading
        self.led: dict[int, _Led] = {}
        """Partition -> its transactions."""
        self._loads: dict[int, _Load] = {}
        """The partitions that are being loaded."""
        self._to_abort: deque[int] = deque()
        """The partitions still to be searched for transactions that are open for too long."""
        self._to_expire: deque[int] = deque()
        """The partitions still to be searched for expired ids."""
        self._failed_ends = LogLimit(broker.clock)
        self._stopped = False

    @property
    def is_served(self) -> bool:
        """False if transactions are not supported, as in a cluster that may have brokers of 0.10.1."""
        return ApiKey.END_TXN in newest_versions(self.broker.config.beside_0_10)

    # --- partitions of transactional ids --------------------------------------------------------------------

    def partition_of(self, transactional_id: str) -> TopicPartition:
        """Return the partition of the topic that a transactional id belongs to."""
        return partition_for(self.broker, TRANSACTION_STATE_TOPIC, self._config.partitions, transactional_id)

    def create_topic(self) -> None:
        """Create the topic unless it exists. Raises BrokerError when that is not possible."""
        replicas = min(self._config.replication_factor, len(self.broker.metadata_cache.brokers))
        start_auto_creation(
            self.broker,
            TRANSACTION_STATE_TOPIC,
            self._config.partitions,
            replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(max(1, min(self._config.min_isr, replicas))),
                "segment.bytes": str(self._config.segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )

    def _led_for(self, transactional_id: str) -> _Led:
        """Return the partition of an id. Called within a step. Raises BrokerError if it is not available."""
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if self._stopped:
            raise BrokerError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        topic_partition = self.partition_of(transactional_id)
        if topic_partition.partition in self._loads:
            raise BrokerError(ErrorCode.GROUP_LOAD_IN_PROGRESS, f"{topic_partition} is being loaded")
        led = self.led.get(topic_partition.partition)
        if led is None:
            raise BrokerError(
                ErrorCode.NOT_COORDINATOR_FOR_GROUP,
                f"this broker does not lead {topic_partition} of transactional id {transactional_id}",
            )
        return led

    # --- requests -------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        done: Done,
        abandon: Callable[[str], None],
    ) -> None:
        """Give a producer its id and epoch (``TransactionCoordinatorShard.init_producer_id``).

        ``abandon`` is called with the reason instead of ``done`` after an internal error.
        """

        def decide(new_producer_id: int | None = None) -> None:
            self._decide(
                transactional_id,
                lambda shard, now_ms: shard.init_producer_id(
                    transactional_id, timeout_ms, expected, now_ms, new_producer_id
                ),
                done,
                need_producer_id,
            )

        def need_producer_id() -> None:
            take_producer_id(self.broker, decide_with, abandon)

        def decide_with(new_producer_id: int | None) -> None:
            if new_producer_id is None:
                done(Answer(ErrorCode.GROUP_LOAD_IN_PROGRESS))
            else:
                decide(new_producer_id)

        decide()

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Done,
    ) -> None:
        """Add partitions to the transaction of a producer."""
        self._decide(
            transactional_id,
            lambda shard, now_ms: shard.add_partitions(transactional_id, producer, partitions, now_ms),
            done,
        )

    def end_txn(
        self, transactional_id: str, producer: ProducerIdAndEpoch, done: Done, *, commit: bool
    ) -> None:
        """End the transaction of a producer; ``done`` is called once its outcome is stored."""
        self._decide(
            transactional_id,
            lambda shard, now_ms: shard.end_txn(transactional_id, producer, now_ms, commit=commit),
            done,
        )

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the open transaction of a producer, as a step."""

        named = tuple(partitions)

        def verification() -> dict[TopicPartition, ErrorCode]:
            try:
                shard = self._led_for(transactional_id).shard
            except BrokerError as error:
                return dict.fromkeys(named, error.code)
            return shard.verify_partitions(transactional_id, producer, named)

        return self.broker.run(verification)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the description of a transaction."""

        def description() -> TransactionDescription:
            try:
                return self._led_for(transactional_id).shard.describe(transactional_id)
            except BrokerError as error:
                return TransactionDescription(error.code)

        return self.broker.run(description)

    def transactions(
        self,
        state_filters: Collection[str] = (),
        producer_id_filters: Collection[int] = (),
        duration_filter_ms: int = ANY_DURATION_MS,
    ) -> tuple[ErrorCode, list[TransactionListing]]:
        """Return the transactions here that pass the filters, and an error if some are not loaded."""

        def listing(number: int) -> list[TransactionListing]:
            led = self.led.get(number)
            if led is None:
                return []
            return led.shard.list_transactions(
                self.broker.clock.now_ms(), state_filters, producer_id_filters, duration_filter_ms
            )

        if self._stopped:
            return ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, []
        found: list[TransactionListing] = []
        for number in self.broker.run(lambda: list(self.led)):  # other requests get the lock in between
            found += self.broker.run(partial(listing, number))
        return ErrorCode.GROUP_LOAD_IN_PROGRESS if self._loads else ErrorCode.NONE, found

    def _decide(
        self,
        transactional_id: str,
        decide: Callable[[TransactionCoordinatorShard, int], Decision],
        done: Done,
        need_producer_id: Callable[[], None] | None = None,
    ) -> None:
        def step() -> None:
            try:
                led = self._led_for(transactional_id)
            except BrokerError as error:
                self.broker.after(partial(done, Answer(error.code)))
                return
            decision = decide(led.shard, self.broker.clock.now_ms())
            if isinstance(decision, AppendTransition):
                self._append(led, decision, done)
            elif isinstance(decision, Answer):
                self.broker.after(partial(done, decision))
            else:
                assert need_producer_id is not None
                self.broker.after(need_producer_id)

        self.broker.run(step)

    # --- appends and markers --------------------------------------------------------------------------------

    def _append(self, led: _Led, append: AppendTransition, done: Done | None = None) -> bool:
        """Append a change, and perform what follows it. Called within a step. Return False if the log refused
        it.
        """

        def stored(error: ErrorCode, offset: int) -> None:
            if error is not ErrorCode.NONE:
                self._report(led, append, error)
            self._perform(led, led.shard.appended(append, error, self.broker.clock.now_ms()), done)

        return self._write(led.topic_partition, [append.record], stored)

    def _report(self, led: _Led, append: AppendTransition, error: ErrorCode) -> None:
        """Log a change that could not be stored. Ends are tried again and again, so they are counted."""
        is_end = append.transition.state in COMPLETED
        more = self._failed_ends.admit(str(led.topic_partition), error.name) if is_end else ""
        if more is not None:
            _log.info(
                "failed to store %s of transactional id %s: %s%s",
                append.transition.state.label,
                append.transactional_id,
                error.name,
                f", retrying{more}" if is_end else "",
            )

    def _write(
        self,
        topic_partition: TopicPartition,
        records: Sequence[KeyValue],
        done: Callable[[ErrorCode, int], None],
    ) -> bool:
        """Return False if nothing was appended. ``done`` logs a failure."""
        try:
            valid = self._writer.validated_records(self.broker.partition(topic_partition), records)
        except BrokerError as error:
            done(error.code, -1)
            return False
        return self._writer.append(topic_partition, valid, done, level=logging.DEBUG) is not None

    def _perform(self, led: _Led, outcome: AppendOutcome, done: Done | None = None) -> None:
        if outcome.answer is not None and done is not None:
            self.broker.after(partial(done, outcome.answer))
        if outcome.markers is not None:
            self._sender.send(outcome.markers)
        if outcome.append is not None:
            self._append(led, outcome.append)
        if outcome.retry is not None:
            self._after_ms(_APPEND_RETRY_MS, partial(self._retry, led, outcome.retry))

    def _retry(self, led: _Led, append: AppendTransition) -> None:
        def step() -> None:
            if self.led.get(led.topic_partition.partition) is led:
                self._append(led, append)

        self.broker.run(step)

    def _after_ms(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Call ``act``, outside of a step, after ``delay_ms``. Called within a step."""
        if not self._stopped:
            deadline_ms = self.broker.clock.monotonic_ms() + delay_ms
            self.broker.wait(Timer(deadline_ms, lambda _: act()), [], deadline_ms)

    def markers_written(self, markers: TxnMarkers, partitions: Collection[TopicPartition]) -> None:
        """Take partitions that have their marker, or need none, out of a transaction that ends."""

        def step() -> None:
            led = self.led.get(self.partition_of(markers.transactional_id).partition)
            if led is not None:
                now_ms = self.broker.clock.now_ms()
                self._append_all(led, [led.shard.markers_written(markers, partitions, now_ms)])

        self.broker.run(step)

    def _append_all(self, led: _Led, appends: Iterable[AppendTransition | None]) -> bool:
        """Append changes; return False if the log refused one."""
        appended = [self._append(led, append) for append in appends if append is not None]
        return all(appended)

    def partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """Take deleted partitions out of all transactions. Called within a step."""
        self._sender.partitions_deleted(deleted)
        for led in self.led.values():
            self._append_all(led, led.shard.partitions_deleted(deleted, self.broker.clock.now_ms()))
        for load in self._loads.values():
            load.deleted += deleted

    # --- timers ---------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> bool:
        """Abort transactions that are open for longer than their time-out: one step of a pass over all.

        Return True when the pass is not finished. The caller continues soon, and releases the lock between.
        What the log of a partition refuses, with too few replicas in sync, waits for the next pass.
        """

        def search(led: _Led) -> bool:
            appends = led.shard.expired(self.broker.clock.now_ms(), _ABORTS_PER_STEP)
            for append in appends:
                _log.info("aborting the transaction of %s: it timed out", append.transactional_id)
            return self._append_all(led, appends) and len(appends) == _ABORTS_PER_STEP

        return self._search(self._to_abort, search)

    def expire_ids(self) -> bool:
        """Remove expired transactional ids: one step, as ``abort_timed_out``."""

        def search(led: _Led) -> bool:
            expiration = led.shard.expire_ids(self.broker.clock.now_ms(), _TOMBSTONES_PER_STEP)
            return expiration is not None and self._write(
                led.topic_partition, expiration.records, partial(self._expired, led, expiration)
            )

        return self._search(self._to_expire, search)

    @staticmethod
    def _expired(led: _Led, expiration: IdExpiration, error: ErrorCode, offset: int) -> None:
        if error is not ErrorCode.NONE:
            count = len(expiration.transitions)
            _log.info("failed to remove %d ids from %s: %s", count, led.topic_partition, error.name)
        led.shard.ids_expired(expiration, error)

    def _search(self, partitions: deque[int], search: Callable[[_Led], bool]) -> bool:
        """Search the next partition; again in the next step if ``search`` returns True."""

        def step() -> bool:
            if not partitions:
                partitions.extend(self.led)
            if partitions:
                led = self.led.get(partitions[0])
                if led is None or not search(led):
                    partitions.popleft()
            return bool(partitions)

        return not self._stopped and self.broker.run(step)

    # --- the partitions of the topic ------------------------------------------------------------------------

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Load or unload a partition of the topic after a leader change. Called within a step."""
        if topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        number, partition = topic_partition.partition, self.broker.partitions.get(topic_partition)
        if partition is None or not partition.is_leader or self._stopped:
            self._unload(number)
            return
        assert partition.leadership is not None
        epoch, led, load = partition.leadership.leader_epoch, self.led.get(number), self._loads.get(number)
        known = led.shard.coordinator_epoch if led else load.epoch if load else None
        if known is not None and known >= partition.first_led_epoch:
            # Nobody else has led in between.
            if led is not None:
                led.shard.coordinator_epoch = epoch
            return
        self._unload(number)
        if partition.log.start_offset == partition.log.end_offset:
            shard = TransactionCoordinatorShard(self._settings, epoch)
            self.led[number] = _Led(topic_partition, shard)
        else:
            self._loads[number] = load = _Load(epoch)
            self._loading.submit(partial(self._load, partition, load))

    def stop(self) -> None:
        """Answer all waiting requests, and refuse new ones."""
        self._loader.stop()

        def step() -> None:
            self._stopped = True
            for number in [*self.led, *self._loads]:
                self._unload(number)

        self.broker.run(step)

    def _unload(self, number: int) -> None:
        self._loads.pop(number, None)
        led = self.led.pop(number, None)
        if led is not None:
            led.shard.unload()
            self._sender.drop(lambda markers: self.partition_of(markers.transactional_id).partition == number)

    def _load(self, partition: Partition, load: _Load) -> None:
        """Load a partition, or retry later. On the loader's thread.

        Skipping records that the disk does not return would lose transactions whose outcome is certain.
        """
        topic_partition = partition.topic_partition
        try:
            shard = self._loader.load(partition.log, topic_partition, load.epoch)
        except MinikafkaError as error:
            _log.error("failed to load the transactions of %s, retrying: %s", topic_partition, error)
            shard = None
        end_offset = partition.log.end_offset
        if shard is not None:
            self._count_producer_ids(shard)

        def step() -> None:
            if self._loads.get(topic_partition.partition) is not load:
                return  # unloaded meanwhile; if this broker leads it again, another load is queued
            if shard is None:
                again = partial(self._load, partition, load)
                self._after_ms(_LOAD_RETRY_MS, lambda: self._loading.submit(again))
            elif partition.high_watermark < end_offset:
                self._after_ms(_REPLICATION_CHECK_MS, lambda: self.broker.run(step))
            else:
                self._serve(partition, load, shard)

        self.broker.run(step)

    def _count_producer_ids(self, shard: TransactionCoordinatorShard) -> None:
        """Raise ZooKeeper's counter above the producer ids of loaded transactions, of which other logs need
        not have any: after a restore it could be below.
        """
        broker, highest = self.broker, shard.highest_producer_id()
        if broker.run(lambda: broker.producer_ids.loaded(highest)):
            broker.worker.submit(broker.raise_producer_ids)

    def _serve(self, partition: Partition, load: _Load, shard: TransactionCoordinatorShard) -> None:
        """Serve the transactions of a partition that is loaded, and go on with their ends."""
        topic_partition = partition.topic_partition
        assert partition.leadership is not None
        shard.coordinator_epoch = partition.leadership.leader_epoch
        led = _Led(topic_partition, shard)
        del self._loads[topic_partition.partition]
        self.led[topic_partition.partition] = led
        now_ms = self.broker.clock.now_ms()
        self._append_all(led, shard.partitions_deleted(load.deleted, now_ms))
        for outcome in shard.resume(now_ms):
            self._perform(led, outcome)
