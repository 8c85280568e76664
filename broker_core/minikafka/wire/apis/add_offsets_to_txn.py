"""AddOffsetsToTxn: add the committed offsets of a group to a transaction.

Of Kafka 0.11. A producer sends it to its transaction coordinator before it sends the offsets to the group's
(TxnOffsetCommit). All versions have the same fields.
"""

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64


@fast_value
class AddOffsetsToTxnRequest:
    """The transaction, and the group whose offsets belong to it."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@fast_value
class AddOffsetsToTxnResponse:
    """The result."""

    throttle_time_ms: Int32
    error_code: Int16


ADD_OFFSETS_TO_TXN = Api(
    ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
)
