"""Wrong arguments of a producer: errors show the value and a correct call."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from minikafka.base.errors import FailedToSendMessage
from minikafka.clients.producer import KeyedMessage
from minikafka.clients.serializer import IntegerEncoder, LongEncoder, StringEncoder
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.producer_harness import everything, make_producer


class Frame:
    """A data frame like those of pandas and polars."""

    def __dataframe__(self) -> None: ...

    def __iter__(self) -> Any:
        return iter(["value"])


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(1, {"u": 1})


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("hello", "values: expected a list, Arrow column or table, got str 'hello': use \\[value\\]"),
        (b"hello", "got bytes b'hello'"),
        ({"value": "a"}, "got dict {'value': 'a'}"),
        (KeyedMessage("u", "a"), "got KeyedMessage"),
        (5, "got int 5"),
        (None, "got NoneType None"),
        (Frame(), r"pa\.table\(…\) for a data frame"),
        (pa.array([1, 2]), r"expected a column of binary or string, got int64: cast it"),
        (pa.chunked_array([pa.array([1.5])]), "got double: cast it"),
    ],
)
def test_single_values_and_wrong_columns_are_refused(
    brokers: BrokerHarness, kind: str, argument: Any, text: str
) -> None:
    encoder = "kafka.serializer.StringEncoder"
    with make_producer(brokers, serializer_class=encoder, producer_type=kind) as producer:
        with pytest.raises(TypeError, match=text):
            producer.send_values("u", argument)
        with pytest.raises(TypeError, match="keys: expected a list"):
            producer.send_values("u", ["a"], "k")
        assert producer.queued == 0
    assert everything(brokers, "u") == []


@pytest.mark.parametrize("argument", ["hello", b"hello", 5, None])
def test_refused_message_is_shown_with_a_correct_call(brokers: BrokerHarness, argument: Any) -> None:
    text = rf"got {argument!r}: send KeyedMessage\(topic, message\), or call send_values"
    with make_producer(brokers) as producer, pytest.raises(TypeError, match=text):
        producer.send(argument)


@pytest.mark.parametrize("argument", [b"bytes", 5, None])
def test_string_encoder_error_names_the_expected_type(argument: Any) -> None:
    with pytest.raises(TypeError, match=r"StringEncoder: expected str, got \w+ .*: send text"):
        StringEncoder().to_bytes(argument)


@pytest.mark.parametrize(("encoder", "bits"), [(LongEncoder(), 64), (IntegerEncoder(), 32)])
def test_number_encoder_error_names_the_expected_type(encoder: Any, bits: int) -> None:
    with pytest.raises(TypeError, match=f"expected an int of {bits} bits, got str 'x'"):
        encoder.to_bytes("x")
    with pytest.raises(struct.error, match=f"{1 << bits} does not fit into {bits} bits"):
        encoder.to_bytes(1 << bits)


@pytest.mark.parametrize("known", [True, False])
def test_too_large_message_error_names_size_and_limit(brokers: BrokerHarness, known: bool) -> None:
    brokers.configure("u", "max.message.bytes", "400")
    if not known:
        brokers.unknown.add(ApiKey.DESCRIBE_CONFIGS)
    with make_producer(brokers) as producer, pytest.raises(FailedToSendMessage) as failure:
        producer.send(KeyedMessage("u", b"L" * 500))
    (cause,) = failure.value.causes.values()
    limit = " (400 now)" if known else ""
    assert str(cause) == (
        "MESSAGE_TOO_LARGE: message of 570 bytes, with key and header, is too large for max.message.bytes of "
        f"topic 'u' on broker 1: make it smaller, or raise max.message.bytes{limit}"
    )
