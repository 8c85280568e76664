"""TxnOffsetCommit: store offsets that a group commits in a transaction.

Of Kafka 0.11. A producer sends it to the group's coordinator; the offsets are visible once the transaction
is committed. Version 2: the leader epoch of the last record that was read; 3: the consumer's generation and
ids, so that one that has left the group is refused (KIP-447). Versions 1 and 4 have no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.offset_commit import NO_GENERATION
from minikafka.wire.fields import Int16, Int32, Int64, since


@fast_value
class TxnOffsetCommitRequestPartition:
    """The next offset to read."""

    partition_index: Int32
    committed_offset: Annotated[Int64, "of the next record to read"]
    committed_leader_epoch: Annotated[Int32, since(2, default=-1), "-1: unknown"] = field(
        default=-1, kw_only=True
    )
    committed_metadata: str | None


@fast_value
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@fast_value
class TxnOffsetCommitRequest:
    """The offsets to commit. ``generation_id`` is -1 and ``member_id`` empty for a consumer that assigns its
    partitions itself, and for producers before version 3.
    """

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3, default=NO_GENERATION), "-1 without group management"] = field(
        default=NO_GENERATION, kw_only=True
    )
    member_id: Annotated[str, since(3, default="")] = field(default="", kw_only=True)
    group_instance_id: Annotated[str | None, since(3), "of a static member"] = field(
        default=None, kw_only=True
    )
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


@fast_value
class TxnOffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16


@fast_value
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@fast_value
class TxnOffsetCommitResponse:
    """The results, in the order of the request."""

    throttle_time_ms: Int32
    topics: tuple[TxnOffsetCommitResponseTopic, ...]


TXN_OFFSET_COMMIT = Api(
    ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 4, TxnOffsetCommitRequest, TxnOffsetCommitResponse
)
