"""Writes exactly once: tasks stage their batches, and the driver publishes them in one transaction.

    tasks ─▶ staging topic ─▶ driver, in commit(): one transaction of the id of the sink
                                 the batches of the tasks that Spark has chosen ─▶ their topics
                                 the token {sink: batch}                        ─▶ the token topic

A task that dies, or runs twice, leaves batches that nobody copies. ``publisher`` has what happens when the
driver dies, and to batches that are too large for one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.batch_copier import StagedBatch
from minikafka.clients.produce.config import BatchingConfig, TransactionalConfig
from minikafka.clients.produce.transactional_producer import check_transactions
from pyspark_minikafka import cache
from pyspark_minikafka.checkpoint.spark_checkpoint import plan_of
from pyspark_minikafka.writing import staging_area
from pyspark_minikafka.writing.commit_token import CommitToken, is_settled
from pyspark_minikafka.writing.publisher import Publisher, no_transactions
from pyspark_minikafka.writing.staged import Staged

if TYPE_CHECKING:
    from pyspark_minikafka.location import Target
    from pyspark_minikafka.options.options import SinkOptions
    from pyspark_minikafka.writing.staging_area import StagingArea

_checked: set[tuple[str, TransactionalConfig]] = set()
"""The sinks whose cluster this process has found able to take them."""


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
        staging_area.create(cluster, self.area, config.max_request_bytes)
        if self.area.is_temporary:
            self._publisher(cluster).check()
            staging_area.drop_left(cluster)
            return
        left = staging_area.left(cluster, self.area, config.max_request_bytes)
        if left or key not in _checked or not self._is_settled(cluster):
            # First, so that no driver publishes what is deleted now.
            self._publisher(cluster).recover()
            _checked.add(key)
        staging_area.empty(cluster, self.area, left)

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
            token = CommitToken(batch_id, staged[0].query_id, rows, plan)
            self._publisher(cluster).publish(batches, token)
        self._clean_up(cluster, batches)

    def abort(self, messages: Sequence[object]) -> None:
        """Delete what the tasks have staged, as far as it is known; unless it is published in part."""
        staged = [message for message in messages if isinstance(message, Staged)]
        cluster = self._cluster()
        if self.area.is_temporary or self._is_settled(cluster):
            self._clean_up(cluster, [batch for message in staged for batch in message.batches])

    def _clean_up(self, cluster: ClusterClient, batches: Sequence[StagedBatch]) -> None:
        if self.area.is_temporary:
            staging_area.drop(cluster, [self.area.topic])
            return
        ends: dict[int, int] = {}
        for batch in batches:
            end = batch.offset + batch.count
            ends[batch.staging_partition] = max(end, ends.get(batch.staging_partition, 0))
        staging_area.empty(cluster, self.area, ends)

    def _is_settled(self, cluster: ClusterClient) -> bool:
        try:
            return is_settled(cluster, self.area.token, self.area.transactional_id)
        except MinikafkaError:
            return False

    def _check_transactions(self, cluster: ClusterClient) -> None:
        try:
            check_transactions(cluster)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise no_transactions(self.target.bootstrap_servers) from None

    def _publisher(self, cluster: ClusterClient) -> Publisher:
        return Publisher(cluster, self.area, self._config(), self.target.bootstrap_servers)

    def _cluster(self) -> ClusterClient:
        return cache.staging(self.target.bootstrap_servers, self.target.connection(self.options.connection))

    def _config(self) -> TransactionalConfig:
        given = {field.name: getattr(self.options.producer, field.name) for field in fields(BatchingConfig)}
        return TransactionalConfig(
            **{**given, "idempotence": True},
            transactional_id=self.area.transactional_id,
            transaction_timeout_ms=self.options.delivery.transaction_timeout_ms,
        )
