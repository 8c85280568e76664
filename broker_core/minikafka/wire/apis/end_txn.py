"""EndTxn: commit or abort a transaction.

Of Kafka 0.11. A producer sends it to its transaction coordinator, which answers as soon as the outcome is
stored. All versions have the same fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64


@fast_value
class EndTxnRequest:
    """The transaction and its outcome."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: Annotated[bool, "false: aborted"]


@fast_value
class EndTxnResponse:
    """The result."""

    throttle_time_ms: Int32
    error_code: Int16


END_TXN = Api(ApiKey.END_TXN, "EndTxn", 0, 4, EndTxnRequest, EndTxnResponse)
