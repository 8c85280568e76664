"""DeleteTopics: delete topics by name, or by id.

Sent to the controller; any other broker answers NOT_CONTROLLER. Version 1: throttle_time_ms; 3 has the error
TOPIC_DELETION_DISABLED for brokers on which deletion is switched off; 5: error messages; 6: topic ids.
Versions 2 and 4 have no new fields.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import ZERO_UUID, Int16, Int32, Uuid, since, until


@fast_value
class DeleteTopicState:
    """A topic to delete, by its name, or by its id without a name."""

    name: Annotated[str | None, "null: by id"]
    topic_id: Uuid = ZERO_UUID


@fast_value
class DeleteTopicsRequest:
    """A request to delete topics: ``topic_names``, or from version 6 on ``topics``. ``timeout_ms``: the time
    to wait for it; 0 or less does not wait.
    """

    topics: Annotated[tuple[DeleteTopicState, ...], since(6)] = field(default=(), kw_only=True)
    topic_names: Annotated[tuple[str, ...], until(5, default=())]
    timeout_ms: Int32


def delete_topics_request(names: Sequence[str], timeout_ms: int) -> DeleteTopicsRequest:
    """Return a request for topics by name, in every version."""
    return DeleteTopicsRequest(tuple(names), timeout_ms, topics=tuple(map(DeleteTopicState, names)))


@fast_value
class DeletableTopicResult:
    """The result for one topic."""

    name: Annotated[str | None, since(6, earlier=str), "null: an unknown id"]
    topic_id: Annotated[Uuid, since(6)] = field(default=ZERO_UUID, kw_only=True)
    error_code: Int16
    error_message: Annotated[str | None, since(5)] = None


@fast_value
class DeleteTopicsResponse:
    """The results for the topics, in no particular order."""

    throttle_time_ms: Annotated[Int32, since(1, default=0)]
    topics: tuple[DeletableTopicResult, ...]


DELETE_TOPICS = Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6, DeleteTopicsRequest, DeleteTopicsResponse)
