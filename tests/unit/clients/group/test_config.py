"""``clients/group/config``: Kafka's property names, and rejected values."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.config import GroupConsumerConfig, Reset


def test_kafkas_properties_are_read_and_others_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = GroupConsumerConfig.from_properties(
        {
            "group.id": "g",
            "session.timeout.ms": "6000",
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor, range",
            "fetch.min.bytes": 10,
            "isolation.level": "read_committed",
            "key.deserializer": "x",
            "auto.offset.rest": "earliest",
        }
    )
    assert config == GroupConsumerConfig(
        "g",
        session_timeout_ms=6_000,
        auto_commit=False,
        auto_offset_reset=Reset.NONE,
        assignors=("roundrobin", "range"),
        fetch_min_bytes=10,
        isolation=IsolationLevel.READ_COMMITTED,
    )
    assert caplog.messages == [
        "property key.deserializer has no effect: minikafka does not use it",
        "property auto.offset.rest is not valid; did you mean auto.offset.reset?",
    ]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "group.id: must be given: a name that the members of the group share"),
        ({"group.id": " "}, "group.id=' ': must be a name that the members of the group share"),
        ({"group.id": "g", "heartbeat.interval.ms": "10000"}, "less than session.timeout.ms, which is 10000"),
        ({"group.id": "g", "auto.offset.reset": "first"}, "one of earliest, latest, none"),
        (
            {"group.id": "g", "isolation.level": "committed"},
            "isolation.level='committed': must be one of read_uncommitted, read_committed",
        ),
        (
            {"group.id": "g", "partition.assignment.strategy": "sticky"},
            "='sticky': must be one or more of range, roundrobin, cooperative-sticky",
        ),
        ({"group.id": "g", "partition.assignment.strategy": ""}, "partition.assignment.strategy=''"),
    ],
)
def test_what_cannot_be_is_refused_under_its_kafka_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GroupConsumerConfig.from_properties(properties)
    assert message in str(caught.value)


def test_what_is_one_of_some_words_may_be_given_as_text_and_as_value() -> None:
    wanted = GroupConsumerConfig(
        "g", auto_offset_reset=Reset.EARLIEST, isolation=IsolationLevel.READ_COMMITTED
    )
    texts: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation": "read_committed"}
    assert GroupConsumerConfig("g", **texts) == wanted
    values = {"auto.offset.reset": Reset.EARLIEST, "isolation.level": IsolationLevel.READ_COMMITTED}
    assert GroupConsumerConfig.from_properties({"group.id": "g", **values}) == wanted


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"auto_offset_reset": 3}, "auto.offset.reset=3: must be one of earliest, latest, none"),
        ({"session_timeout_ms": 6.5}, "session.timeout.ms=6.5: must be a whole number from 1 to 2147483647"),
        (
            {"assignors": (1,)},
            (
                "partition.assignment.strategy=(1,): must be one or more of range, roundrobin, "
                "cooperative-sticky"
            ),
        ),
        ({"group_id": None}, "group.id: must be given: a name"),
    ],
)
def test_a_value_of_another_type_is_refused_at_construction(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        GroupConsumerConfig(**{"group_id": "g", **values})
    assert str(caught.value).startswith(message)
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize("given", ["roundrobin, range", ["roundrobin", "range"]])
def test_assignors_may_be_one_text_or_a_list(given: Any) -> None:
    wanted = ("roundrobin", "range")
    assert GroupConsumerConfig("g", assignors=given).assignors == wanted
    properties = {"group.id": "g", "partition.assignment.strategy": given}
    assert GroupConsumerConfig.from_properties(properties).assignors == wanted
