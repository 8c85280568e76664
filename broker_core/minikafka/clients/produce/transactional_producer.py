"""A producer whose records are visible all together, or not at all, to consumers with read_committed.

    config = {"transactional.id": "copier"}
    with TransactionalProducer(cluster, config) as producer:
        producer.init_transactions()
        with producer.transaction():                      # commits at the end, aborts after an exception
            producer.send("copies", record.value)
            producer.send_offsets({tp: Committed(record.offset + 1)}, consumer.group_metadata())

``TransactionManager`` decides, on the engine's lock and threads. A call that waits raises NetworkError after
``max.block.ms`` (or ``timeout_ms``); the work goes on, and the same call may be made again. After a commit
that timed out only ``commit`` may follow: nobody knows yet whether the records are visible.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.offsets import Committed, GroupMetadata, checked_offsets
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.batch import BatchSource
from minikafka.clients.produce.config import TransactionalConfig
from minikafka.clients.produce.partitioner import StickyPartitioner
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.transaction_manager import (
    TransactionManager,
    TransactionResult,
    TransactionState,
)
from minikafka.clients.produce.transaction_runner import TransactionRunner
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.record import Headers
from minikafka.records.kernels.layout import MAGIC_AT
from minikafka.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from minikafka.wire.apis.describe_configs import ConfigResourceType

logger = logging.getLogger("minikafka.clients.produce")

MAX_TIMEOUT = "transaction.max.timeout.ms"
"""The brokers' setting for the longest time-out."""
_DESCRIBE_TIMEOUT_MS = 2_000
_State = TransactionState


class TransactionalProducer:
    """Sends records in transactions. Thread-safe. Close it, or use it as a context manager: an open
    transaction is aborted.

    ``config``: a TransactionalConfig, or a mapping of Kafka's properties, which has ``transactional.id``.
    ``transactional_id`` and ``transaction_timeout_ms`` may be given beside it. ``partitioner`` and
    ``threads`` are those of the ``BatchingProducer``.

    Calls raise TransactionAbortable if the transaction can only be aborted; ProducerFenced, or another
    BrokerError, if this producer can only be closed; ValueError for a call in the wrong order.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: TransactionalConfig | Mapping[str, object] | None = None,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        partitioner: StickyPartitioner | None = None,
        threads: bool = True,
    ) -> None:
        given = {"transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
        self._cluster = cluster
        self.config = _config(config, {name: value for name, value in given.items() if value is not None})
        self._transactions = TransactionManager(self.config)
        self._runner = TransactionRunner(cluster, self.config)
        self._engine = BatchingProducer(
            cluster,
            self.config,
            partitioner=partitioner,
            threads=threads,
            transactions=self._transactions,
            transaction_runner=self._runner,
        )
        self._is_closed = False

    # --- transactions

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Get a producer id: fence an earlier producer with this transactional id, and abort its open
        transaction, or await the end of one that it has committed. Call it once, before all others.

        Raises BrokerError: UNSUPPORTED_VERSION if the cluster has no transactions,
        INVALID_TRANSACTION_TIMEOUT if ``transaction.timeout.ms`` is longer than the brokers allow.
        """
        try:
            self._perform("init_transactions", self._transactions.initialize, timeout_ms)
        except BrokerError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            longest_ms = self.max_timeout_ms()
            if longest_ms is None:
                raise
            text = f"{error.detail}; {MAX_TIMEOUT} is {longest_ms}"
            raise BrokerError(error.code, text) from None

    def max_timeout_ms(self) -> int | None:
        """Return ``transaction.max.timeout.ms`` of the coordinator; None if it is not found, or may not be
        described.
        """
        from minikafka.clients.admin.configs import describe_configs  # used after errors only

        coordinator = self._transactions.coordinator
        if coordinator is None:
            return None
        deadline, broker = self._cluster.deadline(_DESCRIBE_TIMEOUT_MS), str(coordinator.broker_id)
        with contextlib.suppress(MinikafkaError):
            for setting in describe_configs(self._cluster, ConfigResourceType.BROKER, broker, deadline):
                if setting.name == MAX_TIMEOUT and setting.value is not None:
                    return int(setting.value)
        return None

    def begin(self, timeout_ms: int | None = None) -> None:
        """Begin a transaction. After an unsure end of the last one this waits for a new epoch."""
        self._perform("begin", self._transactions.ready, timeout_ms)
        self._perform("begin", self._transactions.begin, timeout_ms)

    def commit(self, timeout_ms: int | None = None) -> None:
        """Send all queued records, and commit the transaction once all are acknowledged.

        After a NetworkError the outcome is unknown: call it again.
        """
        self._perform("commit", self._transactions.commit, timeout_ms, flush=True)

    def abort(self, timeout_ms: int | None = None) -> None:
        """Drop the records that were not sent, and abort the transaction once no batch is in flight."""
        self._perform("abort", self._transactions.abort, timeout_ms, flush=True)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, Committed],
        group: GroupMetadata | str,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets of a group with the transaction: those of the next records to read.

        ``group``: ``GroupConsumer.group_metadata()``, so that a member that has lost its partitions is
        refused (KIP-447); or a group id, for a consumer that assigns its partitions itself.
        """
        metadata = GroupMetadata(group) if isinstance(group, str) else _checked_group(group)
        wanted = checked_offsets(offsets)
        self._perform("send_offsets", lambda: self._transactions.send_offsets(wanted, metadata), timeout_ms)

    @contextlib.contextmanager
    def transaction(self, timeout_ms: int | None = None) -> Iterator[TransactionalProducer]:
        """Begin a transaction; commit it at the end of the block, or abort it after an exception, which is
        raised again.
        """
        self.begin(timeout_ms)
        try:
            yield self
            self.commit(timeout_ms)
        except BaseException:
            self._abort_after_error(timeout_ms)
            raise

    @property
    def state(self) -> TransactionState:
        """The state of this producer."""
        return self._transactions.state

    # --- records

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> SendFuture:
        """Queue one record in the open transaction, as ``BatchingProducer.send``.

        A record that is refused, here or later, fails the transaction: ``commit`` raises
        TransactionAbortable.
        """
        try:
            return self._engine.send(topic, value, key, partition, timestamp_ms, headers)
        except MinikafkaError as error:
            self._engine.fail_transaction(error)
            raise

    def send_encoded(
        self, topic_partition: TopicPartition, data: Buffer, count: int, *, sealed: bool = True
    ) -> SendFuture:
        """Queue an encoded batch of ``count`` records, as ``BatchingProducer.send_encoded``."""
        return self.send_encoded_sets([(topic_partition, data, count)], sealed=sealed)[0]

    def send_encoded_sets(
        self, sets: Sequence[tuple[TopicPartition, Buffer, int]], *, sealed: bool = True
    ) -> list[SendFuture]:
        """Queue encoded batches and their counts, as ``BatchingProducer.send_encoded_sets``.

        A refused one fails the transaction, as in ``send``. Raises UNSUPPORTED_FOR_MESSAGE_FORMAT for message
        sets of older formats, which have no transactions.
        """
        try:
            for topic_partition, data, _ in sets:
                if len(data) > MAGIC_AT and data[MAGIC_AT] < BATCH_MAGIC:
                    raise BrokerError(
                        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                        f"a message set of format {data[MAGIC_AT]} for {topic_partition} cannot be in a "
                        f"transaction: encode it in format {BATCH_MAGIC}",
                    )
            return self._engine.send_encoded_sets(sets, sealed=sealed)
        except MinikafkaError as error:
            self._engine.fail_transaction(error)
            raise

    def send_copies(self, copies: Sequence[tuple[TopicPartition, BatchSource, int]]) -> list[SendFuture]:
        """Queue batches in logs of the cluster and their counts, for the leaders to copy. A refused one fails
        the transaction, as in ``send``.
        """
        try:
            return self._engine.send_copies(copies)
        except MinikafkaError as error:
            self._engine.fail_transaction(error)
            raise

    def magic(self, topic_partition: TopicPartition) -> int:
        """Return the newest format that the partition's leader supports, as ``BatchingProducer.magic``."""
        return self._engine.magic(topic_partition)

    def metrics(self) -> Metrics:
        """Return the metrics of this producer, as ``BatchingProducer.metrics``."""
        return self._engine.metrics()

    def wait(self, futures: Iterable[SendFuture], deadline: Deadline | None = None) -> bool:
        """Wait until all ``futures`` are done; return False after ``deadline``."""
        return self._engine.wait(futures, deadline)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send all queued records and wait until each is acknowledged or has failed; ``commit`` does so."""
        self._engine.flush(timeout_ms)

    # --- closing

    def close(self, timeout_ms: int | None = None) -> None:
        """Abort an open transaction, or await a commit that is under way; then end. A second call does
        nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.state is _State.COMMITTING:
                self.commit(timeout_ms)
            elif self.state in (_State.IN_TRANSACTION, _State.ABORTABLE_ERROR, _State.ABORTING):
                self.abort(timeout_ms)
        except MinikafkaError as error:
            logger.warning("minikafka: closing producer %r: %s", self.config.transactional_id, error)
        finally:
            self._engine.close(timeout_ms)
            self._runner.close()

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- internals

    def _perform(
        self,
        call: str,
        begin: Callable[[], TransactionResult],
        timeout_ms: int | None,
        *,
        flush: bool = False,
    ) -> None:
        limit_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        began_ms = self._cluster.clock.monotonic_ms()
        try:
            result = self._engine.perform(begin, limit_ms, flush=flush)
        finally:
            self._engine.record_call(call, self._cluster.clock.monotonic_ms() - began_ms)
        if not result.done:
            raise NetworkError(self._timeout_text(call, limit_ms))
        if call != "begin":
            self._transactions.acknowledge(result)
        if result.error is not None:
            raise result.error

    def _timeout_text(self, call: str, limit_ms: int) -> str:
        what = f"timed out after {limit_ms} ms in {call}() of producer {self.config.transactional_id!r}"
        if call == "commit":
            return f"{what}: the outcome of the transaction is unknown; call commit() again"
        if call == "send_offsets":
            return f"{what}: they may still be committed with the transaction; abort it, or call commit()"
        return f"{what}; call it again"

    def _abort_after_error(self, timeout_ms: int | None) -> None:
        """Abort what can be aborted, for a user who gets another error."""
        if self.state not in (_State.IN_TRANSACTION, _State.ABORTABLE_ERROR):
            return
        try:
            self.abort(timeout_ms)
        except MinikafkaError as error:
            logger.warning("minikafka: aborting after an error: %s", error)


def check_transactions(cluster: ClusterClient) -> None:
    """Raise BrokerError UNSUPPORTED_VERSION if a broker of the cluster has no transactions."""
    deadline = cluster.deadline()
    cluster.any_connection(deadline).version(ADD_PARTITIONS_TO_TXN, deadline)


def _config(
    config: TransactionalConfig | Mapping[str, object] | None, given: Mapping[str, object]
) -> TransactionalConfig:
    if isinstance(config, TransactionalConfig):
        if given:
            raise TypeError(f"expected {', '.join(given)} in the TransactionalConfig, not beside it")
        return config
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"expected a TransactionalConfig or a dict of properties, got {config!r}")
    return TransactionalConfig.from_properties({**(config or {}), **given})


def _checked_group(group: object) -> GroupMetadata:
    if not isinstance(group, GroupMetadata):
        raise TypeError(f"expected a group id or GroupConsumer.group_metadata(), got {group!r}")
    return group
