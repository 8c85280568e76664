"""The low-level consumer of the reference texts: one broker, no state, the offset named in every request.

    with SimpleConsumer("localhost", 9092) as consumer:
        for message in consumer.fetch(FetchRequest("t", 0, offset=0, max_size=1 << 20)):
            print(message.offset, message.value)

It asks the broker that it was given, and looks for no leader. With ``classic=True`` it speaks the texts' own
protocol (``minikafka.wire.classic``) to a CLASSIC listener; otherwise today's, to any broker from Kafka 0.10
on. A connection that breaks is made again once for each call.
"""

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
