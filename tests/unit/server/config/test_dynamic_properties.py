"""Properties that are changed while a broker runs: whose value wins, what they change, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import CoordinationLost, ErrorCode
from minikafka.registry.entity_configs import change_config, write_config
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from minikafka.wire.apis.incremental_alter_configs import (
    AlterOperation,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

EVERY = "<default>"


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving("t", properties={"log.retention.hours": "24"})


def alter(world: Simulation, broker: str, **settings: str | None) -> tuple[int, str]:
    """Change properties, in whose names '_' stands for '.'; None: delete."""
    given = tuple(
        IncrementalAlterableConfig(
            name.replace("_", "."), AlterOperation.DELETE if text is None else AlterOperation.SET, text
        )
        for name, text in settings.items()
    )
    resource = IncrementalAlterConfigsResource(ConfigResourceType.BROKER, broker, given)
    body = IncrementalAlterConfigsRequest((resource,), False)
    answer = world.call(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, body))
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def described(world: Simulation, kind: int, name: str, config: str) -> Any:
    resource = DescribeConfigsResource(kind, name, None)
    answer = world.call(Request(ApiKey.DESCRIBE_CONFIGS, 2, DescribeConfigsRequest((resource,), True)))
    return next((row for row in answer.results[0].configs if row.name == config), None)


def error_of(world: Simulation, size: int) -> int:
    return world.produce("t", b"x" * size).error_code


def test_a_property_of_all_brokers_holds_at_once_and_after_a_restart(world: Simulation) -> None:
    assert error_of(world, 5000) == ErrorCode.NONE
    assert alter(world, "", message_max_bytes="1000") == (0, "")
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE
    world.machine.stop()
    world.machine.start()
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(world, "", message_max_bytes=None) == (0, "")
    assert error_of(world, 5000) == ErrorCode.NONE


def test_that_of_the_broker_wins_and_that_of_the_topic_above_all(world: Simulation) -> None:
    assert alter(world, "", message_max_bytes="1000") == (0, "")
    assert alter(world, "0", message_max_bytes="10000") == (0, "")
    assert error_of(world, 5000) == ErrorCode.NONE
    world.call(requests.alter_configs("t", name="max.message.bytes", value="2000"))
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE
    # The settings of the topic stay when those of the broker change.
    assert alter(world, "0", message_max_bytes="20000") == (0, "")
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE


def test_another_broker_hears_of_a_change_by_its_notification(world: Simulation) -> None:
    write_config(world.zookeeper.connect(), "brokers", EVERY, {"message.max.bytes": "1000"})
    world.settle()
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE


def test_values_are_described_with_all_their_sources(world: Simulation) -> None:
    assert alter(world, "", log_retention_ms="1000") == (0, "")
    assert alter(world, "0", log_retention_ms="2000") == (0, "")
    row = described(world, ConfigResourceType.TOPIC, "t", "retention.ms")
    assert (row.value, row.config_source) == ("2000", ConfigSource.DYNAMIC_BROKER)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms][:3] == [
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "1000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
    ]
    row = described(world, ConfigResourceType.BROKER, "0", "log.retention.ms")
    assert (row.value, row.config_source, row.read_only) == ("2000", ConfigSource.DYNAMIC_BROKER, False)
    row = described(world, ConfigResourceType.BROKER, "", "log.retention.ms")
    assert (row.value, row.config_source) == ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert described(world, ConfigResourceType.BROKER, "0", "log.retention.hours").read_only


def test_limits_of_connections_reach_the_server(world: Simulation) -> None:
    assert alter(world, "", **{"max.connections": "10", "max.connections.per.ip": "5"}) == (0, "")
    assert alter(world, "0", **{"listener.name.plaintext.max.connections": "3"}) == (0, "")
    server = world.machine._server
    limits = server.limits
    assert limits is not None
    assert (limits.total, limits.per_ip, limits.totals) == (10, 5, {"PLAINTEXT": 3})
    assert alter(world, "0", **{"listener.name.plaintext.max.connections": None}) == (0, "")
    assert server.limits.totals == {}


def test_settings_of_the_cleaner_are_in_force_at_once(world: Simulation) -> None:
    assert alter(world, "", log_cleaner_io_max_bytes_per_second="1000", log_cleaner_backoff_ms="7") == (0, "")
    cleaner = world.machine.broker.dynamic_properties.cleaner
    assert (cleaner.bytes_per_second, cleaner.backoff_ms) == (1000, 7)
    assert not described(world, ConfigResourceType.BROKER, "0", "log.cleaner.backoff.ms").read_only
    assert described(world, ConfigResourceType.BROKER, "0", "log.cleaner.enable").read_only


@pytest.mark.parametrize(
    ("broker", "name", "value", "words"),
    [
        ("0", "num.io.threads", "3", "set it in the properties of broker 0 and restart it"),
        ("", "log.retention.hours", "3", "set it in the properties of each broker and restart it"),
        ("", "mesage.max.bytes", "3", "not a property of this version; did you mean message.max.bytes?"),
        ("0", "message.max.bytes", "-1", "message.max.bytes"),
        ("", "min.insync.replicas", "none", "min.insync.replicas"),
        ("0", "listener.name.plaintext.max.connections", "0", "max.connections"),
        ("", "log.cleaner.io.buffer.load.factor", "2", "log.cleaner.io.buffer.load.factor"),
        ("0", "listener.name.other.max.connections", "5", "cannot be changed"),
        ("", "leader.replication.throttled.rate", "5", "name the broker"),
        ("7", "message.max.bytes", "5000", "send the request to broker 7"),
    ],
)
def test_an_invalid_change_is_refused(
    world: Simulation, broker: str, name: str, value: str, words: str
) -> None:
    code, message = alter(world, broker, **{name: value})
    assert code == ErrorCode.INVALID_REQUEST
    assert words in message
    assert error_of(world, 5000) == ErrorCode.NONE


def test_an_invalid_value_in_zookeeper_is_ignored(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    store = world.zookeeper.connect()
    change_config(store, "brokers", "0", lambda _: {"message.max.bytes": "many", "min.insync.replicas": "2"})
    world.settle()
    assert "properties of this broker in ZooKeeper: ignored message.max.bytes='many'" in caplog.text
    assert world.machine.broker.logs.defaults.min_insync_replicas == 2


def test_the_controller_heeds_a_changed_default_of_unclean_elections(world: Simulation) -> None:
    context = world.machine.broker.controller._context
    assert context.unclean_election_topics == frozenset()
    assert alter(world, "", unclean_leader_election_enable="true") == (0, "")
    world.settle()
    assert context.unclean_election_topics == {"t"}
    assert alter(world, "0", unclean_leader_election_enable="false") == (0, "")
    world.settle()
    assert context.unclean_election_topics == frozenset()


def test_a_change_that_zookeeper_interrupts_reaches_the_logs_in_the_end(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = world.machine.broker.zk_client.settings
    interrupted = []

    def lost(topics: Any) -> Any:
        interrupted.append(topics)
        monkeypatch.undo()
        raise CoordinationLost("no connection")

    monkeypatch.setattr(settings, "of_topics", lost)
    write_config(world.zookeeper.connect(), "brokers", EVERY, {"message.max.bytes": "1000"})
    world.settle()
    world.settle()
    assert interrupted
    assert error_of(world, 5000) == ErrorCode.MESSAGE_TOO_LARGE
