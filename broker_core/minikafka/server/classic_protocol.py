"""The texts' compact protocol (``minikafka.wire.classic``), served by the handlers of the current protocol.

A classic request is converted to current requests, one for each partition that it names, whose responses are
collected here: there is no second code path for appends and reads. They are Produce 2 with acks=1 and Fetch 2
without waiting, whose messages have magic 0 and 1, and ListOffsets 0; the handlers of all three reply before
they return.

Classic clients request no metadata. A produce request to a topic that does not exist creates the topic, if
``auto.create.topics.enable`` is true, and waits for it; so does a request just after the broker's start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition
from minikafka.base.values import fast_value
from minikafka.net.server import Exchange
from minikafka.registry.users import QuotaType
from minikafka.server.admin.topics import start_auto_creation
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.throttle import pause_of
from minikafka.server.handlers import fetch, list_offsets, produce
from minikafka.server.workers.work_pool import Steps, begin, begin_here
from minikafka.wire import classic
from minikafka.wire.api import Api
from minikafka.wire.apis.fetch import FETCH, FetchPartitionResponse, consumer_partition, consumer_request
from minikafka.wire.apis.list_offsets import LIST_OFFSETS, ListOffsetsPartitionResponse, offsets_request
from minikafka.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.frame_parts import LazyPart, Part, buffer_of, part_size, total_size
from minikafka.wire.framing import RequestHeader

TOPIC_PATIENCE_MS = 5_000
"""The maximum wait of a produce request for a topic that is being created, or for the broker's start."""

_PRODUCES_AT_ONCE = 50
"""The number of appends of one request before other requests get a turn."""


@fast_value
class _CollectingContext(RequestContext):
    """A request whose response is kept, not sent."""

    answers: list[Any]

    def reply(self, response: Any) -> None:
        self.answers.append(response)

    def answer_of_one(self) -> Any:
        """Return the response for the only partition of the request."""
        (response,) = self.answers
        (topic,) = response.topics
        return topic.partitions[0]


class _DelayedClassicProduce:
    """A produce request that waits for the creation of its topics."""

    def __init__(self, broker: Broker, topics: set[str], complete: Callable[[], None], exchange: Exchange):
        self._broker = broker
        self._topics = topics
        self._exchange = exchange
        self.complete = complete

    def satisfied(self, key: Hashable | None = None) -> bool:
        return all(_led(self._broker, topic) for topic in self._topics)

    def abandon(self, reason: str) -> None:
        self._exchange.close(reason)


class ClassicProtocol:
    """Serves the requests of CLASSIC listeners."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns = itertools.count()

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request, now or later. If it is invalid, RemoteWireError closes the connection."""
        broker = self._broker
        match classic.decode_request(frame):
            case classic.Produce() as produced:
                self._produce(exchange, [produced], len(frame))
            case classic.MultiProduce(produces):
                self._produce(exchange, produces, len(frame))
            case classic.Fetch() as fetched:
                self._fetch(exchange, [fetched], lambda answers: classic.encode_message_set_send(answers[0]))
            case classic.MultiFetch(fetches):
                self._fetch(exchange, fetches, classic.encode_multi_message_set_send)
            case classic.Offsets() as asked:
                part = _offsets(broker, exchange, asked)
                exchange.respond(classic.encode_offsets(classic.code_of(part.error_code), part.offsets))

    def _produce(self, exchange: Exchange, produces: Sequence[classic.Produce], size: int) -> None:
        """Append the messages once the topics that are being created exist."""
        broker = self._broker

        def append() -> None:
            begin(broker.pool, exchange, self._append(exchange, produces, size))

        topics = {produced.topic for produced in produces}
        may = broker.access_control.may_auto_create
        awaited = {topic for topic in topics if may(exchange, topic) and _awaited(broker, topic)}
        operation = _DelayedClassicProduce(broker, awaited, append, exchange)
        if operation.satisfied():
            append()
            return

        exchange.keep_counted()  # the delayed request keeps its messages

        def step() -> None:
            if operation.satisfied():
                broker.answer(operation)
            else:
                keys: list[Hashable] = ["metadata", *(("topic", topic) for topic in topics)]
                broker.wait(operation, keys, broker.clock.monotonic_ms() + TOPIC_PATIENCE_MS)

        broker.run(step)

    def _append(self, exchange: Exchange, produces: Sequence[classic.Produce], size: int) -> Steps:
        broker = self._broker
        for number, produced in enumerate(produces, 1):
            if number % _PRODUCES_AT_ONCE == 0:
                yield 0
            partition = produced.partition
            if partition == classic.ANY_PARTITION:
                partition = self._any_partition(produced.topic)
            request = ProduceRequest(
                transactional_id=None,
                acks=1,
                timeout_ms=0,
                topics=(ProduceTopic(produced.topic, (ProducePartition(partition, produced.messages),)),),
            )
            context, guarded, left = _permitted(broker, exchange, PRODUCE, 2, request)
            if left is not None:
                yield from produce.serve(broker, guarded, left)
            answer = context.answer_of_one()
            if answer.error_code != ErrorCode.NONE:
                name = ErrorCode.of(answer.error_code).name
                exchange.close(f"classic produce request to {produced.topic}-{partition} failed: {name}")
                return
        exchange.respond([], pause_of(broker, exchange.principal.name, "", QuotaType.PRODUCE, size))

    def _fetch(
        self,
        exchange: Exchange,
        fetches: Sequence[classic.Fetch],
        encode: Callable[[Sequence[classic.MessageSetSend]], list[Part]],
    ) -> None:
        broker = self._broker

        def steps() -> Steps:
            answers = yield from _read(broker, exchange, fetches)
            parts = encode(answers)
            exchange.respond(
                parts, pause_of(broker, exchange.principal.name, "", QuotaType.FETCH, total_size(parts))
            )

        begin_here(broker.pool, exchange, broker.clock, steps())

    def _any_partition(self, topic: str) -> int:
        """Return one of the topic's partitions that this broker leads, round-robin."""
        partitions = sorted(self._broker.metadata_cache.topics.get(topic, {}))
        led = [
            partition
            for partition in partitions
            if TopicPartition(topic, partition) in self._broker.partitions
        ]
        return led[next(self._turns) % len(led)] if led else classic.ANY_PARTITION


def _permitted(
    broker: Broker, exchange: Exchange, api: Api[Any, Any], version: int, request: Any
) -> tuple[_CollectingContext, RequestContext, Any]:
    """Return the context that keeps the response, the one to serve with, and the allowed request."""
    context = _CollectingContext(RequestHeader(api.key, version, 0, None), api, exchange, answers=[])
    return context, *broker.access_control.authorize(context, request)


def _awaited(broker: Broker, topic: str) -> bool:
    """Return True if the topic is being created, or start its creation if that is allowed."""
    if not broker.metadata_cache.brokers:
        return True
    if (
        topic in broker.metadata_cache.topics
        or topic in broker.metadata_cache.unreadable
        or topic in INTERNAL_TOPICS
        or not broker.config.auto_create_topics
    ):
        return False
    try:
        start_auto_creation(broker, topic)
    except BrokerError:
        return False  # the handler reports the error
    return True


def _led(broker: Broker, topic: str) -> bool:
    partitions = broker.metadata_cache.topics.get(topic, {})
    return bool(partitions) and all(
        TopicPartition(topic, partition) in broker.partitions for partition in partitions
    )


def _read(
    broker: Broker, exchange: Exchange, fetches: Sequence[classic.Fetch]
) -> Generator[int, None, list[classic.MessageSetSend]]:
    """Fetch, in steps. All responses together have at most the bytes of a request; the rest is cut off."""
    left, found = broker.config.request_max_bytes, []
    for asked in fetches:
        if asked.max_size < 0:
            found.append(classic.MessageSetSend(classic.code_of(ErrorCode.INVALID_FETCH_SIZE), b""))
            continue
        limit = min(asked.max_size, left)
        part = consumer_partition(asked.partition, asked.offset, limit)
        request = consumer_request({TopicPartition(asked.topic, asked.partition): part}, max_bytes=limit)
        context, guarded, permitted = _permitted(broker, exchange, FETCH, 2, request)
        if permitted is not None:
            yield from fetch.serve_at_once(broker, guarded, permitted)
        answer: FetchPartitionResponse = context.answer_of_one()
        messages: Part = b"" if answer.records is None else answer.records
        if isinstance(messages, LazyPart):
            messages.cut(limit)
        elif part_size(messages) > limit:  # converted down, messages may have become larger
            messages = buffer_of(messages)[:limit]
        found.append(classic.MessageSetSend(classic.code_of(answer.error_code), messages))
        left -= part_size(messages)
    return found


def _offsets(broker: Broker, exchange: Exchange, asked: classic.Offsets) -> ListOffsetsPartitionResponse:
    timestamps = {TopicPartition(asked.topic, asked.partition): asked.time_ms}
    request = offsets_request(timestamps, max_num_offsets=max(0, asked.max_count))
    context, guarded, permitted = _permitted(broker, exchange, LIST_OFFSETS, 0, request)
    if permitted is not None:
        list_offsets.handle(broker, guarded, permitted)
    answer: ListOffsetsPartitionResponse = context.answer_of_one()
    return answer
