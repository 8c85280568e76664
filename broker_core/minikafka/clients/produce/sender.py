"""Assigns batches to requests and decides the effect of each response or failure. ``producer`` does the I/O.

Order and retries
    At most one batch of a partition is in flight at a time, and a batch that failed goes back to the front
    of its partition. So a retry never overtakes and is never overtaken; with several batches in flight only
    idempotence (Kafka 0.11) could guarantee that. Up to ``max_in_flight`` requests per broker are in flight
    together, each with batches of other partitions.
Failures
    After a retriable code, a broken connection or a time-out the batch is sent again, with a back-off and new
    metadata, until ``retries`` or ``delivery_timeout_ms`` are used up; at once if the response names the new
    leader (KIP-951). When the response was lost the records may be in the log already: without idempotence
    delivery is at least once. MESSAGE_TOO_LARGE splits the batch; a batch that cannot be split fails. Every
    other code fails the batch, and with it the futures of its records; where the broker says which records it
    refuses (KIP-467), their futures have errors of their own. Batches of a ``RetryGroup`` count failures in a
    row together, and fail together after the last retry.
Copies
    A batch in a log of the cluster is copied by the leader (``wire.apis.copy_batches``). If the leader cannot
    do that, the batch is fetched and sent, with the same numbers.
Counted retries (the texts' producer)
    The pauses have one length, and a look-up of leaders is part of an attempt: if it fails, or the partition
    has no leader, the attempt has failed. Batches that may go to any partition are not sent again before a
    look-up has given them another one.
Idempotence (``sequence_numbers``)
    The broker recognizes a numbered batch that it has, and repeats its response. A batch that fails after a
    lost response may be in the log or not, and its error does not tell; later batches continue. Of the
    codes for numbered batches, DUPLICATE_SEQUENCE_NUMBER counts as acknowledged, with no offset.
    UNKNOWN_PRODUCER_ID: the log has nothing of the producer any more, for example after the topic was
    recreated, and so not the batch either: it is sent again under a new id (as clients do from 2.5 on; 2.1
    fails it unless all before it was deleted). OUT_OF_ORDER_SEQUENCE_NUMBER fails it: the leader has lost
    acknowledged records. A batch that may be in the log is not split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from minikafka.base.clock import SystemClock
from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoResponse,
    RemoteWireError,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.metrics.producer import ProducerMetrics
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.network.response_errors import (
    NOT_ENOUGH_REPLICAS_CODES,
    authorization_hint,
    is_retriable,
    not_enough_replicas_hint,
)
from minikafka.clients.network.retry import Backoff, FailedAttempts, unreachable_error
from minikafka.clients.produce.accumulator import RecordAccumulator
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.requests import (
    CODE_HINTS,
    COPY_BYTES,
    SENT_INSTEAD,
    TOO_LARGE_SETTINGS,
    InitProducerIdTask,
    MetadataTask,
    ProduceTask,
    Task,
    TransactionTask,
    fit_together,
    may_be_appended,
    new_leaders,
    record_errors,
    refusal_text,
)
from minikafka.clients.produce.retry_log import NO_LEADER_KNOWN, RetryLog
from minikafka.clients.produce.send_future import UNKNOWN_OFFSET, SendFuture
from minikafka.clients.produce.sequence_numbers import SequenceNumbers
from minikafka.clients.produce.throttle_log import ThrottleLog
from minikafka.records.format.message_set import NO_TIMESTAMP
from minikafka.wire.apis.copy_batches import MAX_COPIES
from minikafka.wire.apis.current_leader import NodeEndpoint
from minikafka.wire.apis.produce import ProducePartitionResponse, ProduceResponse

if TYPE_CHECKING:
    from minikafka.clients.produce.transaction_manager import TransactionManager
    from minikafka.clients.produce.transaction_requests import Outcome


class LeaderCache(Protocol):
    """The part of the metadata cache that the sender uses; no method sends a request."""

    def known_leader(self, tp: TopicPartition) -> int | None:
        """Return the partition's last known leader, or None."""

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """Return the partition's last known in-sync replicas, or None."""

    def invalidate(self, topic: str) -> None:
        """Mark the metadata of the topic as stale."""

    def update_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], endpoints: Iterable[NodeEndpoint]
    ) -> frozenset[TopicPartition]:
        """Take leaders that a broker named; return the partitions whose leader is one of them now."""


METADATA_RETRY_BACKOFF_MS = 100
"""The time between two metadata requests for the same topics, if their number has no limit."""


class Sender:
    """Chooses the next request. Every method is called under the producer's lock; times are monotonic ms."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        config: BatchingConfig,
        leaders: LeaderCache,
        *,
        counts_lookups: bool = False,
        other_partition: Callable[[TopicPartition], int] | None = None,
        transactions: TransactionManager | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        """``counts_lookups``: counted retries. ``other_partition`` chooses for the batches of a partition
        that may go to any, from those with a leader; it raises BrokerError if there are none.
        ``transactions``: those of a transactional producer.
        """
        self._counts_lookups = counts_lookups
        pause_ms = config.retry_backoff_ms
        self._backoff = Backoff(pause_ms, pause_ms) if counts_lookups else config.backoff
        self.delivery_timeout_ms = None if counts_lookups else config.delivery_timeout_ms
        """The time for which batches are tried; None if retries are counted."""
        self._lookup_backoff_ms = pause_ms if counts_lookups else METADATA_RETRY_BACKOFF_MS
        self.resends = 0
        """The number of retries of batches."""
        self._other_partition = other_partition
        self._accumulator = accumulator
        self._config = config
        self._leaders = leaders
        self._transactions = transactions
        self.metrics = metrics or ProducerMetrics(SystemClock())
        self.transactional_id = None if transactions is None else transactions.transactional_id
        """For the requests; None without transactions."""
        self._sequences = SequenceNumbers(config) if transactions is None else transactions
        self._in_flight: dict[int, set[ProduceTask]] = defaultdict(set)
        self._pending_topics: set[str] = set()
        self._next_lookup_ms: dict[str, int] = {}
        self._retry_log = RetryLog()
        self._throttle_log = ThrottleLog()
        self._waiting_error: MinikafkaError | None = None
        self._waiting_reason = ""
        self._futures_to_notify: list[SendFuture] = []
        self.has_more_tasks = False
        """True if another task may be due at once after the last one from ``next_task``."""

    def next_task(self, now_ms: int) -> Task | None:
        """Return the next task, or None. Fails the batches whose delivery time-out has passed.

        The caller reports the end of a ProduceTask by ``handle_response`` or ``handle_failure``, of a
        MetadataTask by ``handle_metadata``, of an InitProducerIdTask by ``handle_producer_id`` or
        ``handle_producer_id_error``, of a TransactionTask by ``handle_transaction``; that of any task which
        an unexpected error has ended by ``fail_task``.
        """
        self._fail_ended(now_ms)
        unready: list[ProducerBatch] = []
        broker_id: int | None = None
        chosen: list[ProducerBatch] = []
        size_bytes = 0
        leaderless: dict[str, None] = {}
        left_to: set[int] = set()
        for batch in self._accumulator.ready_batches(now_ms):
            topic = batch.topic_partition.topic
            leader = None if batch.group.must_move else self._leaders.known_leader(batch.topic_partition)
            if leader is None:
                self._retry_log.record_failure(batch.topic_partition, self._waiting_reason, now_ms)
                if topic not in self._pending_topics and self._next_lookup_ms.get(topic, now_ms) <= now_ms:
                    leaderless[topic] = None
                continue
            if leader != broker_id and (broker_id is not None or self._is_busy(leader)):
                left_to.add(leader)
                continue
            if not self._sequences.is_ready(batch):
                unready.append(batch)
                continue
            if chosen and not fit_together(batch, chosen[0]):
                left_to.add(leader)
                continue
            is_copy = batch.source is not None
            limit_bytes = COPY_BYTES if is_copy else self._config.max_request_bytes
            is_full = size_bytes + batch.size_bytes > limit_bytes or (is_copy and len(chosen) == MAX_COPIES)
            if not chosen or not is_full:
                broker_id = leader
                chosen.append(batch)
                size_bytes += batch.size_bytes
            else:
                left_to.add(leader)
        self.has_more_tasks = True
        if leaderless:
            # First, so that partitions of a busy broker do not delay the look-up of other leaders.
            self._pending_topics.update(leaderless)
            return MetadataTask(tuple(leaderless))
        if (due := self._next_id_task(unready, now_ms)) is not None:
            return due
        if broker_id is None:
            return None
        task = ProduceTask(broker_id, tuple(chosen))
        self._in_flight[broker_id].add(task)  # first, so that Ctrl-C leaves no batch in flight without a task
        for batch in chosen:
            self._accumulator.drain(batch)
            self._sequences.assign(batch)
            self.metrics.record_drained(batch.created_ms, now_ms)
        self.has_more_tasks = not all(self._is_busy(leader) for leader in left_to)
        return task

    def _fail_ended(self, now_ms: int) -> None:
        """Fail the batches that are not sent any more."""
        for batch in self._accumulator.expired_batches(now_ms):
            self._fail(batch, self._expiry_error(batch, now_ms))
        if self._sequences.fatal_error is not None:
            self._fail_unready(self._sequences.fatal_error, now_ms)
        if self._transactions is not None and self._transactions.drops_batches:
            self._drop_batches(self._transactions)

    def _next_id_task(
        self, unready: Collection[ProducerBatch], now_ms: int
    ) -> InitProducerIdTask | TransactionTask | None:
        """Return the request that is due for the sake of batches that are not ready, or of a transaction."""
        transactions = self._transactions
        if transactions is None:
            return InitProducerIdTask() if unready and self._sequences.begin_id_request(now_ms) else None
        state = transactions.state
        transactions.add_partitions(batch.topic_partition for batch in unready)
        task = transactions.next_task(now_ms, has_batches=not self._accumulator.is_empty)
        if transactions.state is not state:
            self._accumulator.condition.notify_all()
        return task

    def _drop_batches(self, transactions: TransactionManager) -> None:
        """Fail the batches that a transaction which is aborted, or was, does not send any more.

        A batch with numbers may be in the log: its retries go on, so that the broker does not append it
        after the end of the transaction.
        """
        error = transactions.drop_error()
        for batch in self._accumulator.waiting_batches():
            if batch.producer_sequence is None or transactions.fatal_error is not None:
                self._fail(batch, error)

    def _is_busy(self, broker_id: int) -> bool:
        return len(self._in_flight[broker_id]) >= self._config.max_in_flight

    @property
    def requests_in_flight(self) -> int:
        """The number of Produce requests without a response."""
        return sum(map(len, self._in_flight.values()))

    def tasks_under_way(self) -> list[Task]:
        """Return the tasks whose end was not reported; a MetadataTask stands for all topics looked up."""
        tasks: list[Task] = [task for tasks in self._in_flight.values() for task in tasks]
        if self._pending_topics:
            tasks.append(MetadataTask(tuple(self._pending_topics)))
        if self._sequences.id_requested:
            tasks.append(InitProducerIdTask())
        if self._transactions is not None and self._transactions.task is not None:
            tasks.append(self._transactions.task)
        return tasks

    def fail_task(self, task: Task, error: MinikafkaError, now_ms: int) -> None:
        """Fail the batches of a task that an unexpected error has ended, or Ctrl-C."""
        if isinstance(task, ProduceTask):
            if task in self._in_flight[task.broker_id]:
                self.handle_failure(task, error, now_ms)
        elif isinstance(task, MetadataTask):
            self.handle_metadata(task, dict.fromkeys(task.topics, error), now_ms)
            self._fail_leaderless(task.topics, error, now_ms)
        elif isinstance(task, TransactionTask):
            self.handle_transaction(task, error, now_ms)
        else:
            self.handle_producer_id_error(error, now_ms)
            self._fail_unready(error, now_ms)

    def next_due_ms(self, now_ms: int) -> int | None:
        """Return the ms until ``next_task`` returns a task, or a warning is due, with time alone; None for
        never.
        """
        waits = [again - now_ms for again in self._next_lookup_ms.values() if again > now_ms]
        dues = (
            self._accumulator.next_due_ms(now_ms),
            self._sequences.next_id_request_ms(now_ms),
            self._throttle_log.next_check_ms(now_ms),
        )
        return min([*waits, *(due for due in dues if due is not None)], default=None)

    def handle_metadata(self, task: MetadataTask, errors: Mapping[str, MinikafkaError], now_ms: int) -> None:
        """Record the end of a MetadataTask; ``errors``: its failure, or the problems of topics, by topic."""
        self._pending_topics.difference_update(task.topics)
        self._next_lookup_ms = {
            topic: again for topic, again in self._next_lookup_ms.items() if again > now_ms
        }
        self._next_lookup_ms.update(dict.fromkeys(task.topics, now_ms + self._lookup_backoff_ms))
        self._wait_because(next(iter(errors.values()), None))
        if any(isinstance(error, NetworkError) for error in errors.values()):
            # No broker responds: the ClusterClient logs warnings of that.
            self._retry_log.mark_reported(now_ms)
        for error in errors.values():
            if isinstance(error, AuthenticationFailed):
                self._fail_leaderless(task.topics, error, now_ms)
        if self._counts_lookups:
            for batch in list(self._accumulator.ready_batches(now_ms)):
                if batch.topic_partition.topic in task.topics:
                    self._count_lookup(batch, errors.get(batch.topic_partition.topic), now_ms)

    def _fail_leaderless(self, topics: Collection[str], error: MinikafkaError, now_ms: int) -> None:
        """Fail the batches for ``topics`` that wait for a leader."""
        for batch in list(self._accumulator.ready_batches(now_ms)):
            tp = batch.topic_partition
            if tp.topic in topics and self._leaders.known_leader(tp) is None:
                self._fail(batch, error)

    def _count_lookup(self, batch: ProducerBatch, error: MinikafkaError | None, now_ms: int) -> None:
        """Go on with the attempt of ``batch``, whose leader was looked up; ``error`` is that of its topic."""
        tp = batch.topic_partition
        known = self._leaders.known_leader(tp) is not None
        if isinstance(error, (NetworkError, RemoteWireError)):
            self._retry(batch, unreachable_error(error), now_ms)
            return
        if error is not None and not is_retriable(error):
            self._fail_group(batch, error)
            return
        try:
            if self._other_partition and batch.group.movable and (batch.group.failures or not known):
                target = TopicPartition(tp.topic, self._other_partition(tp))
                known = self._leaders.known_leader(target) is not None
                batch.group.must_move = False
                if known and target != tp:
                    self._retry_log.clear(tp)
                    self._accumulator.move(tp, target)
            if not known:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
        except BrokerError as missing:
            # An unknown topic, for example, is the better reason.
            lost = isinstance(error, BrokerError) and error.code is not missing.code
            self._retry(batch, error if lost and error else missing, now_ms)

    def handle_transaction(self, task: TransactionTask, outcome: Outcome, now_ms: int) -> None:
        """Handle the outcome of a TransactionTask, or its error."""
        assert self._transactions is not None
        self._transactions.handle(task, outcome, now_ms)
        self._accumulator.condition.notify_all()

    def handle_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Store the producer id that a broker has given."""
        self._sequences.handle_producer_id(producer_id, producer_epoch)

    def handle_producer_id_error(self, error: MinikafkaError, now_ms: int) -> bool:
        """Handle a failed request for a producer id. Return True if idempotence is now off."""
        reason = f"no producer id: {FailedAttempts.of(error)}"
        self._wait_because(NetworkError(reason, advice=error.advice))
        if isinstance(error, AuthenticationFailed):
            self._fail_unready(error, now_ms)
        return self._sequences.handle_producer_id_error(error, now_ms)

    def _wait_because(self, error: MinikafkaError | None) -> None:
        self._waiting_error = error
        self._waiting_reason = str(FailedAttempts.of(error)) if error else ""

    def remove_sequence(self, batch: ProducerBatch) -> None:
        """Remove the numbers of a batch in flight to a broker that supports only formats without numbers."""
        if batch.may_be_appended:
            self._sequences.reset_partition(batch)
        else:
            self._sequences.reclaim(batch)

    def handle_response(self, task: ProduceTask, response: ProduceResponse | None, now_ms: int) -> None:
        """Handle a broker's response; None (acks=0, no response) counts as success."""
        results: dict[tuple[str, int], ProducePartitionResponse] = {}
        moved: frozenset[TopicPartition] = frozenset()
        if response is not None:
            self._throttle_log.record_response(task.broker_id, response.throttle_time_ms, now_ms)
            results = {(topic.name, p.index): p for topic in response.topics for p in topic.partitions}
            if response.node_endpoints:
                named = new_leaders(response, task.broker_id)
                moved = self._leaders.update_leaders(named, response.node_endpoints)
        for batch in task.batches:
            if batch.produce_result.done:
                continue  # it could not be encoded, or was aborted
            result = results.get(batch.topic_partition)
            if result is not None and result.error_code:
                has_leader = batch.topic_partition in moved
                self._handle_error(batch, result, task.broker_id, now_ms, has_leader=has_leader)
            elif result is not None:
                self._acknowledge(batch, result.base_offset, result.log_append_time_ms)
            elif response is None:
                self._acknowledge(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)
            else:
                text = f"no result for {batch} in the response of broker {task.broker_id}"
                self._retry_or_fail(batch, NetworkError(text), now_ms)
        self._in_flight[task.broker_id].discard(task)
        self._accumulator.condition.notify_all()

    def _handle_error(
        self,
        batch: ProducerBatch,
        result: ProducePartitionResponse,
        broker_id: int,
        now_ms: int,
        *,
        has_leader: bool,
    ) -> None:
        """``has_leader``: the response has named the new leader of the partition."""
        code = ErrorCode.of(result.error_code)
        if batch.source is not None and code in SENT_INSTEAD:
            self._send_instead(batch)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)
        elif code in TOO_LARGE_SETTINGS:
            self._split_or_fail(batch, code, broker_id)
        else:
            why = refusal_text(result)
            error = BrokerError(code, f"broker {broker_id} rejected {batch}{why}{self._hint(code, batch)}")
            if result.record_errors and len(batch.futures) == batch.count:
                batch.produce_result.record_errors = record_errors(batch, result, broker_id)
                # The code says what is wrong with the records that were refused, not with the others.
                error = BrokerError(ErrorCode.INVALID_RECORD, error.detail)
            may_restart = self._transactions is None and batch.producer_sequence is not None
            if code is ErrorCode.UNKNOWN_PRODUCER_ID and may_restart:
                self._sequences.reset_partition(batch)
                self._retry(batch, error, now_ms)
            else:
                self._retry_or_fail(batch, error, now_ms, has_leader=has_leader)

    def _hint(self, code: ErrorCode, batch: ProducerBatch) -> str:
        if code not in NOT_ENOUGH_REPLICAS_CODES:
            authorization = authorization_hint(code, "Write", f"Topic:{batch.topic_partition.topic}")
            return CODE_HINTS.get(code, authorization)
        return not_enough_replicas_hint(self._leaders.known_in_sync(batch.topic_partition))

    def handle_failure(self, task: ProduceTask, error: MinikafkaError, now_ms: int) -> None:
        """Handle a request that was not sent, or got no response."""
        sent_instead = task.is_copy and isinstance(error, BrokerError) and error.code in SENT_INSTEAD
        for batch in task.batches:
            if batch.produce_result.done:
                continue
            if sent_instead:
                self._send_instead(batch)
            else:
                self._retry_or_fail(batch, error, now_ms)
        self._in_flight[task.broker_id].discard(task)

    def _send_instead(self, batch: ProducerBatch) -> None:
        """Send a batch whose leader did not copy it, with the same numbers."""
        batch.source = None
        self._accumulator.reenqueue(batch)

    def fail_batch(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        """Fail a batch in flight that cannot be encoded for its broker."""
        if not batch.produce_result.done:
            self._fail(batch, error)

    def abort_incomplete(self, error: MinikafkaError) -> None:
        """Fail all unacknowledged batches, in flight or not, as the producer is closed or was interrupted."""
        for batch in self._accumulator.incomplete_batches():
            if not batch.produce_result.done:
                # If it is in flight, later records with its numbers would count as its retry.
                batch.may_be_appended = True
                self._fail(batch, error)

    @property
    def has_retry_warning(self) -> bool:
        """True if ``retry_warning`` may return a warning. May be read without the lock."""
        return bool(self._retry_log) or bool(self._throttle_log)

    def is_warning_due(self, now_ms: int) -> bool:
        """Return True if ``retry_warning`` is to be called although nothing has happened."""
        return self._throttle_log.next_check_ms(now_ms) == 0

    def retry_warning(self, now_ms: int) -> str | None:
        """Return the due warning about lasting failures: partitions, reason, time left; or None."""
        waiting, timeout_ms = self._accumulator.incomplete_batches(), self.delivery_timeout_ms
        leader = self._leaders.known_leader
        return self._retry_log.due_warning(waiting, timeout_ms, now_ms) or (
            self._throttle_log.due_warning(waiting, leader, timeout_ms, now_ms)
        )

    @property
    def has_callbacks(self) -> bool:
        """True if ``take_callbacks`` returns futures. May be read without the lock."""
        return bool(self._futures_to_notify)

    def take_callbacks(self) -> list[SendFuture]:
        """Return the futures with callbacks that ended since the last call. Call them without the lock."""
        taken, self._futures_to_notify = self._futures_to_notify, []
        return taken

    def _retry_or_fail(
        self, batch: ProducerBatch, error: MinikafkaError, now_ms: int, *, has_leader: bool = False
    ) -> None:
        batch.may_be_appended = batch.may_be_appended or may_be_appended(error)
        if is_retriable(error):
            if not has_leader:
                self._leaders.invalidate(batch.topic_partition.topic)
            self._retry(batch, error, now_ms, at_once=has_leader and not self._counts_lookups)
        else:
            self._fail(batch, error)

    def _retry(
        self, batch: ProducerBatch, error: MinikafkaError, now_ms: int, *, at_once: bool = False
    ) -> None:
        group = batch.group
        group.failures += 1
        group.last_error = error
        group.must_move = group.movable and self._other_partition is not None
        self._retry_log.record_failure(batch.topic_partition, str(FailedAttempts.of(error)), now_ms)
        group.not_before_ms = now_ms if at_once else now_ms + self._backoff.delay_ms(group.failures)
        if group.failures > self._config.retries:
            self._fail_group(batch, error)
        elif group.not_before_ms >= batch.created_ms + self._config.delivery_timeout_ms:
            self._fail(batch, self._expiry_error(batch, now_ms))
        else:
            self.resends += 1
            self.metrics.record_retry(batch.topic_partition.topic, batch.count)
            self._accumulator.reenqueue(batch)

    def _split_or_fail(self, batch: ProducerBatch, code: ErrorCode, broker_id: int) -> None:
        may_split = batch.producer_sequence is None or not batch.may_be_appended
        halves = batch.split() if may_split else None
        if halves is not None:
            self._sequences.reclaim(batch)
            self._accumulator.reenqueue(batch, *halves)
            self.metrics.record_event(self.metrics.splits)
            return
        what, setting = "message" if batch.count == 1 else f"message set of {batch}", TOO_LARGE_SETTINGS[code]
        text = (
            f"{what} of {batch.size_bytes} bytes, with key and header, is too large for {setting} of topic "
            f"{batch.topic_partition.topic!r} on broker {broker_id}: make it smaller, or raise {setting}"
        )
        self._fail(batch, BrokerError(code, text))

    def _expiry_error(self, batch: ProducerBatch, now_ms: int) -> MinikafkaError:
        group = batch.group
        last = group.last_error
        if last is None or isinstance(last, NoResponse):
            last = self._waiting_cause(batch, now_ms) or last
        last = last or self._waiting_error or NetworkError(NO_LEADER_KNOWN)
        text = (
            f"{batch} not acknowledged within {self._config.delivery_timeout_ms} ms "
            f"after {group.failures} failed attempts"
        )
        error = FailedAttempts.of(last).network_error(text)
        error.__cause__ = group.last_error
        return error

    def _waiting_cause(self, batch: ProducerBatch, now_ms: int) -> NetworkError | None:
        """Return the reason why a batch whose leader is known was not sent."""
        leader = self._leaders.known_leader(batch.topic_partition)
        if leader is None:
            return None
        throttled = self._throttle_log.error(leader, now_ms)
        if throttled or batch.group.last_error or self._waiting_error:
            return throttled
        return NetworkError(f"it waited for responses of broker {leader} to earlier requests")

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch.group.failures = 0
        batch.produce_result.base_offset = base_offset
        batch.produce_result.log_append_time_ms = log_append_time_ms
        self._complete(batch)

    def _fail_unready(self, error: MinikafkaError, now_ms: int) -> None:
        ready = self._sequences.is_ready
        while unready := [batch for batch in self._accumulator.ready_batches(now_ms) if not ready(batch)]:
            for batch in unready:
                self._fail(batch, error)

    def _fail_group(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        """Fail ``batch`` and those of its group behind it, also later ones."""
        batch.group.error = error
        for failed in (batch, *self._accumulator.followers(batch)):
            self._fail(failed, error)

    def _fail(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        self._sequences.handle_failed_batch(batch, error)
        self.metrics.record_error(batch.topic_partition.topic, batch.count)
        batch.produce_result.error = error
        self._complete(batch)
        self._accumulator.condition.notify_all()

    def _complete(self, batch: ProducerBatch) -> None:
        self._retry_log.clear(batch.topic_partition)
        self._accumulator.deallocate(batch)
        for future in batch.futures:
            if future.has_callback:
                self._futures_to_notify.append(future)
        batch.produce_result.done = True  # last: after Ctrl-C before it, ``fail_task`` does all this again
