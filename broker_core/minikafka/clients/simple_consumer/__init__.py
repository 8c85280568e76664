"""The low-level consumer of the reference texts: one broker, no group, and an offset in every request.

    with SimpleConsumer("localhost", 9092) as consumer:
        for message in consumer.fetch(FetchRequest("t", 0, offset=0, max_size=1 << 20)):
            print(message.offset, message.value)

It sends requests only to its own broker, and does not look for leaders. With ``classic=True`` it uses the
texts' own protocol (``minikafka.wire.classic``) with a CLASSIC listener; otherwise Kafka's, with any broker
since Kafka 0.10. If the connection breaks, a call reconnects once.

    simple_consumer   SimpleConsumer
    channels          the connection to the broker, in either protocol
    requests          requests, and responses without messages
    fetch_response    fetched messages, and the iterator that reads on
"""

from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.offsets import Committed
from minikafka.clients.simple_consumer.fetch_response import (
    FetchedMessages,
    MessageIterator,
    MultiFetchResponse,
)
from minikafka.clients.simple_consumer.requests import (
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    FetchRequest,
    FetchRequestBuilder,
    MultiFetchRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetMetadataAndError,
    TopicMetadataRequest,
    TopicMetadataResponse,
)
from minikafka.clients.simple_consumer.simple_consumer import EARLIEST_TIME, LATEST_TIME, SimpleConsumer

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Committed",
    "ConsumerMetadataRequest",
    "ConsumerMetadataResponse",
    "FetchRequest",
    "FetchRequestBuilder",
    "FetchedMessages",
    "IsolationLevel",
    "MessageIterator",
    "MultiFetchRequest",
    "MultiFetchResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetMetadataAndError",
    "SimpleConsumer",
    "TopicMetadataRequest",
    "TopicMetadataResponse",
]
