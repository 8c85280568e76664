"""``kafka.producer.ProducerConfig``: the old producer's settings under their own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from minikafka.base.config.class_loader import load_plugin
from minikafka.base.config.property_reader import PropertyReader
from minikafka.base.errors import ConfigError
from minikafka.clients import serializer
from minikafka.clients.network.bootstrap import parse_bootstrap
from minikafka.clients.producer.partitioner import ByteArrayPartitioner, DefaultPartitioner
from minikafka.records.format.message_set import Codec

BROKER_LIST = "metadata.broker.list"
KEEP, EACH = "keep", "each"

_CLIENT_ID = re.compile(r"[a-zA-Z0-9._-]*")

_CLASS_SETTINGS = frozenset(
    {"serializer.class", "key.serializer.class", "partitioner.class", "event.handler", "callback.handler"}
)
_ALIASES = {"queue.time": "queue.buffering.max.ms", "batch.size": "batch.num.messages"}
_CODECS = {codec.name.lower(): codec for codec in Codec} | {str(number): Codec(number) for number in range(4)}
"""Codecs by name, and by number as in the release."""
_CLASSES: dict[str, Any] = {
    f"kafka.serializer.{name}": getattr(serializer, name)
    for name in ("DefaultEncoder", "NullEncoder", "StringEncoder", "LongEncoder", "IntegerEncoder")
} | {
    "kafka.producer.DefaultPartitioner": DefaultPartitioner,
    "kafka.producer.ByteArrayPartitioner": ByteArrayPartitioner,
}
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
class ProducerConfig:
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

    metadata_broker_list: str
    producer_type: str = "sync"
    serializer_class: Any = serializer.DefaultEncoder
    key_serializer_class: Any = None
    """Default: ``serializer_class``."""
    partitioner_class: Any = DefaultPartitioner
    compression_codec: Codec = Codec.NONE
    compressed_topics: tuple[str, ...] = ()
    """The topics to compress; empty: all."""
    request_required_acks: int = 0
    request_timeout_ms: int = 10_000
    message_send_max_retries: int = 3
    retry_backoff_ms: int = 100
    topic_metadata_refresh_interval_ms: int = 600_000
    """Negative: refresh only after failures. 0: refresh before each send."""
    queue_buffering_max_ms: int = 5_000
    queue_buffering_max_messages: int = 10_000
    queue_enqueue_timeout_ms: int = -1
    """0: do not wait for room. Negative: wait without limit."""
    batch_num_messages: int = 200
    send_buffer_bytes: int = 102_400
    client_id: str = ""
    event_handler: Any = None
    callback_handler: Any = None
    null_key_partition: str = KEEP
    properties: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """All given settings, also unknown ones: the argument of the classes that are created."""

    def __post_init__(self) -> None:
        given = {_KAFKA_NAMES[setting.name]: getattr(self, setting.name) for setting in fields(self)}
        others = dict(given.pop("properties"))
        for name, value in _read(given).items():
            object.__setattr__(self, name, value)
        kept = {name: value for name, value in given.items() if value is not None}
        object.__setattr__(self, "properties", others | kept)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> ProducerConfig:
        """Return the settings of a mapping of Kafka's names; values may be text. Unknown names are logged as
        a warning, as in the release, and passed to the classes.
        """
        return cls(**_read(properties), properties=dict(properties))

    @property
    def is_sync(self) -> bool:
        """True if ``send`` returns after the messages are sent."""
        return self.producer_type == "sync"

    def codec_of(self, topic: str) -> Codec:
        """Return the codec of messages for ``topic``."""
        chosen = not self.compressed_topics or topic in self.compressed_topics
        return self.compression_codec if chosen else Codec.NONE


_KAFKA_NAMES = {setting.name: setting.name.replace("_", ".") for setting in fields(ProducerConfig)}


def _read(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields with their values. Raises ConfigErrors."""
    given = {name: _as_text(value) for name, value in properties.items() if name not in _CLASS_SETTINGS}
    set_twice = [(name, other) for name, other in _ALIASES.items() if name in given and other in given]
    for name, other in _ALIASES.items():
        if name in given:
            given.setdefault(other, given[name])
            del given[name]
    read = PropertyReader(given)
    for name, other in set_twice:
        if str(properties[name]) != str(properties[other]):
            read.refuse(name, properties[name], f"is an alias of {other}: must be equal to it, or unset")
    # Not read here: an encoder's setting.
    read.optional(serializer.ENCODING)
    values = _read_sending(read) | _read_queueing(read) | _read_classes(read, properties)
    read.finish()
    return values


def _read_sending(read: PropertyReader) -> dict[str, Any]:
    brokers = read.required(BROKER_LIST, "host:port,host:port of some brokers")
    if brokers is not None:
        try:
            parse_bootstrap(brokers, BROKER_LIST)
        except ConfigError as error:
            read.refuse(error.name, error.value, error.allowed)
    client_id = read.text("client.id", "")
    if _CLIENT_ID.fullmatch(client_id) is None:
        read.refuse("client.id", client_id, "must consist of ASCII letters and digits, '.', '_' and '-'")
    topics = (name.strip() for name in read.text("compressed.topics", "").split(","))
    return {
        "metadata_broker_list": brokers,
        "client_id": client_id,
        "compression_codec": _codec(read),
        "compressed_topics": tuple(dict.fromkeys(topic for topic in topics if topic)),
        "request_required_acks": read.integer("request.required.acks", 0, -1, 1),
        "request_timeout_ms": read.integer("request.timeout.ms", 10_000, 1),
        "message_send_max_retries": read.integer("message.send.max.retries", 3, 0),
        "retry_backoff_ms": read.integer("retry.backoff.ms", 100, 0),
        "topic_metadata_refresh_interval_ms": read.integer("topic.metadata.refresh.interval.ms", 600_000),
        "send_buffer_bytes": read.integer("send.buffer.bytes", 102_400, 1),
        "null_key_partition": read.choice("null.key.partition", KEEP, (KEEP, EACH)),
    }


def _read_queueing(read: PropertyReader) -> dict[str, Any]:
    batch, most = (
        read.integer("batch.num.messages", 200, 1),
        read.integer("queue.buffering.max.messages", 10_000, 1),
    )
    if batch > most:
        read.refuse(
            "batch.num.messages", batch, f"must be at most queue.buffering.max.messages, which is {most}"
        )
    return {
        "producer_type": read.choice("producer.type", "sync", ("sync", "async")),
        "queue_buffering_max_ms": read.integer("queue.buffering.max.ms", 5_000, 0),
        "queue_buffering_max_messages": most,
        "queue_enqueue_timeout_ms": read.integer("queue.enqueue.timeout.ms", -1),
        "batch_num_messages": batch,
    }


def _read_classes(read: PropertyReader, given: Mapping[str, Any]) -> dict[str, Any]:
    def found(name: str, default: Any, *methods: str) -> Any:
        return load_plugin(read, name, given.get(name), default, methods=methods, known=_CLASSES)

    values = found("serializer.class", serializer.DefaultEncoder, "to_bytes")
    return {
        "serializer_class": values,
        "key_serializer_class": found("key.serializer.class", values, "to_bytes"),
        "partitioner_class": found("partitioner.class", DefaultPartitioner, "partition"),
        "event_handler": found("event.handler", None, "handle", "close"),
        "callback_handler": found("callback.handler", None, *_CALLBACKS),
    }


def _codec(read: PropertyReader) -> Codec:
    text = read.text("compression.codec", "none").lower()
    if text in _CODECS:
        return _CODECS[text]
    read.refuse(
        "compression.codec", text, f"must be one of {', '.join(codec.name.lower() for codec in Codec)}"
    )
    return Codec.NONE


def _as_text(value: Any) -> Any:
    if isinstance(value, Codec):
        return value.name.lower()
    return ",".join(value) if isinstance(value, (tuple, list)) else value
