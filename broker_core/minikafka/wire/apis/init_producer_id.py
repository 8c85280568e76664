"""InitProducerId: an id for an idempotent or a transactional producer.

Without a transactional id it is sent to any broker, with one to the transaction coordinator. Version 1 is the
same.
"""

from __future__ import annotations

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.schema import INT16, INT32, INT64, NULLABLE_STRING, Struct, field

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@fast_value
class InitProducerIdRequest:
    """A request for a producer id. Without ``transactional_id``, ``transaction_timeout_ms`` has no effect."""

    transactional_id: str | None
    transaction_timeout_ms: int


@fast_value
class InitProducerIdResponse:
    """The producer's id and epoch; both are -1 with an error."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


INIT_PRODUCER_ID = Api(
    ApiKey.INIT_PRODUCER_ID,
    "InitProducerId",
    0,
    1,
    request=Struct(
        InitProducerIdRequest,
        field("transactional_id", NULLABLE_STRING, "null: idempotent only"),
        field("transaction_timeout_ms", INT32),
    ),
    response=Struct(
        InitProducerIdResponse,
        field("throttle_time_ms", INT32),
        field("error_code", INT16),
        field("producer_id", INT64, "-1 with an error"),
        field("producer_epoch", INT16, "-1 with an error"),
    ),
)
