"""What AlterConfigs makes of the settings that it is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError
from minikafka.registry.entity_configs import BROKER_RATES
from minikafka.server.admin.dynamic_config import describe_broker, replace_all
from minikafka.server.config.dynamic_properties import DynamicProperties
from minikafka.server.config.properties import BrokerConfig
from minikafka.wire.apis.alter_configs import AlterableConfig


def properties(given: dict[str, str]) -> DynamicProperties:
    config = BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181"})
    return DynamicProperties(replace(config, properties=given))


def test_of_a_setting_that_is_given_twice_the_last_value_counts() -> None:
    described = AlterableConfig("retention.ms", "1"), AlterableConfig("segment.bytes", "100")
    wanted = AlterableConfig("retention.ms", "2")
    assert replace_all([*described, wanted])({}) == {"retention.ms": "2", "segment.bytes": "100"}


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"retention\.ms is null"):
        replace_all([AlterableConfig("retention.ms", None)])({})


def test_of_a_brokers_properties_secrets_are_kept_back_and_marked() -> None:
    given = {"sasl.jaas.config": "tiger", "ssl.keystore.location": "/a", "log.dir": "/logs"}
    rows = {row.name: row for row in describe_broker(properties(given), {})}
    assert rows["sasl.jaas.config"].value is None
    assert rows["sasl.jaas.config"].is_sensitive
    assert rows["log.dir"].value == "/logs"
    assert "tiger" not in repr(rows)


def test_only_dynamic_properties_are_writable() -> None:
    given = properties({"advertised.listeners": "PLAINTEXT://a:1"})
    rows = {row.name: row.read_only for row in describe_broker(given, {})}
    assert {
        *BROKER_RATES,
        "message.max.bytes",
        "log.retention.ms",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "max.connections",
        "max.connection.creation.rate",
    } <= {name for name, read_only in rows.items() if not read_only}
    for name in ("advertised.listeners", "log.retention.hours", "log.message.format.version"):
        assert rows[name]
