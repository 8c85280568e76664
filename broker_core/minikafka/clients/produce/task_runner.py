"""Executes the tasks of the ``Sender``: requests for metadata, for a producer id, and to produce."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.files import Buffer
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.requests import (
    InitProducerIdTask,
    MetadataTask,
    ProduceTask,
    Task,
    TransactionTask,
    copy_request,
    produce_request,
)
from minikafka.clients.produce.sender import Sender
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import Codec
from minikafka.wire.apis.copy_batches import COPY_BATCHES
from minikafka.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from minikafka.wire.apis.produce import PRODUCE, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from minikafka.clients.produce.transaction_runner import TransactionRunner

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


class TaskRunner:
    """Does the I/O of one producer, without its lock, and tells the ``Sender`` of each result under it.

    ``run`` executes one task to its end, for a worker thread. ``step`` and ``poll`` execute all tasks that
    are due, for one thread at a time: requests are sent before the first response is awaited. ``work`` is a
    condition of the producer's lock, and notified of results. An unexpected error fails the batches of its
    task.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: BatchingConfig,
        sender: Sender,
        work: threading.Condition,
        transactions: TransactionRunner | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._config = config
        self._sender = sender
        self._work = work
        self._transactions = transactions
        self._idempotence_error: MinikafkaError | None = None
        """The reason why the brokers give no producer id, until it is logged."""
        self._requests: list[_Request] = []
        """The requests in flight of ``step`` and ``poll``."""

    def poll(self) -> None:
        """Send all requests that are due, and handle the responses that have arrived."""
        try:
            while self._begin_tasks() or self._receive_arrived():
                pass
        except BaseException as error:
            self._fail_lost_tasks(error)
            raise

    def step(self, left_ms: int | None) -> bool:
        """Send all requests that are due, then wait for a response, if any is under way, until the next task
        is due or ``left_ms`` have passed. Return False if there was nothing to do.
        """
        try:
            return self._step(left_ms)
        except BaseException as error:
            self._fail_lost_tasks(error)
            raise

    def _step(self, left_ms: int | None) -> bool:
        began = self._begin_tasks()
        if not self._requests:
            return began
        with self._work:
            due_ms = self._sender.next_due_ms(self._clock.monotonic_ms())
        waits = [ms for ms in (due_ms, left_ms) if ms is not None]
        if len(self._requests) == 1 and not waits:
            self._receive(self._requests[0])
            return True
        waits.extend(request.deadline.remaining_ms() for request in self._requests)
        self._cluster.wait_any([request.reply for request in self._requests], min(waits))
        self._receive_arrived()
        return True

    def _begin_tasks(self) -> bool:
        """Execute all tasks that are due, without waiting for responses to produce requests. Return whether
        there were any.
        """
        began = False
        while True:
            with self._work:
                task = self._sender.next_task(self._clock.monotonic_ms())
            self.report()
            if task is None:
                return began
            began = True
            self.run(task, self._requests.append)

    def _receive_arrived(self) -> bool:
        """Handle the responses that have arrived, or have not come in time. Return whether there were any."""
        ended = [request for request in self._requests if request.reply.done() or request.deadline.expired]
        for request in ended:
            self._receive(request)
        return bool(ended)

    def _receive(self, request: _Request) -> None:
        outcome = self._response(request)
        self._requests.remove(request)
        self._handle(request.task, outcome, request.reply.latency_ms)
        self.report()

    def run(self, task: Task, put_aside: Callable[[_Request], None] | None = None) -> None:
        """Execute a task, from encoding to the response, and call the callbacks of what ended. A request that
        is to be ``put_aside`` is only sent.
        """
        try:
            if isinstance(task, MetadataTask):
                self._refresh_metadata(task)
            elif isinstance(task, InitProducerIdTask):
                self._request_producer_id()
            elif (
                request := self._send_transaction(task)
                if isinstance(task, TransactionTask)
                else self._send(task)
            ) is not None:
                if put_aside is None:
                    outcome = self._response(request)
                    self._handle(task, outcome, request.reply.latency_ms)
                else:
                    put_aside(request)
        except BaseException as error:  # the futures must end, or their owners would wait for ever
            self._fail_task(task, error)
            if not isinstance(error, Exception):  # Ctrl-C
                raise
        self.report()

    def _fail_task(self, task: Task, error: BaseException) -> None:
        if isinstance(error, Exception):
            logger.error("unexpected error while sending %s", task, exc_info=error)
        with self._work:
            self._sender.fail_task(task, unexpected_error(error), self._clock.monotonic_ms())
            self._work.notify()

    def _fail_lost_tasks(self, error: BaseException) -> None:
        """Without threads: fail the tasks that nobody will end, as Ctrl-C may come between any two lines."""
        with self._work:
            known = {request.task for request in self._requests}
            lost = [task for task in self._sender.tasks_under_way() if task not in known]
        for task in lost:
            self._fail_task(task, error)

    def report(self) -> None:
        """Call due callbacks, and log a due warning."""
        self.run_callbacks()
        self._log_retry_warning()

    def _refresh_metadata(self, task: MetadataTask) -> None:
        errors: dict[str, MinikafkaError] = {}
        try:
            metadata = self._cluster.metadata(
                task.topics,
                refresh=True,
                timeout_ms=min(_METADATA_TIMEOUT_MS, self._config.request_timeout_ms),
                caller_timeout_ms=self._sender.delivery_timeout_ms,
            )
            unusable = {topic: metadata.why_unusable(topic) for topic in task.topics}
            errors = {topic: error for topic, error in unusable.items() if error is not None}
        except MinikafkaError as caught:
            errors = dict.fromkeys(task.topics, caught)
        with self._work:
            self._sender.handle_metadata(task, errors, self._clock.monotonic_ms())
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
        with self._work:
            if isinstance(result, MinikafkaError):
                idempotence_off = self._sender.handle_producer_id_error(result, self._clock.monotonic_ms())
                self._idempotence_error = result if idempotence_off else None
            else:
                self._sender.handle_producer_id(result.producer_id, result.producer_epoch)
            self._work.notify()
        too_old = isinstance(result, BrokerError) and result.code is ErrorCode.UNSUPPORTED_VERSION
        if idempotence_off and not too_old:  # else it is logged if a batch could have had numbers
            self._warn_without_idempotence()

    def _warn_without_idempotence(self) -> None:
        """Log, once, that idempotence is off."""
        with self._work:
            error, self._idempotence_error = self._idempotence_error, None
        if error is not None:
            text = "minikafka: no producer id: idempotence is off, retries may duplicate records: %s"
            logger.warning(text, error)

    def _send(self, task: ProduceTask) -> _Request | None:
        """Encode and send a request; None if it has ended already, with acks=0 or a failure."""
        left = task
        while True:
            try:
                reply = self._encode_and_send(left)
            except _UnencodableBatch as unencodable:
                with self._work:
                    self._sender.fail_batch(unencodable.batch, unencodable.error)
                left = left.without(unencodable.batch)
                continue
            except MinikafkaError as error:
                self._handle(task, error)
                return None
            if reply is None:
                self._handle(task, None)
                return None
            return _Request(task, reply, self._cluster.deadline(self._config.request_timeout_ms))

    def _send_transaction(self, task: TransactionTask) -> _Request | None:
        """Send a request to a coordinator; None if it has ended already, as a look-up or with a failure."""
        assert self._transactions is not None
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        if task.coordinator is None:
            self._handle(task, self._transactions.find(task, deadline))
            return None
        try:
            return _Request(task, self._transactions.send(task, deadline), deadline)
        except MinikafkaError as error:
            self._handle(task, error)
            return None

    def _response(self, request: _Request) -> Any:
        try:
            return request.reply.result(self._config.request_timeout_ms)
        except MinikafkaError as error:
            return error
        except Exception as error:  # once more it would be raised again
            logger.exception("unexpected error in the response to %s", request.task)
            return unexpected_error(error)

    def _handle(
        self, task: ProduceTask | TransactionTask, outcome: Any, latency_ms: int | None = None
    ) -> None:
        """Handle the response to a request, or its error; None with acks=0."""
        with self._work:
            now_ms = self._clock.monotonic_ms()
            if isinstance(task, TransactionTask):
                assert self._transactions is not None
                self._sender.handle_transaction(task, self._transactions.outcome(task, outcome), now_ms)
            elif isinstance(outcome, MinikafkaError):
                self._sender.handle_failure(task, outcome, now_ms)
            else:
                self._sender.handle_response(task, outcome, now_ms)
            if isinstance(task, ProduceTask):
                throttle_ms = outcome.throttle_time_ms if isinstance(outcome, ProduceResponse) else 0
                self._sender.metrics.record_request(task.batches, latency_ms, throttle_ms)
            if self._sender.has_callbacks:
                self._work.notify()  # else this thread takes what is due next, before it waits

    def _encode_and_send(self, task: ProduceTask) -> ResponseFuture[ProduceResponse] | None:
        """Encode and send; return None with acks=0, or if nothing is left to send."""
        if not task.batches:
            return None
        acks, timeout_ms = self._config.acks, self._config.request_timeout_ms
        # The broker times out a little earlier than the client, so that its response still arrives.
        wait_ms = timeout_ms - timeout_ms // 10
        transactional_id = self._sender.transactional_id

        def request(version: int) -> ProduceRequest:
            sets = [self._encode(batch, version) for batch in task.batches]
            return produce_request(task, sets, acks, wait_ms, transactional_id)

        deadline = self._cluster.deadline(timeout_ms)
        connection = self._cluster.connection(task.broker_id, ConnectionPool.PRODUCE)
        if task.is_copy:
            copies = copy_request(task, acks, wait_ms, transactional_id)
            return connection.send(COPY_BATCHES, lambda _: copies, deadline)
        legacy = next((batch for batch in task.batches if batch.is_legacy), None)
        newest = None if legacy is None else MAGIC_2_SINCE - 1
        try:
            if acks == 0:
                connection.send_without_response(PRODUCE, request, deadline, newest)
                return None
            return connection.send(PRODUCE, request, deadline, newest)
        except BrokerError as error:
            if legacy is not None and error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise _UnencodableBatch(legacy, error) from error  # the other batches can be sent without it
            raise

    def _encode(self, batch: ProducerBatch, version: int) -> Buffer:
        codec, magic = self._config.compression, magic_for_version(version)
        try:
            if magic < BATCH_MAGIC and self._config.idempotence:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"cannot send {batch} in format {magic}: enable.idempotence=true needs format 2, and "
                    "Kafka 0.11 or newer",
                )
            if magic >= BATCH_MAGIC and self._idempotence_error is not None:
                self._warn_without_idempotence()
            if magic < BATCH_MAGIC and batch.producer_sequence is not None:
                with self._work:
                    self._sender.remove_sequence(batch)
            if version < ZSTD_SINCE and batch.codec(codec) is Codec.ZSTD:
                raise BrokerError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"{batch}: the broker does not support compression.type zstd, which needs Kafka 2.1",
                )
            data = batch.encode(magic, codec)
            batch.note_encoded(len(data), codec)
            return data
        except MinikafkaError as error:
            raise _UnencodableBatch(batch, error) from error

    def run_callbacks(self) -> None:
        """Call the callbacks of futures that have ended."""
        if not self._sender.has_callbacks:
            return
        with self._work:
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
        with self._work:
            text = self._sender.retry_warning(self._clock.monotonic_ms())
        if text is not None:
            retries_logger.warning("minikafka: %s", text)


def unexpected_error(error: BaseException) -> MinikafkaError:
    """Return the error of futures that an exception has ended which nobody expected, or Ctrl-C."""
    failure = MinikafkaError(f"unexpected error in the producer: {error!r}")
    failure.__cause__ = error
    return failure


def magic_for_version(version: int) -> int:
    """Return the message format of a version of Produce."""
    return 2 if version >= MAGIC_2_SINCE else 1 if version >= MAGIC_1_SINCE else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request in flight."""

    task: ProduceTask | TransactionTask
    reply: ResponseFuture[Any]
    deadline: Deadline


class _UnencodableBatch(Exception):
    """A batch cannot be encoded for its broker."""

    def __init__(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        super().__init__(batch, error)
        self.batch = batch
        self.error = error
