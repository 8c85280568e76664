"""DescribeProducers: the idempotent and transactional producers of partitions.

Of Kafka 2.8. Sent to the leaders of the partitions.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64


@fast_value
class DescribeProducersTopic:
    """The partitions of a topic whose producers are requested."""

    name: str
    partition_indexes: tuple[Int32, ...]


@fast_value
class DescribeProducersRequest:
    """A request for the producers of partitions."""

    topics: tuple[DescribeProducersTopic, ...]


@fast_value
class ActiveProducer:
    """A producer that has written to a partition and has not expired. -1: there is none, or it is unknown."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32
    last_timestamp: Annotated[Int64, "ms since the epoch, of its last batch"]
    coordinator_epoch: Int32
    current_txn_start_offset: Int64


@fast_value
class DescribeProducersPartition:
    """The producers of a partition."""

    index: Int32
    error_code: Int16
    error_message: str | None
    active_producers: tuple[ActiveProducer, ...]


@fast_value
class DescribeProducersTopicResult:
    """The partitions of a topic."""

    name: str
    partitions: tuple[DescribeProducersPartition, ...]


@fast_value
class DescribeProducersResponse:
    """The producers of the partitions of the request."""

    throttle_time_ms: Int32
    topics: tuple[DescribeProducersTopicResult, ...]


DESCRIBE_PRODUCERS = Api(
    ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, DescribeProducersRequest, DescribeProducersResponse
)
