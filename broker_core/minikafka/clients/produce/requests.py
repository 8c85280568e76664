"""The tasks of a ``Sender``, the request of a ``ProduceTask``, and what its response says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode, LocalWireError, MinikafkaError
from minikafka.base.files import Buffer
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.base.text import first_of, shorten
from minikafka.clients.network.metadata import NO_LEADER, LeaderAndEpoch
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.wire.apis.copy_batches import CopyBatchesRequest, CopyPartition, CopyTopic
from minikafka.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    RecordError,
)

if TYPE_CHECKING:
    from minikafka.clients.produce.transaction_requests import Operation

SHOWN_RECORDS_MAX = 3
"""The limit of refused records that a message lists."""
COPY_BYTES = 2 << 20
"""The size of batches that a broker copies for one request: a few milliseconds of its work."""
TOO_LARGE_SETTINGS = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""The topic setting that a batch of each code exceeds."""
SENT_INSTEAD = frozenset(
    {
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CORRUPT_MESSAGE,
        *TOO_LARGE_SETTINGS,
    }
)
"""The errors after which a batch is sent that its leader was to copy."""
CODE_HINTS = {
    ErrorCode.CORRUPT_MESSAGE: "; also the error for a record without a key in a compacted topic",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "; the leader has lost acknowledged records, as after an "
    "unclean election",
    ErrorCode.KAFKA_STORAGE_ERROR: "; its disk failed or is full, or a directory is missing: see the log "
    "of the broker",
}
"""The hints in the error of a batch, by code."""
_NOT_APPENDED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_ENOUGH_REPLICAS})
"""Retriable codes that brokers send only before an append. All others may come while an append waits for
replicas."""


@dataclass(frozen=True, slots=True)
class MetadataTask:
    """A metadata request for these topics."""

    topics: tuple[str, ...]

    def __str__(self) -> str:
        return f"a metadata request for {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class InitProducerIdTask:
    """A request to any broker for a producer id."""

    def __str__(self) -> str:
        return "a request for a producer id"


@dataclass(frozen=True, slots=True, eq=False)
class ProduceTask:
    """One Produce request: the batches, one per partition, for one broker."""

    broker_id: int
    batches: tuple[ProducerBatch, ...]

    @property
    def is_copy(self) -> bool:
        """True for a CopyBatches request instead."""
        return bool(self.batches) and self.batches[0].source is not None

    def without(self, batch: ProducerBatch) -> ProduceTask:
        """Return the same request without one batch."""
        return replace(self, batches=tuple(b for b in self.batches if b is not batch))

    def __str__(self) -> str:
        return f"a produce request to broker {self.broker_id}"


@dataclass(frozen=True, slots=True, eq=False)
class TransactionTask:
    """A request of a transactional producer, to a coordinator or (None) to any broker."""

    operation: Operation
    coordinator: BrokerAddress | None = None

    def __str__(self) -> str:
        return f"{self.operation} to {self.coordinator or 'any broker'}"


Task = ProduceTask | MetadataTask | InitProducerIdTask | TransactionTask


def fit_together(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Return True if two batches may be in one request. It has one API and one version, and batches keep
    their format.
    """
    return one.is_legacy is other.is_legacy and (one.source is None) is (other.source is None)


def produce_request(
    task: ProduceTask, sets: list[Buffer], acks: int, timeout_ms: int, transactional_id: str | None = None
) -> ProduceRequest:
    """Return the request for a task whose batches were encoded to ``sets``, in the same order."""
    topics: dict[str, list[ProducePartition]] = {}
    for batch, data in zip(task.batches, sets, strict=True):
        tp = batch.topic_partition
        topics.setdefault(tp.topic, []).append(ProducePartition(index=tp.partition, records=data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topics=tuple(
            ProduceTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
        ),
    )


def copy_request(
    task: ProduceTask, acks: int, timeout_ms: int, transactional_id: str | None
) -> CopyBatchesRequest:
    """Return the request for a task whose batches the leader copies."""
    assert transactional_id is not None
    topics: dict[str, list[CopyPartition]] = {}
    for batch in task.batches:
        tp, source, sequence = batch.topic_partition, batch.source, batch.producer_sequence
        assert source is not None
        assert sequence is not None
        row = CopyPartition(
            tp.partition,
            *source.at,
            source.offset,
            source.sent_header,
            sequence.producer_id,
            sequence.producer_epoch,
            sequence.base_sequence,
        )
        topics.setdefault(tp.topic, []).append(row)
    rows = tuple(CopyTopic(name, tuple(partitions)) for name, partitions in topics.items())
    return CopyBatchesRequest(transactional_id, acks, timeout_ms, rows)


def new_leaders(response: ProduceResponse, broker_id: int) -> dict[TopicPartition, LeaderAndEpoch]:
    """Return the leaders that a broker names in place of itself."""
    return {
        TopicPartition(topic.name, part.index): LeaderAndEpoch(leader.leader_id, leader.leader_epoch)
        for topic in response.topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
        and (leader := part.current_leader).leader_id not in (NO_LEADER, broker_id)
    }


def refusal_text(result: ProducePartitionResponse) -> str:
    """Return the reason that a broker gives, for messages; records are numbered from 0 in their batch."""
    refused = [f"record {row.batch_index}: {_why_refused(row, result)}" for row in result.record_errors]
    if refused:
        return f": {shorten(first_of(refused, SHOWN_RECORDS_MAX))}"
    return f": {shorten(result.error_message)}" if result.error_message else ""


def _why_refused(row: RecordError, result: ProducePartitionResponse) -> str:
    return row.batch_index_error_message or result.error_message or "invalid"


def record_errors(
    batch: ProducerBatch, result: ProducePartitionResponse, broker_id: int
) -> dict[int, MinikafkaError]:
    """Return the errors of the records that a broker refuses, by their numbers in ``batch``."""
    only_one = len(result.record_errors) == 1  # the code of the batch is about all of them
    code = ErrorCode.of(result.error_code) if only_one else ErrorCode.INVALID_RECORD
    return {
        row.batch_index: BrokerError(
            code,
            f"broker {broker_id} rejected record {row.batch_index} (the first is 0) of {batch}: "
            f"{shorten(_why_refused(row, result))}",
        )
        for row in result.record_errors
    }


def may_be_appended(error: MinikafkaError) -> bool:
    """Return True if a broker may have appended the batch of an attempt that ended with ``error``."""
    if isinstance(error, AuthenticationFailed):
        return False
    if isinstance(error, BrokerError):
        return (error.is_retriable or error.code is ErrorCode.UNKNOWN) and error.code not in _NOT_APPENDED
    return not isinstance(error, LocalWireError)
