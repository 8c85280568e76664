"""The producer: the accumulator and the sender behind one lock, and the threads that carry out what they
decide.

Threads
    Workers take turns: one waits for something to do, takes a job, lets another wait in its place, and
    carries the job out itself, from encoding to the answer. So no job is handed from thread to thread, a
    broker that does not answer holds up only its own requests, and there are never more workers than
    requests in flight, plus one. Workers that are not needed stay for the next burst; all end with ``close``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient, ConnectionPool, describe_partitions
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
"""Warns of what fails and is tried again (``troubles``)."""

MAGIC_1_SINCE = 2
"""The Produce version that carries messages of magic 1; older ones carry magic 0."""
MAGIC_2_SINCE = 3
"""The Produce version that carries batches of magic 2, and nothing else."""
ZSTD_SINCE = 7
"""The Produce version whose batches may be compressed with zstd."""

_METADATA_TIMEOUT_MS = 10_000
_NO_TRANSACTIONS_MS = (1 << 31) - 1
"""The time-out of transactions where there are none, as Kafka's producer sends it."""


class BatchingProducer:
    """Sends records in batches. Thread-safe. Close it, or use it as a context manager: what is queued is
    sent first.

    ``threads=False`` makes one without threads, for a simulation: nothing moves but in ``step``, ``flush``,
    ``close`` and where a call has to wait, and time passes by ``cluster.waiter`` only.
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
                f"a record for topic {topic!r} takes {size} bytes, "
                f"max.request.size is {self.config.max_request_bytes}",
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
            if change is not AppendResult.NONE:
                # A record that joins a batch changes nothing for the workers: most of them do.
                self._wake_worker()
        return future

    def send_encoded(
        self, topic_partition: TopicPartition, data: Buffer, count: int, *, sealed: bool = True
    ) -> SendFuture:
        """Queue a message set of ``count`` records that is encoded already; it is sent as it is, without a
        copy. (An idempotent producer puts its id and numbers into a copy, one request at a time.)

        ``data`` must not change until the delivery is done, and be of a magic that the broker takes (see
        ``magic``); in magic 2 it is one batch. One that is not ``sealed`` (``columns.encode``) must be
        writable and is the producer's from now on, which writes its id, numbers and checksum into it.

        Blocks and raises as ``send``. The delivery's offset is that of the first record; what others write
        may stand between those of a set that a broker let be divided.
        """
        if count < 1 or not len(data):
            raise ValueError(f"an empty message set was given for {topic_partition}")
        deadline = self._cluster.deadline(self.config.max_block_ms)
        topic = topic_partition.topic
        # What was known before a broker went away will do: leaders are looked for when a batch leaves.
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
        """The newest format that the partition's leader takes: 2 from Kafka 0.11 on, 1 from 0.10 on.

        Blocks and raises as ``send``, where no connection to that broker was ever made.
        """
        deadline = self._cluster.deadline(self.config.max_block_ms)

        def ask() -> int:
            broker_id = self._cluster.known_leader(topic_partition)
            if broker_id is None:
                broker_id = self._cluster.leader(topic_partition, deadline.remaining_ms()).broker_id
            try:
                return magic_for_version(
                    self._cluster.connection(broker_id, ConnectionPool.PRODUCE).version(PRODUCE, deadline)
                )
            except NetworkError:
                # Others may lead by now what a broker led that cannot be reached.
                self._cluster.invalidate(topic_partition.topic)
                raise

        return self._cluster.retry(f"asking what the leader of {topic_partition} takes", deadline, ask)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send all that is queued now and wait until each of it is acknowledged or has failed (see its
        delivery).

        NetworkError when ``timeout_ms`` passes first; without it ``delivery_timeout_ms`` of each record is
        the bound.
        """
        with self._lock:
            # Deliveries and not batches: those of a batch that is divided live on in others.
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
                        f"{undone} records are not acknowledged after {timeout_ms} ms of flushing"
                    )
            finally:
                self._accumulator.end_flush()

    def close(self, timeout_ms: int | None = None) -> None:
        """Send all that is queued, then end; a second call does nothing.

        What is left after ``timeout_ms`` fails.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
        try:
            self.flush(timeout_ms)
        except NetworkError as error:
            logger.warning("the producer is closed with records unsent: %s", error)
        with self._lock:
            self._ended = True
            self._sender.abort_incomplete(
                NetworkError(f"the producer was closed before this was acknowledged ({timeout_ms} ms)")
            )
            self._work.notify_all()
            workers = list(self._workers)
        self._run_callbacks()
        for worker in workers:
            if worker is not threading.current_thread():
                # A worker may be waiting for a broker that does not answer; its request's time-out ends that.
                worker.join(None if timeout_ms is None else timeout_ms / 1000)

    def step(self) -> bool:
        """Carry out one job, if there is one now; whether there was. For producers without threads."""
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
        # Whoever waits for room does not want the others to linger.
        self._accumulator.begin_flush()
        try:
            self._wake_worker()
            if not self._wait(
                self._settled, lambda: self._closing or self._accumulator.has_room(size), deadline
            ):
                raise NetworkError(
                    f"no room for {size} bytes within {self.config.max_block_ms} ms: "
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
        """Without threads: do a job, or let time pass. False when there will never be a job."""
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
        """See that somebody looks for work. Under the lock."""
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
                    # There may be more, and somebody has to watch the time.
                    if self._idle:
                        self._work.notify()
                    else:
                        self._start_worker()
                    return task
                if ran_callbacks:
                    continue  # the lock was given away: whoever had it may have ended all this
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
        answer: InitProducerIdResponse | MinikafkaError
        try:
            request = InitProducerIdRequest(None, _NO_TRANSACTIONS_MS)
            answer = self._cluster.call(None, INIT_PRODUCER_ID, request, timeout_ms=_METADATA_TIMEOUT_MS)
            code = ErrorCode.of(answer.error_code)
            if code is not ErrorCode.NONE:
                answer = BrokerError(code, "a producer id was asked for")
        except MinikafkaError as error:
            answer = error
        goes_without = False
        with self._lock:
            if isinstance(answer, MinikafkaError):
                goes_without = self._sender.handle_producer_id_error(answer, self._clock.monotonic_ms())
            else:
                self._sender.handle_producer_id(answer.producer_id, answer.producer_epoch)
            self._work.notify()
        if goes_without:
            too_old = isinstance(answer, BrokerError) and answer.code is ErrorCode.UNSUPPORTED_VERSION
            level = logging.DEBUG if too_old else logging.WARNING
            logger.log(level, "minikafka: retries may write records twice, without a producer id: %s", answer)

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
        except Exception as error:  # the deliveries must learn of it, or their owners would wait in vain
            logger.exception("a produce request failed in a way that is not foreseen")
            failure = MinikafkaError(f"a defect of the producer: {error!r}")
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if failure is None:
                self._sender.handle_response(task, response, now_ms)
            else:
                self._sender.handle_failure(task, failure, now_ms)
            self._work.notify()

    def _send_and_receive(self, task: ProduceTask) -> ProduceResponse | None:
        """Encode, send, wait for the answer; None where acks=0 wants none, or nothing is left to send."""
        if not task.batches:
            return None
        acks, timeout_ms = self.config.acks, self.config.request_timeout_ms

        def request(version: int) -> ProduceRequest:
            sets = [self._encode(batch, version) for batch in task.batches]
            # The broker gives up a little before we do, so that its answer still finds us.
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
                raise _UnencodableBatch(legacy, error) from error  # the others may go without it
            raise
        return reply.result(timeout_ms)

    def _encode(self, batch: ProducerBatch, version: int) -> Buffer:
        codec, magic = self.config.compression, magic_for_version(version)
        try:
            if magic < BATCH_MAGIC and self.config.idempotence:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"enable.idempotence is true, which needs format 2 and Kafka 0.11 or newer, and {batch} "
                    f"would go in format {magic}",
                )
            if magic < BATCH_MAGIC and batch.producer_sequence is not None:
                with self._lock:
                    self._sender.remove_sequence(batch)
            if version < ZSTD_SINCE and batch.codec(codec) is Codec.ZSTD:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"{batch}: its broker does not know compression.type zstd, which came with Kafka 2.1",
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
                    logger.exception("a callback for %s failed", future.topic_partition)

    def _log_retry_warning(self) -> None:
        if not self._sender.has_retry_warning:
            return
        with self._lock:
            text = self._sender.retry_warning(self._clock.monotonic_ms())
        if text is not None:
            retries_logger.warning("minikafka: %s", text)


def magic_for_version(version: int) -> int:
    """The format that a version of Produce carries."""
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
            f"partition {partition} was asked for, {describe_partitions(topic)}",
        )
