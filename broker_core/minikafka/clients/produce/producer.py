"""The producer: the accumulator and the sender behind one lock, and the threads that execute their tasks.

Threads
    Workers take turns: one waits for a task, takes it, lets another worker wait in its place, and executes
    the task itself, from encoding to the response. So no task is handed from thread to thread, a broker that
    does not respond delays only its own requests, and there are never more workers than requests in flight,
    plus one. Idle workers stay for the next burst, and are woken only if there is work for them; all end
    with ``close``.
Without threads
    The thread that calls ``poll``, ``wait``, ``flush`` or ``close`` executes the tasks. It sends all requests
    that are due before it waits for a response, so that brokers work at the same time, and while it encodes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, NoSuchBroker
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.clients.metrics.producer import PREFIX, ProducerMetrics
from minikafka.clients.metrics.registry import Metrics, merged_groups
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.accumulator import AppendResult, RecordAccumulator
from minikafka.clients.produce.batch import BatchSource, RetryGroup, message_bytes
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.partitioner import StickyPartitioner
from minikafka.clients.produce.requests import Task
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.produce.sender import Sender
from minikafka.clients.produce.task_runner import TaskRunner, magic_for_version, unexpected_error
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import Record
from minikafka.records.format.record import Headers
from minikafka.wire.apis.produce import PRODUCE

if TYPE_CHECKING:
    from minikafka.clients.produce.transaction_manager import TransactionManager, TransactionResult
    from minikafka.clients.produce.transaction_runner import TransactionRunner

logger = logging.getLogger("minikafka.clients.produce")

_CONTENT = (bytes, type(None), bytearray, memoryview)
"""The types of a key or a value."""


class BatchingProducer:
    """Sends records in batches. Thread-safe. Close it, or use it as a context manager: queued records are
    sent first.

    ``threads=False`` creates a producer without threads, for one thread at a time: it works only in ``step``,
    ``poll``, ``wait``, ``flush``, ``close`` and in calls that wait for room, and pauses by ``cluster.waiter``
    only. ``counts_lookups`` and ``other_partition`` are those of the ``Sender``, and ``transactions`` too, of
    a ``TransactionalProducer``.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: BatchingConfig | None = None,
        *,
        partitioner: StickyPartitioner | None = None,
        threads: bool = True,
        counts_lookups: bool = False,
        other_partition: Callable[[TopicPartition], int] | None = None,
        transactions: TransactionManager | None = None,
        transaction_runner: TransactionRunner | None = None,
    ) -> None:
        self.config = config or BatchingConfig()
        cluster.check_security(self.config.security)
        self._cluster = cluster
        self._clock = cluster.clock
        self._partitioner = partitioner or StickyPartitioner()
        self._threads = threads
        self._transactions = transactions
        # Re-entrant: Ctrl-C cannot interrupt ``Condition.wait`` while it takes such a lock again.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._accumulator = RecordAccumulator(self.config, self._settled)
        self._metrics = ProducerMetrics(cluster.clock)
        self._sender = Sender(
            self._accumulator,
            self.config,
            cluster,
            counts_lookups=counts_lookups,
            other_partition=other_partition,
            transactions=transactions,
            metrics=self._metrics,
        )
        self._runner = TaskRunner(cluster, self.config, self._sender, self._work, transaction_runner)
        self._workers: list[threading.Thread] = []
        self._idle: list[float] = []
        """For each idle worker the time at which it looks for tasks by itself: monotonic ms."""
        self._closing = False
        self._ended = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> SendFuture:
        """Queue one record; the partition is chosen by the key when it is None, the time is now when it is
        None. Headers are names and values, and need a broker since Kafka 0.11.

        Blocks up to ``max_block_ms`` where the topic is not known yet or the buffer is full, then raises
        NetworkError. BrokerError: the topic or partition does not exist, or the record is larger than
        ``max_request_bytes``.
        """
        _check_content(topic, "value", value)
        _check_content(topic, "key", key)
        for name, content in headers:
            _check_content(topic, f"header {name!r}", content)
        size = message_bytes(key, value, headers)
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
        time_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        record = Record(key, value, time_ms, headers)
        with self._lock:
            self._wait_for_room(size, deadline)
            tp = TopicPartition(topic, self._choose(described, key, size) if partition is None else partition)
            future, change = self._accumulator.append(tp, record, size, self._clock.monotonic_ms())
            if change is not AppendResult.APPENDED:
                # Most records are added to a batch, which changes nothing for the workers.
                self._wake_worker()
        return future

    def send_encoded(
        self,
        topic_partition: TopicPartition,
        data: Buffer,
        count: int,
        *,
        sealed: bool = True,
        group: RetryGroup | None = None,
    ) -> SendFuture:
        """Queue an encoded message set of ``count`` records; it is sent unchanged, without a copy. (An
        idempotent producer writes its id and numbers into a copy, one request at a time.)

        ``data`` must not change until the future is done. In magic 2 it is one batch. For a leader with an
        older format (see ``magic``) it is encoded again, unless it has headers. An unsealed set
        (``columns.encode``) must be writable and belongs to the producer from then on, which writes its id,
        numbers and checksum into it.

        Blocks and raises as ``send``; with ``group`` a partition that does not exist fails the future, as the
        look-up of its leader does. The future's offset is that of the first record; if a set is split
        after MESSAGE_TOO_LARGE, records of other producers may come between its records.
        """
        if group is None:
            return self.send_encoded_sets([(topic_partition, data, count)], sealed=sealed)[0]
        _check_not_empty(topic_partition, data, count)
        with self._lock:
            self._wait_for_room(len(data), None)
            now_ms = self._clock.monotonic_ms()
            future = self._accumulator.append_encoded(
                topic_partition, data, count, now_ms, sealed=sealed, group=group
            )
            self._wake_worker()
        return future

    def send_encoded_sets(
        self, sets: Sequence[tuple[TopicPartition, Buffer, int]], *, sealed: bool = True, splits: bool = True
    ) -> list[SendFuture]:
        """Queue encoded message sets and their counts as ``send_encoded`` does, in their order. One that is
        too large for its topic is sent in halves, or fails without ``splits``.

        While the buffer has room, the workers see them all at once: one request then takes those of several
        partitions, and fewer threads wake up than for one set after the other.
        """
        for topic_partition, data, count in sets:
            _check_not_empty(topic_partition, data, count)
        append = partial(self._accumulator.append_encoded, sealed=sealed, splits=splits)
        return self._queue_all(
            [(tp, len(data), partial(append, tp, data, count)) for tp, data, count in sets]
        )

    def send_copies(self, copies: Sequence[tuple[TopicPartition, BatchSource, int]]) -> list[SendFuture]:
        """Queue batches in logs and their counts, as ``send_encoded_sets``; the leaders copy them."""
        append = self._accumulator.append_copy
        return self._queue_all(
            [(tp, source.size_bytes, partial(append, tp, source, count)) for tp, source, count in copies]
        )

    def _queue_all(
        self, batches: Sequence[tuple[TopicPartition, int, Callable[[int], SendFuture]]]
    ) -> list[SendFuture]:
        """Queue batches: the size of each, and the function that does so at a time."""
        deadline: Deadline | None = None
        for topic_partition, _, _ in batches:
            # Old metadata is good enough: leaders are looked up when a batch is sent.
            described = self._cluster.known_topic(topic_partition.topic)
            if described is None:
                deadline = deadline or self._cluster.deadline(self.config.max_block_ms)
                described = self._cluster.topic(topic_partition.topic, deadline.remaining_ms())
            _check_partition(described, topic_partition.partition)
        futures = []
        sendable = False
        with self._lock:
            for topic_partition, size_bytes, append in batches:
                self._wait_for_room(size_bytes, deadline)
                # Behind a batch in flight it is found by the worker that handles the response.
                sendable = sendable or not self._accumulator.has_in_flight(topic_partition)
                futures.append(append(self._clock.monotonic_ms()))
            if sendable:
                self._wake_worker()
        return futures

    def magic(self, topic_partition: TopicPartition) -> int:
        """Return the newest format that the partition's leader supports: 2 since Kafka 0.11, 1 since 0.10.

        Blocks and raises as ``send`` until a connection to that broker was made once.
        """
        broker_id = self._cluster.known_leader(topic_partition)
        if broker_id is not None and (version := self._known_version(broker_id)) is not None:
            return magic_for_version(version)
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

    def known_magic(self, broker_id: int) -> int:
        """Return the newest format that a broker supports, without a request: 2 if unknown."""
        version = self._known_version(broker_id)
        return BATCH_MAGIC if version is None else magic_for_version(version)

    def _known_version(self, broker_id: int) -> int | None:
        """Return the version of Produce that a broker was found to support, without a request."""
        try:
            return self._cluster.connection(broker_id, ConnectionPool.PRODUCE).known_version(PRODUCE)
        except NoSuchBroker:
            return None

    @property
    def resends(self) -> int:
        """The number of retries of batches so far."""
        return self._sender.resends

    def metrics(self) -> Metrics:
        """Return the metrics of this producer, of its topics, and of the connections of its
        ``ClusterClient``: group -> name -> value, with the names of Kafka's clients.
        """
        found = self._cluster.metrics(PREFIX)
        metrics = self._metrics
        with self._lock:
            metrics.requests_in_flight = self._sender.requests_in_flight
            metrics.buffer_total_bytes = self.config.buffer_bytes
            metrics.buffer_available_bytes = max(0, self.config.buffer_bytes - self._accumulator.used_bytes)
            metrics.metadata_age = self._cluster.metadata_age_s
            own = metrics.read()
        return merged_groups(own, found)

    def record_call(self, call: str, took_ms: int) -> None:
        """Record a call of a transaction that took ``took_ms``. For the ``TransactionalProducer``."""
        with self._lock:
            self._metrics.record_call(call, took_ms)

    def wait(self, futures: Iterable[SendFuture], deadline: Deadline | None = None) -> bool:
        """Wait until all ``futures`` are done; return False after ``deadline``."""
        left = list(futures)

        def all_done() -> bool:
            while left and left[-1].done:
                left.pop()
            return not left

        with self._lock:
            return self._wait(all_done, deadline)

    def perform(
        self, begin: Callable[[], TransactionResult], timeout_ms: int, *, flush: bool = False
    ) -> TransactionResult:
        """Begin a call of ``transactions``, and wait for its result until ``timeout_ms`` have passed; with
        ``flush`` batches do not linger meanwhile. For the ``TransactionalProducer``.
        """
        with contextlib.ExitStack() as stack:
            if flush:
                stack.enter_context(self._accumulator.flush())
            with self._lock:
                if self._closing:
                    raise NetworkError("the producer is closed")
                assert self._transactions is not None
                result = begin()
                self._wake_worker()
                try:
                    self._wait(lambda: result.done, self._cluster.deadline(timeout_ms))
                finally:
                    if not result.done:
                        self._transactions.time_out(result)
                return result

    def fail_transaction(self, error: MinikafkaError) -> None:
        """Fail the open transaction, if there is one: a record of it was refused before it was queued. For
        the ``TransactionalProducer``.
        """
        with self._lock:
            assert self._transactions is not None
            self._transactions.fail_record(error)
            self._wake_worker()

    def abort(self, error: MinikafkaError) -> None:
        """Fail all records that are not acknowledged. Any thread may call this while another one waits."""
        with self._lock:
            self._sender.abort_incomplete(error)
        self._runner.run_callbacks()

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send all queued records and wait until each is acknowledged or has failed (see its future).

        Raises NetworkError if ``timeout_ms`` passes first; without it ``delivery_timeout_ms`` of each record
        is the limit.
        """
        began_ms = self._clock.monotonic_ms()
        with self._accumulator.flush():
            with self._lock:
                # Futures and not batches: the futures of a batch that is split move to other batches.
                batches = self._accumulator.incomplete_batches()
                left = [future for batch in batches for future in batch.futures]
                self._wake_worker()
            if not self.wait(left, self._deadline(timeout_ms)):
                undone = sum(future.count for future in left if not future.done)
                raise NetworkError(
                    f"timed out after {timeout_ms} ms flushing: {counted(undone, 'record')} left"
                )
        with self._lock:
            self._metrics.record_event(self._metrics.flushes, self._clock.monotonic_ms() - began_ms)

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
        self._runner.run_callbacks()
        for worker in workers:
            if worker is not threading.current_thread():
                # A worker may be waiting for a broker that does not respond, until its request times out.
                worker.join(None if timeout_ms is None else timeout_ms / 1000)

    def step(self) -> bool:
        """Without threads: send all requests that are due, then wait for a response if any is under way.
        Return False if there was nothing to do.
        """
        return self._runner.step(None)

    def poll(self) -> None:
        """Without threads: send all requests that are due, and handle the responses that have arrived."""
        self._runner.poll()

    def __enter__(self) -> BatchingProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose(self, topic: TopicMetadata, key: bytes | None, size: int) -> int:
        number = self._partitioner.partition(topic, key)
        if key is None and self._accumulator.would_create_batch(TopicPartition(topic.name, number), size):
            return self._partitioner.partition_of_new_batch(topic)
        return number

    # --- waiting, under the lock ----------------------------------------------------------------------------

    def _wait_for_room(self, size: int, deadline: Deadline | None) -> None:
        if self._closing:
            raise NetworkError("the producer is closed")
        if self._transactions is not None:
            self._transactions.check_open()
        if self._accumulator.has_room(size):
            return
        deadline = deadline or self._cluster.deadline(self.config.max_block_ms)
        began_ms = self._clock.monotonic_ms()
        # Room becomes free sooner if batches do not linger.
        with self._accumulator.flush():
            self._wake_worker()
            has_room = self._wait(lambda: self._closing or self._accumulator.has_room(size), deadline)
            self._metrics.record_event(self._metrics.buffer_wait, self._clock.monotonic_ms() - began_ms)
            if not has_room:
                self._metrics.record_event(self._metrics.buffer_exhausted)
                raise NetworkError(
                    f"timed out after {self.config.max_block_ms} ms waiting for {size} bytes of memory: "
                    f"{self._accumulator.used_bytes} of {self.config.buffer_bytes} bytes (buffer.memory) "
                    "wait for the brokers"
                )
        if self._closing:
            raise NetworkError("the producer is closed")
        if self._transactions is not None:
            self._transactions.check_open()  # it may have ended meanwhile

    def _wait(self, reached: Callable[[], bool], deadline: Deadline | None) -> bool:
        while not reached():
            left_ms = None if deadline is None else deadline.remaining_ms()
            if left_ms == 0:
                return False
            if self._threads:
                self._settled.wait(None if left_ms is None else left_ms / 1000)
            elif not self._step_or_wait(left_ms, reached):
                return False
        return True

    def _step_or_wait(self, left_ms: int | None, reached: Callable[[], bool]) -> bool:
        """Without threads: execute tasks, or wait. Return False if there will never be a task."""
        try:
            self._lock.release()  # in the block: Ctrl-C may come right after it
            now_ms = self._clock.monotonic_ms()
            if not self._runner.step(left_ms):
                with self._lock:
                    if reached():  # the step has failed what was awaited, or ended an empty transaction
                        return True
                    # As of before the step, which may have missed what became due during it.
                    due_ms = self._sender.next_due_ms(now_ms)
                waits = [ms for ms in (due_ms, left_ms) if ms is not None]
                if not waits:
                    return False
                self._cluster.waiter.wait(min(waits))
            return True
        finally:
            self._lock.acquire()

    def _deadline(self, timeout_ms: int | None) -> Deadline | None:
        return None if timeout_ms is None else self._cluster.deadline(timeout_ms)

    # --- the workers ----------------------------------------------------------------------------------------

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
        try:
            worker.start()
        except RuntimeError as error:  # the system has no thread left
            if not self._workers:
                raise
            logger.warning("minikafka: the producer works with %d threads: %s", len(self._workers), error)
        else:
            self._workers.append(worker)

    def _run(self) -> None:
        while not self._ended:
            try:
                task = self._await_task()
                if task is not None:
                    self._runner.run(task)
            except BaseException as error:  # without workers the futures would never end
                logger.exception("unexpected error in a thread of the producer: its records fail")
                self.abort(unexpected_error(error))

    def _await_task(self) -> Task | None:
        with self._lock:
            while not self._ended:
                now_ms = self._clock.monotonic_ms()
                task = self._sender.next_task(now_ms)
                if task is not None:
                    if not self._idle:
                        self._start_worker()
                    elif self._has_more_work(now_ms):
                        self._work.notify()
                    return task
                if self._sender.has_callbacks or self._sender.is_warning_due(now_ms):
                    self._lock.release()
                    try:
                        self._runner.report()
                    finally:
                        self._lock.acquire()
                    continue  # the lock was released meanwhile, so the state may have changed
                due_ms = self._sender.next_due_ms(now_ms)
                wakes_ms = math.inf if due_ms is None else now_ms + due_ms
                self._idle.append(wakes_ms)
                try:
                    self._work.wait(None if due_ms is None else due_ms / 1000)
                finally:
                    self._idle.remove(wakes_ms)
        return None

    def _has_more_work(self, now_ms: int) -> bool:
        """Return True if an idle worker is needed beside this one, which has a task: there is more work now,
        or some becomes due before any of them would look for it.
        """
        if self._sender.has_more_tasks or self._sender.has_callbacks:
            return True
        due_ms = self._sender.next_due_ms(now_ms)
        return due_ms is not None and now_ms + due_ms < min(self._idle)


def _check_not_empty(topic_partition: TopicPartition, data: Buffer, count: int) -> None:
    if count < 1 or not len(data):
        raise ValueError(f"empty message set for {topic_partition}")


def _check_content(topic: str, name: str, content: object) -> None:
    """Raise TypeError for a key or value that is not bytes: its batch would fail, with other records."""
    if not isinstance(content, _CONTENT):
        advice = ": encode it first, as with .encode()" if isinstance(content, str) else ""
        raise TypeError(
            f"expected bytes or None as {name} for topic {topic!r}, got {type(content).__name__}{advice}"
        )


def _check_partition(topic: TopicMetadata, partition: int) -> None:
    if topic.partition(partition) is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {partition}: {topic.partition_range}",
        )
