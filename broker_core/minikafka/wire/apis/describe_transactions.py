"""DescribeTransactions: the state and the partitions of transactions.

Of Kafka 3.0. Sent to the transaction coordinator of each id.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64


@fast_value
class DescribeTransactionsRequest:
    """The ids of the transactions."""

    transactional_ids: tuple[str, ...]


@fast_value
class DescribedTransactionTopic:
    """The partitions of one topic in a transaction."""

    topic: str
    partitions: tuple[Int32, ...]


@fast_value
class DescribedTransaction:
    """The transaction of an id. ``transaction_state``: Empty, Ongoing, PrepareCommit, PrepareAbort,
    CompleteCommit, CompleteAbort, PrepareEpochFence or Dead.
    """

    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Annotated[Int64, "ms since the epoch; -1: not ongoing"]
    producer_id: Int64
    producer_epoch: Int16
    topics: tuple[DescribedTransactionTopic, ...]


@fast_value
class DescribeTransactionsResponse:
    """The transactions of the ids in the request."""

    throttle_time_ms: Int32
    transaction_states: tuple[DescribedTransaction, ...]


DESCRIBE_TRANSACTIONS = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    "DescribeTransactions",
    0,
    0,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
