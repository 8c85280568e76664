"""Writes exactly once: tasks stage their batches, and the driver publishes them in one transaction.

    tasks ─▶ staging topic ─▶ driver, in commit(): one transaction of the id of the sink
                                 the batches of the tasks that Spark has chosen ─▶ their topics
                                 the token {sink: batch}                        ─▶ the token topic

Steps of the driver
    ``init_transactions`` fences an earlier driver and ends its transaction. The token then says whether this
    batch is committed already. If not, batches and token are written, and committed together.
Failures
    A task that dies, or runs twice, leaves batches that nobody copies. The transaction of a driver that dies
    is aborted by the next one, or by its time-out. After an error whose outcome is unknown the steps begin
    again, so the token decides. A driver that was fenced by another one stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    ProducerFenced,
    TransactionAbortable,
)
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.produce.batch_copier import StagedBatch, copy
from minikafka.clients.produce.config import BatchingConfig, TransactionalConfig
from minikafka.clients.produce.transactional_producer import TransactionalProducer, check_transactions
from pyspark_minikafka import cache, report
from pyspark_minikafka.checkpoint.spark_checkpoint import plan_of
from pyspark_minikafka.options.delivery_options import DELIVERY, TRANSACTION_TIMEOUT
from pyspark_minikafka.writing import staging_area
from pyspark_minikafka.writing.commit_token import CommitToken, is_committed, read_token
from pyspark_minikafka.writing.staged import Staged

if TYPE_CHECKING:
    from pyspark_minikafka.location import Target
    from pyspark_minikafka.options.options import SinkOptions
    from pyspark_minikafka.writing.staging_area import StagingArea

ATTEMPTS = 3
"""How often a batch is published before its error ends the query."""
_checked: set[tuple[str, TransactionalConfig]] = set()
"""The sinks whose cluster this process has found able to take them."""


class Unsupported(MinikafkaError):
    """The cluster does not allow writes exactly once."""


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The driver's side of a write exactly once."""

    options: SinkOptions
    target: Target
    area: StagingArea

    def prepare(self) -> None:
        """Before the tasks start: refuse what the cluster does not support, make the private topics, and
        delete what earlier attempts have left in them. Raise Unsupported, or the error of the brokers.
        """
        cluster = self._cluster()
        config = self._config()
        key = (self.target.bootstrap_servers, config)
        if key not in _checked:
            self._check_transactions(cluster)
        staging_area.make_ready(cluster, self.area, config.max_request_bytes)
        if key not in _checked:
            with TransactionalProducer(cluster, config) as producer:
                self._init(producer)
            if self.area.is_temporary:
                staging_area.drop_left(cluster)
            else:
                _checked.add(key)

    def commit(self, messages: Sequence[object], batch_id: int) -> None:
        """Publish the batches of ``messages``, the results of the tasks, unless they are already. Raise
        TokenMismatch, StagedRowsLost, ProducerFenced, or the error of the brokers.
        """
        staged = [message for message in messages if isinstance(message, Staged)]
        batches = [batch for message in staged for batch in message.batches]
        cluster = self._cluster()
        if batches:
            rows = sum(message.rows for message in staged)
            checkpoint = self.options.delivery.checkpoint
            plan = None if checkpoint is None else plan_of(checkpoint, batch_id)
            self._publish(cluster, batches, CommitToken(batch_id, staged[0].query_id, rows, plan))
        self._clean_up(cluster, batches)

    def abort(self, messages: Sequence[object]) -> None:
        """Delete what the tasks have staged, as far as it is known."""
        staged = [message for message in messages if isinstance(message, Staged)]
        self._clean_up(self._cluster(), [batch for message in staged for batch in message.batches])

    def _publish(self, cluster: ClusterClient, batches: list[StagedBatch], token: CommitToken) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            started_ms = cluster.clock.monotonic_ms()
            try:
                with TransactionalProducer(cluster, self._config()) as producer:
                    self._init(producer)
                    found = read_token(cluster, self.area.token, self.area.transactional_id)
                    if is_committed(found, token, self.area.transactional_id):
                        report.note(
                            f"batch {token.batch} was committed before, nothing is written", shown=False
                        )
                        return
                    self._copy(cluster, producer, batches, token)
                    return
            except (BrokerError, NetworkError) as problem:
                took_ms = cluster.clock.monotonic_ms() - started_ms
                if attempt == ATTEMPTS or not self._may_retry(problem, took_ms):
                    raise self._explained(problem, took_ms) from problem
                report.warn([f"publishing batch {token.batch} again, after an error: {problem}"])

    def _copy(
        self,
        cluster: ClusterClient,
        producer: TransactionalProducer,
        batches: list[StagedBatch],
        token: CommitToken,
    ) -> None:
        timeout_ms = self.options.delivery.transaction_timeout_ms
        producer.begin()
        copy(cluster, producer, self.area.topic, batches, min(timeout_ms, 120_000))
        at = self.area.token
        key = self.area.transactional_id.encode()
        producer.send(at.topic, token.to_bytes(), key=key, partition=at.partition)
        producer.commit(timeout_ms=timeout_ms)

    def _clean_up(self, cluster: ClusterClient, batches: Sequence[StagedBatch]) -> None:
        if self.area.is_temporary:
            staging_area.drop(cluster, [self.area.topic])
            return
        ends: dict[int, int] = {}
        for batch in batches:
            end = batch.offset + batch.count
            ends[batch.staging_partition] = max(end, ends.get(batch.staging_partition, 0))
        staging_area.empty(cluster, self.area, ends)

    def _may_retry(self, problem: MinikafkaError, took_ms: int) -> bool:
        """Return True if another attempt may succeed where this one has failed."""
        if isinstance(problem, ProducerFenced):
            # By its own time-out, or by another driver meanwhile, which the token will tell.
            return took_ms >= self.options.delivery.transaction_timeout_ms
        if isinstance(problem, TransactionAbortable):
            cause = problem.__cause__
            return not isinstance(cause, MinikafkaError) or is_retriable(cause)
        return is_retriable(problem)

    def _explained(self, problem: MinikafkaError, took_ms: int) -> MinikafkaError:
        if not isinstance(problem, ProducerFenced):
            return problem
        timeout_ms = self.options.delivery.transaction_timeout_ms
        if took_ms >= timeout_ms:
            return ProducerFenced(
                problem.code,
                f"the batch could not be copied within {TRANSACTION_TIMEOUT}={timeout_ms}; make batches "
                "smaller (maxOffsetsPerTrigger of the source), or raise it up to the brokers' "
                f"transaction.max.timeout.ms. {problem.detail}",
            )
        return ProducerFenced(
            problem.code,
            f"another query has started with minikafka.sink.id={self.area.transactional_id}, so this one "
            f"stops; give each query an id of its own. {problem.detail}",
        )

    def _init(self, producer: TransactionalProducer) -> None:
        try:
            producer.init_transactions()
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise Unsupported(
                    f"{TRANSACTION_TIMEOUT}={producer.config.transaction_timeout_ms} is more than the "
                    "brokers allow (their transaction.max.timeout.ms); lower it"
                ) from None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise self._no_transactions() from None
            raise

    def _check_transactions(self, cluster: ClusterClient) -> None:
        try:
            check_transactions(cluster)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise self._no_transactions() from None

    def _no_transactions(self) -> Unsupported:
        return Unsupported(
            f"{DELIVERY}=exactly-once is not possible here: the brokers of {self.target.bootstrap_servers} "
            "have no transactions. Apache Kafka has them since 0.11, and minikafka's brokers unless they are "
            "in a cluster with 0.10.1; use at-least-once"
        )

    def _cluster(self) -> ClusterClient:
        return cache.staging(self.target.bootstrap_servers, self.target.connection(self.options.connection))

    def _config(self) -> TransactionalConfig:
        given = {field.name: getattr(self.options.producer, field.name) for field in fields(BatchingConfig)}
        return TransactionalConfig(
            **{**given, "idempotence": True},
            transactional_id=self.area.transactional_id,
            transaction_timeout_ms=self.options.delivery.transaction_timeout_ms,
        )
