"""``kafka.producer.SyncProducer``: produce requests to one broker at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.response_errors import (
    NOT_ENOUGH_REPLICAS_CODES,
    authorization_hint,
    not_enough_replicas_hint,
)
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.producer import MAGIC_2_SINCE, ZSTD_SINCE, magic_for_version
from minikafka.records.format.message_set import Codec
from minikafka.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)


class PendingProduce:
    """A produce request in flight."""

    def __init__(
        self,
        cluster: ClusterClient,
        broker_id: int,
        partitions: Iterable[TopicPartition],
        reply: ResponseFuture[ProduceResponse] | None,
    ) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._partitions = tuple(partitions)
        self._reply = reply

    def result(self, timeout_ms: int) -> dict[TopicPartition, MinikafkaError | None]:
        """Return the error of each partition; None if the broker accepted its records, or with acks 0."""
        if self._reply is None:
            return dict.fromkeys(self._partitions)
        try:
            response = self._reply.result(timeout_ms)
        except MinikafkaError as error:
            return dict.fromkeys(self._partitions, error)
        codes = {
            TopicPartition(topic.name, part.index): ErrorCode.of(part.error_code)
            for topic in response.topics
            for part in topic.partitions
        }
        return {tp: self._error(tp, codes.get(tp)) for tp in self._partitions}

    def _error(self, tp: TopicPartition, code: ErrorCode | None) -> MinikafkaError | None:
        if code is ErrorCode.NONE:
            return None
        if code is None:
            return NetworkError(f"broker {self._broker_id} left {tp} out of its response")
        replicas_hint = (
            not_enough_replicas_hint(self._cluster.known_in_sync(tp))
            if code in NOT_ENOUGH_REPLICAS_CODES
            else ""
        )
        acl_hint = authorization_hint(code, "Write", f"Topic:{tp.topic}")
        return BrokerError(
            code, f"broker {self._broker_id} refused records for {tp}{replicas_hint}{acl_hint}"
        )


class SyncProducer:
    """Sends records to a given broker in one attempt; the caller finds the leader. For one thread at a time.

    acks: 0, 1 or -1. timeout_ms: ``request.timeout.ms``.
    """

    def __init__(self, cluster: ClusterClient, *, acks: int, timeout_ms: int) -> None:
        self._cluster = cluster
        self._acks = acks
        self._timeout_ms = timeout_ms

    def magic(self, broker_id: int, codec: Codec) -> int:
        """Return the newest format that the broker accepts, connecting if needed. Raises NetworkError if it
        cannot be reached, BrokerError if it does not know the codec.
        """
        version = self._produce_version(broker_id, self._cluster.deadline(self._timeout_ms))
        if codec is Codec.ZSTD and version < ZSTD_SINCE:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"broker {broker_id} does not support compression.codec zstd, which needs Kafka 2.1",
            )
        return magic_for_version(version)

    def send(self, broker_id: int, records: Mapping[TopicPartition, Buffer], magic: int) -> PendingProduce:
        """Send records in the format ``magic`` for each partition, without waiting for the response.

        Raises NetworkError if the broker cannot be reached.
        """
        topics: dict[str, list[ProducePartition]] = {}
        for tp, data in records.items():
            topics.setdefault(tp.topic, []).append(ProducePartition(index=tp.partition, records=data))
        request = ProduceRequest(
            transactional_id=None,
            acks=self._acks,
            # A little less than the client's timeout, so that the response still arrives.
            timeout_ms=self._timeout_ms - self._timeout_ms // 10,
            topics=tuple(ProduceTopic(name, tuple(partitions)) for name, partitions in topics.items()),
        )

        def of_version(version: int) -> ProduceRequest:
            if magic_for_version(version) != magic:
                raise NetworkError(f"broker {broker_id} was restarted with another Produce version")
            return request

        connection = self._cluster.connection(broker_id, ConnectionPool.PRODUCE)
        deadline = self._cluster.deadline(self._timeout_ms)
        newest = None if magic == magic_for_version(MAGIC_2_SINCE) else MAGIC_2_SINCE - 1
        if self._acks == 0:
            connection.send_without_response(PRODUCE, of_version, deadline, newest)
            return PendingProduce(self._cluster, broker_id, records, None)
        reply = connection.send(PRODUCE, of_version, deadline, newest)
        return PendingProduce(self._cluster, broker_id, records, reply)

    def _produce_version(self, broker_id: int, deadline: Deadline) -> int:
        return self._cluster.connection(broker_id, ConnectionPool.PRODUCE).version(PRODUCE, deadline)
