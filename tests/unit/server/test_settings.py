"""Settings as clients see them."""

from __future__ import annotations

from minikafka.log.config import TOPIC_PROPERTIES, LogConfig, default_text
from minikafka.server.config import BrokerConfig, property_defaults
from minikafka.server.settings import describe_broker, describe_topic
from minikafka.wire.apis.describe_configs import ConfigSource, DescribeConfigsSynonym

DEFAULT, FILE = ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER


def test_what_a_broker_does_not_know_may_be_a_secret_and_is_kept_back() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "z:1", "ssl.key.password": "hush"})
    (row,) = (row for row in describe_broker(config.properties) if row.name == "ssl.key.password")
    assert (row.value, row.is_sensitive, row.read_only) == (None, True, True)
    assert row.synonyms == (DescribeConfigsSynonym("ssl.key.password", None, FILE),)


def test_every_property_of_a_broker_is_there_once() -> None:
    rows = list(describe_broker({}))
    assert [row.name for row in rows] == sorted(property_defaults())
    assert all(row.is_default and not row.is_sensitive for row in rows)


def test_a_property_in_hours_stands_for_a_topics_setting_in_milliseconds() -> None:
    properties = {"log.retention.minutes": "3", "log.retention.hours": "1"}
    rows = {row.name: row for row in describe_topic(LogConfig(), properties, {})}
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("180000", FILE)
    assert rows["retention.ms"].synonyms == (
        DescribeConfigsSynonym("log.retention.minutes", "3", FILE),
        DescribeConfigsSynonym("log.retention.hours", "1", FILE),
        DescribeConfigsSynonym("log.retention.hours", "168", DEFAULT),
    )


def test_what_cannot_be_used_of_a_topics_settings_is_not_shown_as_if_it_were() -> None:
    rows = {row.name: row for row in describe_topic(LogConfig(), {}, {"retention.ms": "long", "x.y": "1"})}
    assert rows["retention.ms"].value == "604800000"
    assert rows["retention.ms"].is_default
    assert rows.keys() == TOPIC_PROPERTIES.keys()


def test_defaults_are_written_as_kafka_writes_them() -> None:
    defaults = {name: default_text(entry.default) for name, entry in TOPIC_PROPERTIES.items()}
    assert defaults["cleanup.policy"] == "delete"
    assert defaults["preallocate"] == "false"
    assert defaults["min.cleanable.dirty.ratio"] == "0.5"
    assert all(entry.parse(name, defaults[name]) == entry.default for name, entry in TOPIC_PROPERTIES.items())
