"""AddPartitionsToTxn: add partitions to transactions, or ask whether they are in them.

Of Kafka 0.11. A producer sends it to its transaction coordinator before it writes to a partition. Version 4
is for brokers: several transactions, and ``verify_only``, by which the leader of a partition learns whether
its transaction is open (KIP-890). Versions 1, 2, 3 and 5 have no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since, until


@fast_value
class AddPartitionsToTxnTopic:
    """The partitions of one topic to add."""

    name: str
    partitions: tuple[Int32, ...]


@fast_value
class AddPartitionsToTxnTransaction:
    """The partitions of one transaction to add, or to verify. Since version 4."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Annotated[bool, "add none"]
    topics: tuple[AddPartitionsToTxnTopic, ...]


@fast_value
class AddPartitionsToTxnRequest:
    """The partitions to add: to the transaction of one id, or from version 4 on to those of
    ``transactions``.
    """

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], since(4)] = field(
        default=(), kw_only=True
    )
    transactional_id: Annotated[str, until(3)] = ""
    producer_id: Annotated[Int64, until(3)] = 0
    producer_epoch: Annotated[Int16, until(3)] = 0
    topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], until(3)] = ()


@fast_value
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16


@fast_value
class AddPartitionsToTxnTopicResult:
    """The results for the partitions of one topic."""

    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


@fast_value
class AddPartitionsToTxnResult:
    """The results for one transaction. Since version 4."""

    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


@fast_value
class AddPartitionsToTxnResponse:
    """The results, in the order of the request. ``error_code`` is that of the whole request."""

    throttle_time_ms: Int32
    error_code: Annotated[Int16, since(4, default=0), "of the whole request"] = field(default=0, kw_only=True)
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], since(4)] = field(
        default=(), kw_only=True
    )
    results_by_topic: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], until(3)] = ()


ADD_PARTITIONS_TO_TXN = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "AddPartitionsToTxn",
    0,
    5,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
