"""InitProducerId: an id for an idempotent or a transactional producer.

Without a transactional id it is sent to any broker, with one to the transaction coordinator. Version 3: a
producer keeps its id and gets the next epoch. Versions 1, 2, 4 and 5 have no new fields.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@fast_value
class InitProducerIdRequest:
    """A request for a producer id. Without ``transactional_id``, ``transaction_timeout_ms`` has no effect."""

    transactional_id: Annotated[str | None, "null: idempotent only"]
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3), "-1: a new one"] = NO_PRODUCER_ID
    producer_epoch: Annotated[Int16, since(3), "-1: a new one"] = NO_PRODUCER_EPOCH


@fast_value
class InitProducerIdResponse:
    """The producer's id and epoch; both are -1 with an error."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Annotated[Int64, "-1 with an error"]
    producer_epoch: Annotated[Int16, "-1 with an error"]


INIT_PRODUCER_ID = Api(
    ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, InitProducerIdRequest, InitProducerIdResponse
)
