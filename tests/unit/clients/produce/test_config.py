"""``clients/produce/config``: Kafka's property names, and rejected values."""

from __future__ import annotations

import pytest

from minikafka.base.config.types import INT_MAX
from minikafka.base.errors import ConfigError
from minikafka.clients.produce.config import BatchingConfig
from minikafka.records.format.message_set import Codec


def test_delivery_timeout_has_room_for_one_attempt() -> None:
    given = {"linger.ms": "1000", "request.timeout.ms": "30000", "delivery.timeout.ms": "30999"}
    with pytest.raises(ConfigError) as refused:
        BatchingConfig.from_properties(given)
    assert str(refused.value) == (
        "delivery.timeout.ms=30999: must be at least linger.ms + request.timeout.ms, which is 31000"
    )
    assert (
        BatchingConfig.from_properties(given | {"delivery.timeout.ms": 31_000}).delivery_timeout_ms == 31_000
    )


@pytest.mark.parametrize(
    ("request_ms", "delivery_ms"), [(30_000, 120_000), (200_000, 200_005), (INT_MAX, INT_MAX)]
)
def test_default_of_the_delivery_timeout_has_room_for_one_attempt(request_ms: int, delivery_ms: int) -> None:
    config = BatchingConfig(linger_ms=5, request_timeout_ms=request_ms)
    assert config.delivery_timeout_ms == delivery_ms


def test_properties_are_text_or_numbers_and_others_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = BatchingConfig.from_properties(
        {
            "acks": "all",
            "retries": 3,
            "linger.ms": "20",
            "batch.size": "100",
            "max.in.flight.requests.per.connection": "2",
            "compression.type": "gzip",
            "buffer.memory": "1000",
            "max.block.ms": "5",
            "max.request.size": "500",
            "request.timeout.ms": "6",
            "delivery.timeout.ms": "27",
            "retry.backoff.ms": "8",
            "enable.idempotence": "False",
            "key.serializer": "whatever",
            "transactional.id": "whatever",
            "linger.millis": "5",
        }
    )
    assert caplog.messages == [
        "property key.serializer has no effect: minikafka does not use it",
        "property transactional.id has no effect: use minikafka.TransactionalProducer",
        "property linger.millis is not valid; did you mean linger.ms?",
    ]
    assert config == BatchingConfig(-1, 3, 20, 100, 2, Codec.GZIP, 1000, 5, 500, 6, 27, 8, False)
    assert BatchingConfig.from_properties({}) == BatchingConfig()
    assert BatchingConfig.from_properties({"acks": "-1"}).acks == -1


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acks", "2", "must be one of all, -1, 0, 1"),
        ("max.in.flight.requests.per.connection", 0, "from 1 to"),
        ("batch.size", 1 << 40, "from 0 to"),
        ("compression.type", "zip", "gzip"),
    ],
)
def test_a_bad_value_is_told_with_the_property(name: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        BatchingConfig.from_properties({name: value})
    assert caught.value.name == name


def test_long_of_kafka_counts_as_24_days_or_2_gib() -> None:
    longest = str(2**63 - 1)
    config = BatchingConfig.from_properties({"linger.ms": longest, "buffer.memory": longest})
    assert (config.linger_ms, config.buffer_bytes) == (2**31 - 1, 2**31 - 1)


def test_pauses_grow_from_the_configured_one() -> None:
    assert [BatchingConfig().backoff.delay_ms(n) for n in (1, 2, 9)] == [100, 200, 1_000]
    assert BatchingConfig(retry_backoff_ms=5_000).backoff.delay_ms(3) == 5_000


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acks", "1", r"acks=1: must be all \(-1\) with enable.idempotence=true"),
        ("acks", "0", "with enable.idempotence=true"),
        ("retries", "0", "retries=0: must be 1 or more with enable.idempotence=true"),
        ("max.in.flight.requests.per.connection", "6", "=6: must be 5 or less with enable.idempotence=true"),
    ],
)
def test_settings_against_idempotence_are_rejected_or_turn_it_off(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=allowed):
        BatchingConfig.from_properties({"enable.idempotence": "true", name: value})
    assert not BatchingConfig.from_properties({"acks": "all", name: value}).may_be_idempotent


def test_acks_default_to_all_with_required_idempotence() -> None:
    assert BatchingConfig.from_properties({"enable.idempotence": "TRUE"}).acks == -1
    assert BatchingConfig().acks == 1
    assert not BatchingConfig().may_be_idempotent
    assert BatchingConfig(acks=-1).may_be_idempotent
    assert not BatchingConfig(acks=-1, idempotence=False).may_be_idempotent
