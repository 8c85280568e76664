"""``kafka.producer.ProducerConfig``: the old producer's settings under their own names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minikafka.base.config.class_loader import plugin
from minikafka.base.config.config_def import REQUIRED, AbstractConfig, Faults, definition_of, setting
from minikafka.base.config.types import INT_MIN, WORDS, checked, choice, int32, integer, one_of
from minikafka.base.errors import ConfigError
from minikafka.clients import serializer
from minikafka.clients.common_client_configs import CLIENT_ID, SECURITY_SETTINGS, ClientSecurity
from minikafka.clients.network.bootstrap import parse_bootstrap
from minikafka.clients.producer.partitioner import ByteArrayPartitioner, DefaultPartitioner
from minikafka.records.format.compression import Codec

BROKER_LIST = "metadata.broker.list"
KEEP, EACH = "keep", "each"

_NAMES = ", ".join(codec.name.lower() for codec in Codec)
_COMPRESSION_CODEC = choice(
    {codec.name.lower(): codec for codec in Codec} | {str(number): Codec(number) for number in range(4)},
    f"one of {_NAMES}",
)
"""Codecs by name, and by number as in the release."""
_CLASSES: dict[str, Any] = {
    f"kafka.serializer.{name}": getattr(serializer, name)
    for name in ("DefaultEncoder", "NullEncoder", "StringEncoder", "LongEncoder", "IntegerEncoder")
} | {
    "kafka.producer.DefaultPartitioner": DefaultPartitioner,
    "kafka.producer.ByteArrayPartitioner": ByteArrayPartitioner,
}
_ENCODER = plugin(_CLASSES, "to_bytes")
_CALLBACKS = (
    "init",
    "before_enqueue",
    "after_enqueue",
    "after_dequeuing_existing_data",
    "before_sending_data",
    "after_sending_data",
    "last_batch_before_close",
    "close",
)


@dataclass(frozen=True, slots=True)
class ProducerConfig(AbstractConfig):
    """The settings of a ``Producer``. Names are Kafka's with ``_`` for ``.``. Defaults are those of 0.10.1;
    three of them can lose messages silently, and are kept because programs of that time rely on them:

    ``request.required.acks`` 0
        the producer does not learn that a broker did not accept a message. 1: the leader has it; -1: all
        in-sync replicas have it.
    ``message.send.max.retries`` 3 with ``retry.backoff.ms`` 100
        an election that takes longer than 0.3 s fails the messages of its partitions; for asynchronous
        messages only the log and ``callback.handler`` show it.
    ``queue.enqueue.timeout.ms`` 0 (not the default, which is -1: wait)
        a full queue drops a message, and raises QueueFull.

    A class setting is a class, an object, or a dotted name (Python's, or that of the release's class).
    ``event.handler`` and ``callback.handler`` are those of the texts. ``null.key.partition`` is this
    project's: with ``keep`` messages without a key stay with one partition for
    ``topic.metadata.refresh.interval.ms``, as in the release since 0.8; with ``each`` every message goes to a
    random partition. ``queue.time`` and ``batch.size`` are the texts' names of ``queue.buffering.max.ms`` and
    ``batch.num.messages``.

    Raises one ConfigErrors that names every fault.
    """

    PASSED_ON: ClassVar[Collection[str]] = (serializer.ENCODING, *SECURITY_SETTINGS)

    metadata_broker_list: str = setting(
        BROKER_LIST,
        checked("host:port,host:port of some brokers", lambda text: parse_bootstrap(text, BROKER_LIST)),
        REQUIRED,
        "Some brokers: HOST:PORT, separated by commas.",
    )
    producer_type: str = setting(
        "producer.type",
        one_of("sync", "async"),
        "sync",
        "`sync`: send before `send` returns; `async`: from a queue.",
    )
    serializer_class: Any = setting(
        "serializer.class", _ENCODER, serializer.DefaultEncoder, "The encoder of values."
    )
    key_serializer_class: Any = setting(
        "key.serializer.class",
        _ENCODER,
        None,
        "The encoder of keys; `serializer.class` by default.",
        derive=lambda values: values["serializer_class"],
    )
    partitioner_class: Any = setting(
        "partitioner.class",
        plugin(_CLASSES, "partition"),
        DefaultPartitioner,
        "It chooses partitions by key.",
    )
    compression_codec: Codec = setting(
        "compression.codec", _COMPRESSION_CODEC, Codec.NONE, "The codec, by name or number."
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", WORDS, (), "The topics to compress; empty: all."
    )
    request_required_acks: int = setting(
        "request.required.acks",
        integer(-1, 1),
        0,
        "Acknowledgements: 0 none, 1 the leader, -1 all in-sync replicas.",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", int32(1), 10_000, "How long to wait for a response."
    )
    message_send_max_retries: int = setting(
        "message.send.max.retries", int32(0), 3, "How often messages are sent again."
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", int32(0), 100, "How long to wait before messages are sent again."
    )
    topic_metadata_refresh_interval_ms: int = setting(
        "topic.metadata.refresh.interval.ms",
        int32(INT_MIN),
        600_000,
        "How often metadata is refreshed. Negative: only after failures. 0: before each send.",
    )
    queue_buffering_max_ms: int = setting(
        "queue.buffering.max.ms",
        int32(0),
        5_000,
        "How long messages wait for a batch to fill.",
        alias="queue.time",
    )
    queue_buffering_max_messages: int = setting(
        "queue.buffering.max.messages", int32(1), 10_000, "The most messages that wait."
    )
    queue_enqueue_timeout_ms: int = setting(
        "queue.enqueue.timeout.ms",
        int32(INT_MIN),
        -1,
        "How long to wait for room. 0: not at all. Negative: without limit.",
    )
    batch_num_messages: int = setting(
        "batch.num.messages", int32(1), 200, "The most messages of a batch.", alias="batch.size"
    )
    send_buffer_bytes: int = setting("send.buffer.bytes", int32(1), 102_400, "The socket's buffer.")
    client_id: str = setting("client.id", CLIENT_ID, "", "The name of this client in requests.")
    event_handler: Any = setting(
        "event.handler",
        plugin({}, "handle", "close"),
        None,
        "It sends the batches of an asynchronous producer.",
    )
    callback_handler: Any = setting(
        "callback.handler", plugin({}, *_CALLBACKS), None, "It is called as messages pass through the queue."
    )
    null_key_partition: str = setting(
        "null.key.partition",
        one_of(KEEP, EACH),
        KEEP,
        "The partition of messages without a key: `keep` one for a time, or choose at random for `each`.",
    )
    properties: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """All given settings, also unknown ones: the argument of the classes that are created."""
    security: ClientSecurity = field(default_factory=ClientSecurity, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``."""

    def __post_init__(self) -> None:
        AbstractConfig.__post_init__(self)
        values = {name: getattr(self, key.field) for name, key in definition_of(type(self)).keys.items()}
        given = {name: value for name, value in values.items() if value is not None}
        object.__setattr__(self, "properties", dict(self.properties) | given)

    @classmethod
    def _other_fields(cls, properties: Mapping[str, Any], faults: Faults) -> Mapping[str, object]:
        security = faults.attempt(lambda: ClientSecurity.from_properties(properties), None)
        return {"properties": properties, "security": security}

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        batch, most = self.batch_num_messages, self.queue_buffering_max_messages
        if batch > most:
            allowed = f"must be at most queue.buffering.max.messages, which is {most}"
            yield "queue.buffering.max.messages", ConfigError("batch.num.messages", batch, allowed)

    @property
    def is_sync(self) -> bool:
        """True if ``send`` returns after the messages are sent."""
        return self.producer_type == "sync"

    def codec_of(self, topic: str) -> Codec:
        """Return the codec of messages for ``topic``."""
        chosen = not self.compressed_topics or topic in self.compressed_topics
        return self.compression_codec if chosen else Codec.NONE
