"""``clients/producer/producer_config``: the keys, defaults and rules of 0.10.1's old producer."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.clients import serializer
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.producer import CallbackHandler, ProducerConfig
from minikafka.clients.producer.partitioner import ByteArrayPartitioner, DefaultPartitioner
from minikafka.records.format.message_set import Codec

NEEDED = {"metadata.broker.list": "h:9092"}

DEFAULTS = {
    "metadata_broker_list": "h:9092",
    "producer_type": "sync",
    "serializer_class": serializer.DefaultEncoder,
    "key_serializer_class": serializer.DefaultEncoder,
    "partitioner_class": DefaultPartitioner,
    "compression_codec": Codec.NONE,
    "compressed_topics": (),
    "request_required_acks": 0,
    "request_timeout_ms": 10_000,
    "message_send_max_retries": 3,
    "retry_backoff_ms": 100,
    "topic_metadata_refresh_interval_ms": 600_000,
    "queue_buffering_max_ms": 5_000,
    "queue_buffering_max_messages": 10_000,
    "queue_enqueue_timeout_ms": -1,
    "batch_num_messages": 200,
    "send_buffer_bytes": 102_400,
    "client_id": "",
    "event_handler": None,
    "callback_handler": None,
    "null_key_partition": "keep",
}


def config(**given: Any) -> ProducerConfig:
    return ProducerConfig.from_properties(
        {**NEEDED, **{name.replace("_", "."): value for name, value in given.items()}}
    )


def faults(properties: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigErrors) as refusal:
        ProducerConfig.from_properties(properties)
    return {fault.name: str(fault) for fault in refusal.value.faults}


def test_defaults_are_those_of_the_release() -> None:
    default = config()
    found = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    del found["properties"]
    assert found.pop("security") == ClientSecurity()
    assert found == DEFAULTS
    assert default == ProducerConfig("h:9092")
    assert default.is_sync


def test_values_may_be_text_or_python_objects() -> None:
    found = config(
        producer_type=" async ",
        request_required_acks="-1",
        batch_num_messages=10,
        compression_codec="2",
        compressed_topics="a, b,,a",
    )
    assert (found.producer_type, found.request_required_acks, found.batch_num_messages) == ("async", -1, 10)
    assert found.compression_codec is Codec.SNAPPY
    assert found.compressed_topics == ("a", "b")
    assert config(compression_codec=Codec.LZ4).compression_codec is Codec.LZ4
    assert ProducerConfig("h:9092", compressed_topics=("a", "b"), compression_codec=Codec.GZIP) == config(
        compressed_topics="a,b", compression_codec="GZIP"
    )


def test_compressed_topics_limit_the_compression() -> None:
    some = config(compression_codec="gzip", compressed_topics="a")
    assert (some.codec_of("a"), some.codec_of("b")) == (Codec.GZIP, Codec.NONE)
    assert config(compression_codec="gzip").codec_of("b") is Codec.GZIP
    assert config(compressed_topics="a").codec_of("a") is Codec.NONE


def test_classes_may_be_classes_objects_or_names() -> None:
    encoder = serializer.StringEncoder()
    found = config(
        serializer_class="kafka.serializer.StringEncoder",
        partitioner_class="minikafka.clients.producer.partitioner.ByteArrayPartitioner",
        callback_handler=CallbackHandler,
    )
    assert found.serializer_class is serializer.StringEncoder
    assert found.key_serializer_class is serializer.StringEncoder
    assert found.partitioner_class is ByteArrayPartitioner
    assert found.callback_handler is CallbackHandler
    mixed = config(serializer_class=encoder, key_serializer_class=serializer.LongEncoder)
    assert mixed.serializer_class is encoder
    assert mixed.key_serializer_class is serializer.LongEncoder


def test_names_of_the_texts_are_aliases() -> None:
    found = config(queue_time="50", batch_size="7")
    assert (found.queue_buffering_max_ms, found.batch_num_messages) == (50, 7)
    assert list(faults({**NEEDED, "queue.time": 1, "queue.buffering.max.ms": 2})) == ["queue.time"]
    assert config(queue_time=3, queue_buffering_max_ms="3").queue_buffering_max_ms == 3


def test_every_fault_is_named_at_once() -> None:
    found = faults(
        {
            "producer.type": "later",
            "serializer.class": "no.such.Encoder",
            "key.serializer.class": "kafka.serializer.Nothing",
            "partitioner.class": object(),
            "compression.codec": "zip",
            "request.required.acks": "2",
            "request.timeout.ms": 0,
            "message.send.max.retries": "-1",
            "retry.backoff.ms": "soon",
            "queue.buffering.max.messages": "100",
            "batch.num.messages": "101",
            "client.id": "a b",
            "event.handler": str,
            "callback.handler": "plain",
            "null.key.partition": "each time",
        }
    )
    assert set(found) == {
        "metadata.broker.list",
        "producer.type",
        "serializer.class",
        "key.serializer.class",
        "partitioner.class",
        "compression.codec",
        "request.required.acks",
        "request.timeout.ms",
        "message.send.max.retries",
        "retry.backoff.ms",
        "batch.num.messages",
        "client.id",
        "event.handler",
        "callback.handler",
        "null.key.partition",
    }
    assert found["producer.type"] == "producer.type='later': must be one of sync, async"
    assert found["compression.codec"].endswith("one of none, gzip, snappy, lz4, zstd")
    assert "it has no partition" in found["partitioner.class"]
    assert "kafka.serializer.Nothing has no counterpart in minikafka" in found["key.serializer.class"]
    assert "No module named 'no'" in found["serializer.class"]
    assert "which is 100" in found["batch.num.messages"]


def test_invalid_broker_list_is_refused_under_its_name() -> None:
    assert "'h' has no port" in faults({"metadata.broker.list": "h"})["metadata.broker.list"]


def test_constructor_faults_have_property_names() -> None:
    with pytest.raises(ConfigErrors, match=r"producer\.type='x'.*request\.required\.acks=7"):
        ProducerConfig("h:9092", producer_type="x", request_required_acks=7)


def test_unknown_properties_are_logged_and_passed_to_classes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = config(my_encoder_size=5, serializer_encoding="UTF-16", producer_typ="async")
    assert "my.encoder.size" in caplog.text
    assert "; did you mean producer.type?" in caplog.text
    assert "serializer.encoding" not in caplog.text
    assert found.properties["my.encoder.size"] == 5
    assert found.properties["serializer.encoding"] == "UTF-16"
