"""OffsetDelete: delete committed offsets of a group, of topics that it does not consume (KIP-496).

Version 0 is the only one.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32


@fast_value
class OffsetDeleteRequestPartition:
    """A partition whose offset is to be deleted."""

    partition_index: Int32


@fast_value
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


@fast_value
class OffsetDeleteRequest:
    """The offsets to delete."""

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


@fast_value
class OffsetDeleteResponsePartition:
    """The result for one offset; GROUP_SUBSCRIBED_TO_TOPIC if a member consumes the topic."""

    partition_index: Int32
    error_code: Int16


@fast_value
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@fast_value
class OffsetDeleteResponse:
    """The results. With an error of the group there are none."""

    error_code: Annotated[Int16, "of the whole group"]
    throttle_time_ms: Int32
    topics: tuple[OffsetDeleteResponseTopic, ...]


OFFSET_DELETE = Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, OffsetDeleteRequest, OffsetDeleteResponse)
