"""``clients/consumer/config``: the keys, defaults and rules of 0.10.1's consumer."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.clients.consumer.config import ConsumerConfig

NEEDED = {"group.id": "g", "zookeeper.connect": "h:2181/c"}

DEFAULTS = {
    "group.id": "g",
    "zookeeper.connect": "h:2181/c",
    "client.id": "g",
    "socket.timeout.ms": "30000",
    "socket.receive.buffer.bytes": "65536",
    "fetch.message.max.bytes": "1048576",
    "num.consumer.fetchers": "1",
    "auto.commit.enable": "true",
    "auto.commit.interval.ms": "60000",
    "queued.max.message.chunks": "2",
    "rebalance.max.retries": "4",
    "fetch.min.bytes": "1",
    "fetch.max.bytes": "52428800",
    "fetch.wait.max.ms": "100",
    "rebalance.backoff.ms": "2000",
    "refresh.leader.backoff.ms": "200",
    "auto.offset.reset": "largest",
    "consumer.timeout.ms": "-1",
    "exclude.internal.topics": "true",
    "partition.assignment.strategy": "range",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "6000",
    "zookeeper.sync.time.ms": "2000",
    "offsets.storage": "zookeeper",
    "offsets.channel.backoff.ms": "1000",
    "offsets.channel.socket.timeout.ms": "10000",
    "offsets.commit.max.retries": "5",
    "dual.commit.enabled": "false",
}


def config(**given: object) -> ConsumerConfig:
    return ConsumerConfig.from_properties(
        {**NEEDED, **{name.replace("_", "."): v for name, v in given.items()}}
    )


def faults(properties: Mapping[str, object]) -> dict[str, str]:
    with pytest.raises(ConfigErrors) as refusal:
        ConsumerConfig.from_properties(properties)
    return {fault.name: str(fault) for fault in refusal.value.faults}


def test_defaults_are_those_of_the_release() -> None:
    assert config().to_properties() == DEFAULTS
    assert config().consumer_id is None


def test_every_property_round_trips() -> None:
    other = {
        name: str(int(value) + 1)
        if value.lstrip("-").isdecimal()
        else {"true": "false", "false": "true"}.get(value)
        for name, value in DEFAULTS.items()
    } | {
        "group.id": "other",
        "zookeeper.connect": "a:1,b:2",
        "client.id": "me",
        "consumer.id": "c1",
        "auto.offset.reset": "smallest",
        "partition.assignment.strategy": "roundrobin",
        "offsets.storage": "kafka",
    }
    assert ConsumerConfig.from_properties(other).to_properties() == other


def test_derived_defaults_follow_other_settings() -> None:
    found = config(zookeeper_session_timeout_ms=500, zookeeper_sync_time_ms=7, offsets_storage="KAFKA")
    assert found.zookeeper_connection_timeout_ms == 500
    assert found.rebalance_backoff_ms == 7
    assert (found.offsets_storage, found.dual_commit_enabled) == ("kafka", True)
    assert config(offsets_storage="kafka", dual_commit_enabled="false").dual_commit_enabled is False
    assert config(dual_commit_enabled=True).dual_commit_enabled is True


def test_fields_and_properties_make_the_same_config() -> None:
    by_field = ConsumerConfig("g", "h:2181/c", rebalance_backoff_ms=200)
    assert by_field == config(rebalance_backoff_ms=200)
    assert dataclasses.replace(by_field, offsets_storage="kafka").dual_commit_enabled is False
    with pytest.raises(ConfigErrors, match=r"num\.consumer\.fetchers=0"):
        ConsumerConfig("g", "h:2181", num_consumer_fetchers=0)


def test_every_fault_is_named_at_once() -> None:
    found = faults(
        {
            "client.id": "a b",
            "consumer.id": "x/y",
            "auto.offset.reset": "earliest",
            "offsets.storage": "disk",
            "partition.assignment.strategy": "sticky",
            "queued.max.message.chunks": "0",
            "auto.commit.enable": "yes",
            "fetch.wait.max.ms": "500",
            "socket.timeout.ms": "400",
        }
    )
    assert found == {
        "group.id": "group.id: must be given: a name of ASCII letters and digits, '.', '_' and '-', "
        "but not '.' or '..'",
        "zookeeper.connect": "zookeeper.connect: must be given: HOST:PORT, or HOST:PORT/CHROOT",
        "client.id": "client.id='a b': must be text of ASCII letters and digits, '.', '_' and '-'",
        "consumer.id": "consumer.id='x/y': must be a part of a path, without '/' and control characters",
        "auto.offset.reset": "auto.offset.reset='earliest': "
        "earliest is the newer consumer's word; use smallest",
        "offsets.storage": "offsets.storage='disk': must be one of zookeeper, kafka",
        "partition.assignment.strategy": "partition.assignment.strategy='sticky': "
        "must be one of range, roundrobin",
        "queued.max.message.chunks": "queued.max.message.chunks='0': "
        "must be a whole number from 1 to 2147483647",
        "auto.commit.enable": "auto.commit.enable='yes': must be true or false",
        "socket.timeout.ms": "socket.timeout.ms=400: must be at least fetch.wait.max.ms, which is 500",
    }


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a b", "é", "a\n"])
def test_group_name_that_is_not_a_path_part_is_refused(group: str) -> None:
    found = faults({"group.id": f"{group}|" if group.endswith("\n") else group, "zookeeper.connect": "h:1"})
    assert list(found) == ["group.id"]


@pytest.mark.parametrize("connect", ["", "h:x", ",", "h:1/a/../b"])
def test_invalid_zookeeper_address_is_refused(connect: str) -> None:
    assert list(faults({"group.id": "g", "zookeeper.connect": connect})) == ["zookeeper.connect"]


@pytest.mark.parametrize("value", ["smallest", "largest", "none", "raise"])
def test_any_reset_value_is_accepted(value: str) -> None:
    assert config(auto_offset_reset=value).auto_offset_reset == value


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("smalest", "; did you mean smallest?"),
        ("Largest", "; did you mean largest?"),
        ("non", "; did you mean none?"),
        ("x", ""),
    ],
)
def test_unknown_reset_value_logs_a_warning_with_a_suggestion(
    value: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config(auto_offset_reset=value)
    (warning,) = caplog.messages
    assert warning.startswith(
        f"auto.offset.reset={value!r} is neither smallest nor largest: as with none, streams raise "
    )
    assert warning.endswith(f"does not have the offset{hint}")


@pytest.mark.parametrize("value", ["smallest", "largest", "none"])
def test_known_reset_value_logs_nothing(value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config(auto_offset_reset=value)
    assert caplog.messages == []


def test_any_negative_timeout_means_no_timeout() -> None:
    assert config(consumer_timeout_ms=-5).consumer_timeout_ms == -1


@pytest.mark.parametrize(("word", "ours"), [("earliest", "smallest"), ("latest", "largest")])
def test_word_of_the_newer_consumer_is_refused_with_ours(word: str, ours: str) -> None:
    assert faults({**NEEDED, "auto.offset.reset": word}) == {
        "auto.offset.reset": f"auto.offset.reset={word!r}: {word} is the newer consumer's word; use {ours}"
    }


def test_unknown_property_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ConsumerConfig.from_properties({**NEEDED, "dual.commit.enable": "true", "external.thing": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "property dual.commit.enable is not valid; did you mean dual.commit.enabled?"
    ]


def test_the_security_of_zookeeper_is_read_with_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"zookeeper.set.acl": "private", "zookeeper.digest.credentials": "me:tiger"}
    found = ConsumerConfig.from_properties({**NEEDED, **properties})
    assert found.zookeeper.set_acl == "private"
    assert "tiger" not in repr(found)
    assert caplog.messages == []
    assert list(faults({**NEEDED, "zookeeper.set.acl": "true", "fetch.min.bytes": "x"})) == [
        "zookeeper.set.acl",
        "fetch.min.bytes",
    ]
