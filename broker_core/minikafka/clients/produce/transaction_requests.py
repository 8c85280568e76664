"""The requests of a transactional producer, as values, and on the wire; and the outcomes of their responses.

    FindCoordinator     to any broker: the coordinator of the transactional id, or of a group
    InitProducerId      the producer's id, or its next epoch; ends what an earlier one has left open
    AddPartitions       the partitions of a transaction, before the first batch to each (AddPartitionsToTxn)
    AddOffsets          the group whose offsets the transaction commits (AddOffsetsToTxn)
    CommitOffsets       these offsets, to the coordinator of the group (TxnOffsetCommit)
    EndTransaction      commit or abort (EndTxn)

An outcome is what a response says, or the error of a request that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import (
    BrokerAddress,
    ProducerIdAndEpoch,
    TopicPartition,
    numbers_by_topic,
    rows_by_topic,
)
from minikafka.clients.group.offsets import GroupMetadata, Offsets
from minikafka.wire.api import Api
from minikafka.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from minikafka.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from minikafka.wire.apis.end_txn import END_TXN, EndTxnRequest
from minikafka.wire.apis.find_coordinator import CoordinatorType
from minikafka.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from minikafka.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

MEMBERS_SINCE = 3
"""The first version of TxnOffsetCommit with generations and members (KIP-447)."""


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the coordinator of a transactional id or group."""

    type: CoordinatorType
    key: str

    def __str__(self) -> str:
        return f"FindCoordinator for {self.type.name.lower()} {self.key!r}"


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Get a producer id, or (``producer``) the next epoch of the one that this producer has."""

    producer: ProducerIdAndEpoch

    def __str__(self) -> str:
        return "InitProducerId"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Add partitions to the transaction."""

    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return "AddPartitionsToTxn"


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Add the offsets of a group to the transaction."""

    producer: ProducerIdAndEpoch
    group_id: str

    def __str__(self) -> str:
        return "AddOffsetsToTxn"


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit offsets of a group in the transaction."""

    producer: ProducerIdAndEpoch
    group: GroupMetadata
    offsets: Offsets

    def __str__(self) -> str:
        return "TxnOffsetCommit"


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Commit the transaction, or abort it."""

    producer: ProducerIdAndEpoch
    committed: bool

    def __str__(self) -> str:
        return f"EndTxn ({'commit' if self.committed else 'abort'})"


Operation = FindCoordinator | InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTransaction
Codes = Mapping[TopicPartition, ErrorCode]
Outcome = BrokerAddress | ProducerIdAndEpoch | Codes | MinikafkaError | None
"""The coordinator; the identity; the code of each partition; nothing; or the error."""

APIS: dict[type[Any], Api[Any, Any]] = {
    InitProducerId: INIT_PRODUCER_ID,
    AddPartitions: ADD_PARTITIONS_TO_TXN,
    AddOffsets: ADD_OFFSETS_TO_TXN,
    CommitOffsets: TXN_OFFSET_COMMIT,
    EndTransaction: END_TXN,
}
"""Operation -> API, except for FindCoordinator."""


def request_of(operation: Operation, transactional_id: str, timeout_ms: int) -> Callable[[int], Any]:
    """Return what makes the request of an operation in any version. ``timeout_ms``: of transactions."""
    match operation:
        case InitProducerId(producer):
            request: Any = InitProducerIdRequest(transactional_id, timeout_ms, *producer)
        case AddPartitions(producer, partitions):
            topics = numbers_by_topic(partitions).items()
            rows = tuple(AddPartitionsToTxnTopic(name, tuple(numbers)) for name, numbers in topics)
            request = AddPartitionsToTxnRequest(transactional_id, *producer, rows)
        case AddOffsets(producer, group_id):
            request = AddOffsetsToTxnRequest(transactional_id, *producer, group_id)
        case CommitOffsets():
            return lambda version: _offsets_request(operation, transactional_id, version)
        case EndTransaction(producer, committed):
            request = EndTxnRequest(transactional_id, *producer, committed)
        case _:
            raise AssertionError(operation)
    return lambda _: request


def _offsets_request(operation: CommitOffsets, transactional_id: str, version: int) -> TxnOffsetCommitRequest:
    group = operation.group
    if version < MEMBERS_SINCE and group.member_id:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"cannot commit offsets as a member of group {group.group_id!r}: its coordinator has "
            f"TxnOffsetCommit up to version {version}, and members need {MEMBERS_SINCE} (Kafka 2.5); give "
            "the group id alone, and use one transactional.id for each input partition",
        )
    topics = rows_by_topic(
        (tp, TxnOffsetCommitRequestPartition(tp.partition, committed.offset, committed.metadata))
        for tp, committed in operation.offsets.items()
    )
    return TxnOffsetCommitRequest(
        transactional_id,
        group.group_id,
        *operation.producer,
        tuple(TxnOffsetCommitRequestTopic(name, tuple(rows)) for name, rows in topics.items()),
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
    )


def outcome_of(operation: Operation, response: Any) -> Outcome:
    """Return the outcome of an operation, given the response to its request."""
    if isinstance(response, AddPartitionsToTxnResponse):
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
            for topic in response.results_by_topic
            for row in topic.results_by_partition
        }
    if isinstance(response, TxnOffsetCommitResponse):
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.error_code)
            for topic in response.topics
            for row in topic.partitions
        }
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        return BrokerError(code, str(operation))
    if isinstance(operation, InitProducerId):
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    return None
