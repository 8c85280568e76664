"""Topic properties over the broker's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.log.config import TOPIC_CONFIG, LogConfig
from minikafka.records.format.message_set import TimestampType


def test_the_defaults_are_those_of_0_10_1() -> None:
    config = LogConfig.from_properties({})
    assert config == LogConfig()
    assert config.segment_bytes == 1073741824
    assert config.index_interval_bytes == 4096
    assert config.index_entries_max == 10 * 1024 * 1024 // 8
    assert config.max_message_bytes == 1000012
    assert config.flush_messages is None
    assert config.flush_ms is None


def test_broker_properties_stand_in_for_a_topics_own() -> None:
    config = LogConfig.from_properties(
        {
            "log.segment.bytes": "1000",
            "log.flush.interval.messages": "1",
            "log.flush.interval.ms": "500",
            "log.flush.scheduler.interval.ms": "7",
            "message.max.bytes": "2000",
            "log.message.timestamp.type": "LogAppendTime",
            "log.cleanup.policy": "compact, delete",
            "log.index.size.max.bytes": "80",
            "min.insync.replicas": "2",
            "log.message.timestamp.difference.max.ms": "60000",
            "zookeeper.connect": "of no interest",
        }
    )
    assert config == LogConfig(
        segment_bytes=1000,
        flush_messages=1,
        flush_ms=500,
        max_message_bytes=2000,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        compacted=True,
        index_max_bytes=80,
        min_insync_replicas=2,
        message_timestamp_difference_max_ms=60000,
    )
    assert config.index_entries_max == 10


def test_the_schedulers_interval_is_the_last_resort_for_flush_ms() -> None:
    assert LogConfig.from_properties({"log.flush.scheduler.interval.ms": "7"}).flush_ms == 7


def test_a_topics_own_property_wins() -> None:
    broker = {"log.segment.bytes": "1000", "log.flush.interval.messages": "5"}
    config = LogConfig.from_properties(
        broker, {"segment.bytes": "2000", "flush.messages": "9223372036854775807"}
    )
    assert config.segment_bytes == 2000
    assert config.flush_messages is None
    assert LogConfig.from_properties(broker).with_overrides({"segment.bytes": "2000"}).flush_messages == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "13"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "compress"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "Compact"),
        ("cleanup.policy", "delete,COMPACT"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "delete,,compact"),
        ("retention.ms", "-2"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("message.format.version", "0.7.2"),
        ("message.format.version", "2"),
        ("message.format.version", "0.10"),
        ("message.format.version", "0.12.0"),
        ("message.format.version", "4.0"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("leader.replication.throttled.replicas", f"{'9' * 5_000}:1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_name_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_properties({}, {name: value})
    assert (caught.value.name, caught.value.value) == (name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " +5 "),
        ("retention.bytes", "-1"),
        ("retention.bytes", "-5"),
        ("cleanup.policy", "delete,compact"),
        ("cleanup.policy", "compact, delete"),
        ("leader.replication.throttled.replicas", "0:101,1:102"),
        ("follower.replication.throttled.replicas", "*"),
        ("message.format.version", "0.9.0"),
        ("message.format.version", "3.0-IV1"),
        ("compression.type", "zstd"),
        ("min.cleanable.dirty.ratio", "0.25"),
    ],
)
def test_every_property_of_the_release_can_be_set(name: str, value: str) -> None:
    LogConfig().with_overrides({name: value})


def test_an_error_in_a_broker_property_names_that_property() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes='x'"):
        LogConfig.from_properties({"log.segment.bytes": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleanup.policy", "Compact"),
        ("log.flush.interval.messages", "0"),
        ("log.index.size.max.bytes", "3"),
        ("log.retention.hours", "0"),
        ("log.retention.minutes", "0"),
        ("log.retention.ms", "0"),
        ("log.roll.hours", "0"),
        ("log.roll.ms", "0"),
    ],
)
def test_a_brokers_own_property_has_the_bounds_of_the_release(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_properties({name: value})
    assert (caught.value.name, caught.value.value) == (name, value)
    if "retention" in name:
        assert caught.value.allowed.startswith("must be a negative number such as -1 (no limit), or a whole")


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_broker_keeps_messages_for_ever_for_any_negative_retention(name: str) -> None:
    assert LogConfig.from_properties({name: "-5"}).retention_ms is None


def test_topic_with_a_retention_below_minus_one_keeps_its_messages() -> None:
    config, problems = LogConfig().with_known_overrides({"retention.ms": "-5"})
    assert config.deletion_policies == ()
    assert (
        problems[0]
        == "retention.ms='-5': must be -1 (no limit), or a whole number from 0 to 9223372036854775807"
    )


def test_an_unknown_topic_property_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"segment\.sizes='1': unknown topic property; known properties are cleanup\.policy"
    ):
        LogConfig.from_properties({}, {"segment.sizes": "1"})


def test_misspelled_topic_property_is_suggested() -> None:
    with pytest.raises(
        ConfigError, match=r"^retention\.m='1': unknown topic property; did you mean retention\.ms\?$"
    ):
        LogConfig().with_overrides({"retention.m": "1"})


def test_every_fault_of_a_topic_is_named_in_the_order_given() -> None:
    given = {"segment.byts": "1000", "retention.ms": "abc", "flush.ms": "5", "preallocate": "yes"}
    with pytest.raises(ConfigErrors) as caught:
        LogConfig().with_overrides(given)
    assert [str(fault) for fault in caught.value.faults] == [
        "segment.byts='1000': unknown topic property; did you mean segment.bytes?",
        "retention.ms='abc': must be -1 (no limit), or a whole number from 0 to 9223372036854775807",
        "preallocate='yes': must be true or false",
    ]


def test_the_table_has_the_24_properties_of_the_release_and_one_of_2_3() -> None:
    assert len(TOPIC_CONFIG.keys.keys() - {"max.compaction.lag.ms"}) == 24


def test_a_smallest_compaction_lag_above_the_largest_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"min\.compaction\.lag\.ms='11': .* max\.compaction\.lag\.ms, which is 10$"
    ):
        LogConfig(min_compaction_lag_ms=11).with_overrides({"max.compaction.lag.ms": "10"})


# What stands in ZooKeeper already.


def test_contradicting_lags_of_the_broker_leave_a_topic_its_settings() -> None:
    broker = LogConfig(min_compaction_lag_ms=11, max_compaction_lag_ms=10)
    config, problems = broker.with_known_overrides({"cleanup.policy": "compact", "min.insync.replicas": "2"})
    assert (config.compacted, config.min_insync_replicas, problems) == (True, 2, [])


def test_compaction_lags_in_zookeeper_that_contradict_are_both_used() -> None:
    given = {"max.compaction.lag.ms": "10", "min.compaction.lag.ms": "11"}
    config, problems = LogConfig().with_known_overrides(given)
    assert (config.max_compaction_lag_ms, config.min_compaction_lag_ms, problems) == (10, 11, [])


def test_invalid_properties_are_skipped_with_name_and_value() -> None:
    config, problems = LogConfig(flush_messages=7).with_known_overrides(
        {
            "segment.bytes": "2000",
            "remote.storage.enable": "true",
            "flush.messages": "often",
            "retention.ms": "5",
        }
    )
    assert config == LogConfig(flush_messages=7, segment_bytes=2000, retention_ms=5)
    assert problems == [
        "flush.messages='often': must be a whole number from 0 to 9223372036854775807",
        "remote.storage.enable='true': unknown topic property",
    ]


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.bytes", "retention.ms"])
def test_invalid_retention_setting_disables_deletion(name: str) -> None:
    config, problems = LogConfig().with_known_overrides({name: "for ever", "segment.bytes": "2000"})
    assert config == replace(LogConfig(segment_bytes=2000), deletion_policies=())
    assert "retention by age and size is disabled" in problems[-1]


def test_overrides_without_a_fault_give_no_problems() -> None:
    overrides = {"segment.bytes": "2000", "cleanup.policy": "compact"}
    assert LogConfig().with_known_overrides(overrides) == (LogConfig().with_overrides(overrides), [])


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.2", 0),
        ("0.9.0.1", 0),
        ("0.10.0-IV1", 1),
        ("0.10.2", 1),
        ("0.11.0", 2),
        ("1.0-IV0", 2),
        ("2.1", 2),
    ],
)
def test_a_message_format_version_names_the_magic_of_its_time(version: str, magic: int) -> None:
    assert LogConfig.from_properties({}, {"message.format.version": version}).message_magic == magic


def test_without_a_message_format_version_nothing_is_converted() -> None:
    assert LogConfig().message_magic == LogConfig.from_properties({}).message_magic == 2
