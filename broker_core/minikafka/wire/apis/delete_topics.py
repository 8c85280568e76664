"""DeleteTopics: delete topics by name.

Sent to the controller; any other broker answers NOT_CONTROLLER. Version 1: throttle_time_ms; 2 is the same; 3
has the error TOPIC_DELETION_DISABLED for brokers on which deletion is switched off.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since


@fast_value
class DeleteTopicsRequest:
    """A request to delete topics. ``timeout_ms``: the time to wait for it; 0 or less does not wait."""

    topic_names: tuple[str, ...]
    timeout_ms: Int32


@fast_value
class DeletableTopicResult:
    """The result for one topic."""

    name: str
    error_code: Int16


@fast_value
class DeleteTopicsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    topics: tuple[DeletableTopicResult, ...]


DELETE_TOPICS = Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 3, DeleteTopicsRequest, DeleteTopicsResponse)
