"""The producer: the accumulator and the sender behind one lock, and the threads that execute their tasks.

Threads
    Workers take turns: one waits for a task, takes it, lets another worker wait in its place, and executes
    the task itself, from encoding to the response. So no task is handed from thread to thread, a broker that
    does not respond delays only its own requests, and there are never more workers than requests in flight,
    plus one. Idle workers stay for the next burst; all end with ``close``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.accumulator import AppendResult, RecordAccumulator
from minikafka.clients.produce.batch import ProducerBatch, message_bytes
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.partitioner import DefaultPartitioner
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.sender import (
    InitProducerIdTask,
    MetadataTask,
    ProduceTask,
    Sender,
    produce_request,
)
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import Codec, Record
from minikafka.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from minikafka.wire.apis.produce import PRODUCE, ProduceRequest, ProduceResponse

logger = logging.getLogger("minikafka.clients.produce")
retries_logger = logging.getLogger("minikafka.clients.produce.retries")
"""Logs the warnings of ``retry_log``."""

MAGIC_1_SINCE = 2
"""The first Produce version with messages of magic 1; older ones have magic 0."""
MAGIC_2_SINCE = 3
"""The first Produce version with batches of magic 2, and nothing else."""
ZSTD_SINCE = 7
"""The first Produce version whose batches may be compressed with zstd."""

_METADATA_TIMEOUT_MS = 10_000
_NO_TRANSACTIONS_MS = (1 << 31) - 1
"""The transaction time-out of a producer without transactions, as in Kafka's producer."""


class BatchingProducer:
    """Sends records in batches. Thread-safe. Close it, or use it as a context manager: queued records are
    sent first.

    ``threads=False`` creates a producer without threads, for a simulation: it works only in ``step``,
    ``flush``, ``close`` and in calls that wait, and time passes by ``cluster.waiter`` only.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: BatchingConfig | None = None,
        *,
        partitioner: DefaultPartitioner | None = None,
        threads: bool = True,
    ) -> None:
        self.config = config or BatchingConfig()
        self._cluster = cluster
        self._clock = cluster.clock
        self._partitioner = partitioner or DefaultPartitioner()
        self._threads = threads
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._accumulator = RecordAccumulator(self.config, self._settled)
        self._sender = Sender(self._accumulator, self.config, cluster)
        self._workers: list[threading.Thread] = []
        self._idle = 0
        self._closing = False
        self._ended = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Queue one record; the partition is chosen by the key when it is None, the time is now when it is
        None.

        Blocks up to ``max_block_ms`` where the topic is not known yet or the buffer is full, then raises
        NetworkError. BrokerError: the topic or partition does not exist, or the record is larger than
        ``max_request_bytes``.
        """
        size = message_bytes(key, value)
        if size > self.config.max_request_bytes:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record for topic {topic!r} has {size} bytes, max.request.size is "
                f"{self.config.max_request_bytes}",
            )
        deadline: Deadline | None = None
        described = self._cluster.known_topic(topic)
        if described is None:
            deadline = self._cluster.deadline(self.config.max_block_ms)
            described = self._cluster.topic(topic, deadline.remaining_ms())
        if partition is not None:
            _check_partition(described, partition)
        record = Record(key, value, self._clock.now_ms() if timestamp_ms is None else timestamp_ms)
        with self._lock:
            self._wait_for_room(size, deadline)
            tp = TopicPartition(topic, self._choose(described, key, size) if partition is None else partition)
            future, change = self._accumulator.append(tp, record, size, self._clock.monotonic_ms())
            if change is not AppendResult.APPENDED:
                # Most records are added to a batch, which changes nothing for the workers.
                self._wake_worker()
        return future

    def send_encoded(
        self, topic_partition: TopicPartition, data: Buffer, count: int, *, sealed: bool = True
    ) -> SendFuture:
        """Queue an encoded message set of ``count`` records; it is sent unchanged, without a copy. (An
        idempotent producer writes its id and numbers into a copy, one request at a time.)

        ``data`` must not change until the future is done, and its magic must be one that the broker supports
        (see ``magic``); in magic 2 it is one batch. An unsealed set (``columns.encode``) must be writable and
        belongs to the producer from then on, which writes its id, numbers and checksum into it.

        Blocks and raises as ``send``. The future's offset is that of the first record; if a set is split
        after MESSAGE_TOO_LARGE, records of other producers may come between its records.
        """
        if count < 1 or not len(data):
            raise ValueError(f"empty message set for {topic_partition}")
        deadline = self._cluster.deadline(self.config.max_block_ms)
        topic = topic_partition.topic
        # Old metadata is good enough: leaders are looked up when a batch is sent.
        described = self._cluster.known_topic(topic) or self._cluster.topic(topic, deadline.remaining_ms())
        _check_partition(described, topic_partition.partition)
        with self._lock:
            self._wait_for_room(len(data), deadline)
            future = self._accumulator.append_encoded(
                topic_partition, data, count, self._clock.monotonic_ms(), sealed=sealed
            )
            self._wake_worker()
        return future

    def magic(self, topic_partition: TopicPartition) -> int:
        """Return the newest format that the partition's leader supports: 2 since Kafka 0.11, 1 since 0.10.

        Blocks and raises as ``send`` until a connection to that broker was made once.
        """
        deadline = self._cluster.deadline(self.config.max_block_ms)

        def attempt() -> int:
            broker_id = self._cluster.known_leader(topic_partition)
            if broker_id is None:
                broker_id = self._cluster.leader(topic_partition, deadline.remaining_ms()).broker_id
            try:
                return magic_for_version(
                    self._cluster.connection(broker_id, ConnectionPool.PRODUCE).version(PRODUCE, deadline)
                )
            except NetworkError:
                # Another broker may be the leader by now.
                self._cluster.invalidate(topic_partition.topic)
                raise

        what = f"finding the message format of the leader of {topic_partition}"
        return self._cluster.retry(what, deadline, attempt)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send all queued records and wait until each is acknowledged or has failed (see its future).

        Raises NetworkError if ``timeout_ms`` passes first; without it ``delivery_timeout_ms`` of each record
        is the limit.
        """
        with self._lock:
            # Futures and not batches: the futures of a batch that is split move to other batches.
            left = [future for batch in self._accumulator.incomplete_batches() for future in batch.futures]

            def all_done() -> bool:
                while left and left[-1].done:
                    left.pop()
                return not left

            self._accumulator.begin_flush()
            try:
                self._wake_worker()
                if not self._wait(self._settled, all_done, self._deadline(timeout_ms)):
                    undone = sum(d.count for d in left if not d.done)
                    raise NetworkError(
                        f"timed out after {timeout_ms} ms flushing: {counted(undone, 'record')} left"
                    )
            finally:
                self._accumulator.end_flush()

    def close(self, timeout_ms: int | None = None) -> None:
        """Send all queued records, then end; a second call does nothing.

        Records that are not acknowledged after ``timeout_ms`` fail.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
        try:
            self.flush(timeout_ms)
        except NetworkError as error:
            logger.warning("closing the producer with unacknowledged records: %s", error)
        with self._lock:
            self._ended = True
            self._sender.abort_incomplete(
                NetworkError(f"the producer was closed before the acknowledgement (timeout {timeout_ms} ms)")
            )
            self._work.notify_all()
            workers = list(self._workers)
        self._run_callbacks()
        for worker in workers:
            if worker is not threading.current_thread():
                # A worker may be waiting for a broker that does not respond, until its request times out.
                worker.join(None if timeout_ms is None else timeout_ms / 1000)

    def step(self) -> bool:
        """Execute the next task; return False if there is none now. For producers without threads."""
        with self._lock:
            task = self._sender.next_task(self._clock.monotonic_ms())
        self._run_callbacks()
        if task is None:
            return False
        self._run_task(task)
        return True

    def __enter__(self) -> BatchingProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose(self, topic: TopicMetadata, key: bytes | None, size: int) -> int:
        number = self._partitioner.partition(topic, key)
        if key is None and self._accumulator.would_create_batch(TopicPartition(topic.name, number), size):
            return self._partitioner.partition_of_new_batch(topic)
        return number

    # --- waiting, under the lock
    # ---------------------------------------------------------------------------------

    def _wait_for_room(self, size: int, deadline: Deadline | None) -> None:
        if self._closing:
            raise NetworkError("the producer is closed")
        if self._accumulator.has_room(size):
            return
        deadline = deadline or self._cluster.deadline(self.config.max_block_ms)
        # Room becomes free sooner if batches do not linger.
        self._accumulator.begin_flush()
        try:
            self._wake_worker()
            if not self._wait(
                self._settled, lambda: self._closing or self._accumulator.has_room(size), deadline
            ):
                raise NetworkError(
                    f"timed out after {self.config.max_block_ms} ms waiting for {size} bytes of memory: "
                    f"{self._accumulator.used_bytes} of {self.config.buffer_bytes} bytes (buffer.memory) "
                    "wait for the brokers"
                )
        finally:
            self._accumulator.end_flush()
        if self._closing:
            raise NetworkError("the producer is closed")

    def _wait(
        self, condition: threading.Condition, reached: Callable[[], bool], deadline: Deadline | None
    ) -> bool:
        while not reached():
            left_ms = None if deadline is None else deadline.remaining_ms()
            if left_ms == 0:
                return False
            if self._threads:
                condition.wait(None if left_ms is None else left_ms / 1000)
            elif not self._step_or_wait(left_ms):
                return False
        return True

    def _step_or_wait(self, left_ms: int | None) -> bool:
        """Without threads: execute a task, or wait. Return False if there will never be a task."""
        due_ms = self._sender.next_due_ms(self._clock.monotonic_ms())
        self._lock.release()
        try:
            if not self.step():
                waits = [ms for ms in (due_ms, left_ms) if ms is not None]
                if not waits:
                    return False
                self._cluster.waiter.wait(min(waits))
            return True
        finally:
            self._lock.acquire()

    def _deadline(self, timeout_ms: int | None) -> Deadline | None:
        return None if timeout_ms is None else self._cluster.deadline(timeout_ms)

    # --- the workers
    # ---------------------------------------------------------------------------------------------

    def _wake_worker(self) -> None:
        """Wake an idle worker, or start the first one. Under the lock."""
        if not self._threads or self._ended:
            return
        if self._idle:
            self._work.notify()
        elif not self._workers:
            self._start_worker()

    def _start_worker(self) -> None:
        worker = threading.Thread(
            target=self._run, name=f"minikafka-producer-{len(self._workers)}", daemon=True
        )
        self._workers.append(worker)
        worker.start()

    def _run(self) -> None:
        while (task := self._await_task()) is not None:
            self._run_task(task)

    def _await_task(self) -> ProduceTask | MetadataTask | InitProducerIdTask | None:
        with self._lock:
            while not self._ended:
                now_ms = self._clock.monotonic_ms()
                task = self._sender.next_task(now_ms)
                if ran_callbacks := self._sender.has_callbacks:
                    self._lock.release()
                    try:
                        self._run_callbacks()
                    finally:
                        self._lock.acquire()
                if task is not None:
                    # There may be more tasks, and one worker has to wait for those that become due.
                    if self._idle:
                        self._work.notify()
                    else:
                        self._start_worker()
                    return task
                if ran_callbacks:
                    continue  # the lock was released meanwhile, so the state may have changed
                due_ms = self._sender.next_due_ms(now_ms)
                self._idle += 1
                try:
                    self._work.wait(None if due_ms is None else due_ms / 1000)
                finally:
                    self._idle -= 1
        return None

    def _run_task(self, task: ProduceTask | MetadataTask | InitProducerIdTask) -> None:
        if isinstance(task, MetadataTask):
            self._refresh_metadata(task)
        elif isinstance(task, InitProducerIdTask):
            self._request_producer_id()
        else:
            self._produce(task)
        self._run_callbacks()
        self._log_retry_warning()

    def _refresh_metadata(self, task: MetadataTask) -> None:
        error: MinikafkaError | None = None
        try:
            metadata = self._cluster.metadata(
                task.topics,
                refresh=True,
                timeout_ms=_METADATA_TIMEOUT_MS,
                caller_timeout_ms=self.config.delivery_timeout_ms,
            )
            error = next((e for e in map(metadata.why_unusable, task.topics) if e is not None), None)
        except MinikafkaError as caught:
            error = caught
        with self._lock:
            self._sender.handle_metadata(task, error, self._clock.monotonic_ms())
            self._work.notify()

    def _request_producer_id(self) -> None:
        result: InitProducerIdResponse | MinikafkaError
        try:
            request = InitProducerIdRequest(None, _NO_TRANSACTIONS_MS)
            result = self._cluster.call(None, INIT_PRODUCER_ID, request, timeout_ms=_METADATA_TIMEOUT_MS)
            code = ErrorCode.of(result.error_code)
            if code is not ErrorCode.NONE:
                result = BrokerError(code, "requesting a producer id")
        except MinikafkaError as error:
            result = error
        idempotence_off = False
        with self._lock:
            if isinstance(result, MinikafkaError):
                idempotence_off = self._sender.handle_producer_id_error(result, self._clock.monotonic_ms())
            else:
                self._sender.handle_producer_id(result.producer_id, result.producer_epoch)
            self._work.notify()
        if idempotence_off:
            too_old = isinstance(result, BrokerError) and result.code is ErrorCode.UNSUPPORTED_VERSION
            level = logging.DEBUG if too_old else logging.WARNING
            text = "minikafka: no producer id: idempotence is off, retries may duplicate records: %s"
            logger.log(level, text, result)

    def _produce(self, task: ProduceTask) -> None:
        response: ProduceResponse | None = None
        failure: MinikafkaError | None = None
        try:
            response = self._send_and_receive(task)
        except _UnencodableBatch as unencodable:
            with self._lock:
                self._sender.fail_batch(unencodable.batch, unencodable.error)
            self._produce(task.without(unencodable.batch))
            return
        except MinikafkaError as error:
            failure = error
        except Exception as error:  # the futures must end, or their owners would wait for ever
            logger.exception("unexpected error while sending a produce request to broker %d", task.broker_id)
            failure = MinikafkaError(f"unexpected error in the producer: {error!r}")
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if failure is None:
                self._sender.handle_response(task, response, now_ms)
            else:
                self._sender.handle_failure(task, failure, now_ms)
            self._work.notify()

    def _send_and_receive(self, task: ProduceTask) -> ProduceResponse | None:
        """Encode, send, and return the response; None with acks=0, or if nothing is left to send."""
        if not task.batches:
            return None
        acks, timeout_ms = self.config.acks, self.config.request_timeout_ms

        def request(version: int) -> ProduceRequest:
            sets = [self._encode(batch, version) for batch in task.batches]
            # The broker times out a little earlier than the client, so that its response still arrives.
            return produce_request(task, sets, acks, timeout_ms - timeout_ms // 10)

        deadline = self._cluster.deadline(timeout_ms)
        connection = self._cluster.connection(task.broker_id, ConnectionPool.PRODUCE)
        legacy = next((batch for batch in task.batches if batch.is_legacy), None)
        newest = None if legacy is None else MAGIC_2_SINCE - 1
        try:
            if acks == 0:
                connection.send_without_response(PRODUCE, request, deadline, newest)
                return None
            reply = connection.send(PRODUCE, request, deadline, newest)
        except BrokerError as error:
            if legacy is not None and error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise _UnencodableBatch(legacy, error) from error  # the other batches can be sent without it
            raise
        return reply.result(timeout_ms)

    def _encode(self, batch: ProducerBatch, version: int) -> Buffer:
        codec, magic = self.config.compression, magic_for_version(version)
        try:
            if magic < BATCH_MAGIC and self.config.idempotence:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"cannot send {batch} in format {magic}: enable.idempotence=true needs format 2, and "
                    "Kafka 0.11 or newer",
                )
            if magic < BATCH_MAGIC and batch.producer_sequence is not None:
                with self._lock:
                    self._sender.remove_sequence(batch)
            if version < ZSTD_SINCE and batch.codec(codec) is Codec.ZSTD:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"{batch}: the broker does not support compression.type zstd, which needs Kafka 2.1",
                )
            return batch.encode(magic, codec)
        except MinikafkaError as error:
            raise _UnencodableBatch(batch, error) from error

    def _run_callbacks(self) -> None:
        if not self._sender.has_callbacks:
            return
        with self._lock:
            futures = self._sender.take_callbacks()
        for future in futures:
            callback = future.take_callback()
            if callback is not None:
                try:
                    callback(future)
                except Exception:
                    logger.exception("a callback of a record for %s failed", future.topic_partition)

    def _log_retry_warning(self) -> None:
        if not self._sender.has_retry_warning:
            return
        with self._lock:
            text = self._sender.retry_warning(self._clock.monotonic_ms())
        if text is not None:
            retries_logger.warning("minikafka: %s", text)


def magic_for_version(version: int) -> int:
    """Return the message format of a version of Produce."""
    return 2 if version >= MAGIC_2_SINCE else 1 if version >= MAGIC_1_SINCE else 0


class _UnencodableBatch(Exception):
    """A batch cannot be encoded for its broker."""

    def __init__(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        super().__init__(batch, error)
        self.batch = batch
        self.error = error


def _check_partition(topic: TopicMetadata, partition: int) -> None:
    if topic.partition(partition) is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {partition}: {topic.partition_range}",
        )
