"""``clients/group_config``: Kafka's property names, and what is refused under them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.group_config import GroupConsumerConfig, Reset
from minikafka.clients.isolation import IsolationLevel


def test_kafkas_properties_are_read_and_others_passed_over() -> None:
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


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "group.id=''"),
        ({"group.id": "g", "session.timeout.ms": "soon"}, "session.timeout.ms='soon': a whole number"),
        ({"group.id": "g", "fetch.max.bytes": "0"}, "fetch.max.bytes=0: a number from 1"),
        ({"group.id": "g", "heartbeat.interval.ms": "10000"}, "less than session.timeout.ms, which is 10000"),
        ({"group.id": "g", "enable.auto.commit": "yes"}, "enable.auto.commit='yes': true or false"),
        ({"group.id": "g", "auto.offset.reset": "first"}, "one of earliest, latest, none"),
        (
            {"group.id": "g", "isolation.level": "committed"},
            "isolation.level='committed': must be read_committed or read_uncommitted",
        ),
        ({"group.id": "g", "partition.assignment.strategy": "sticky"}, "='sticky': of range, roundrobin"),
        ({"group.id": "g", "partition.assignment.strategy": ""}, "partition.assignment.strategy=''"),
    ],
)
def test_what_cannot_be_is_refused_under_its_kafka_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GroupConsumerConfig.from_properties(properties)
    assert message in str(caught.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    properties = {
        "session.timeout.ms": "soon",
        "max.poll.records": "0",
        "enable.auto.commit": "yes",
        "partition.assignment.strategy": "sticky",
        "exclude.internal.topics": "1",
    }
    with pytest.raises(ConfigErrors) as caught:
        GroupConsumerConfig.from_properties(properties)
    assert sorted(fault.name for fault in caught.value.faults) == [
        "enable.auto.commit",
        "exclude.internal.topics",
        "group.id",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    ]
    assert "max.poll.records=0: a number from 1" in str(caught.value)


def test_one_wrong_value_is_an_error_of_its_own() -> None:
    with pytest.raises(ConfigErrors, match=r"^enable\.auto\.commit='yes': true or false$"):
        GroupConsumerConfig.from_properties({"group.id": "g", "enable.auto.commit": "yes"})
