"""Every kind of znode through its reader: recorded data of real Kafka 0.10.1.1, and nonsense."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import CoordinationError, NoNode
from minikafka.registry.acls import ACL_CHANGE, EXTENDED_ACL_CHANGE, PREFIX_ACLS, RESOURCE_ACLS
from minikafka.registry.brokers import BROKER
from minikafka.registry.cluster import CLUSTER, PRODUCER_ID_BLOCK, UNKNOWN_USERS_SECRET
from minikafka.registry.consumer_offsets import OFFSET
from minikafka.registry.consumers import OWNER
from minikafka.registry.controller import (
    CONTROLLER_REGISTRATION,
    ELECTION,
    EPOCH,
    ISR_CHANGE,
    LOG_FAILURE,
    REASSIGNMENTS,
)
from minikafka.registry.entity_configs import CONFIG_CHANGE, ENTITY_CONFIG
from minikafka.registry.kinds import KINDS
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.store import check_path
from minikafka.registry.topics import PARTITION_STATE, TOPIC
from minikafka.registry.znodes import Kind, Znodes, read_or_raise

GOLDEN = Path(__file__).parents[2] / "data" / "zookeeper"
LAST = (1 << 31) - 1
"""The last epoch: the next one cannot be sent to a broker."""


def pattern(kind: Kind[Any]) -> re.Pattern[str]:
    """The paths of a kind: its variable parts are in capital letters, ``N`` stands for a number."""
    return re.compile(re.sub(r"\b[A-Z]+\b|(?<=_)N$", r"[^/]+", kind.path))


def recorded() -> dict[tuple[str, str], Kind[Any]]:
    """Path and data of each recorded znode -> its kind."""
    found = {}
    for file in sorted(GOLDEN.glob("*.json")):
        for path, node in json.loads(file.read_text(encoding="utf-8")).items():
            for kind in KINDS:
                if node["data"] and pattern(kind).fullmatch(path):
                    found[path, node["data"]] = kind
    return found


RECORDED = recorded()
LIKE_RECORDED = {
    f"{ISR_CHANGE.path[:-1]}0000000000": b'{"version":1,"partitions":[{"topic":"a","partition":3}]}',
    f"{LOG_FAILURE.path[:-1]}0000000000": (
        b'{"version":1,"broker":0,"event":1,"partitions":[{"topic":"a","partition":3}]}'
    ),
    PRODUCER_ID_BLOCK.path: b'{"version":1,"broker":3,"block_start":"1000","block_end":"1999"}',
    UNKNOWN_USERS_SECRET.path: b'{"version":1,"secret":"%s"}' % (b"0f" * 32),
    "/kafka-acl/Topic/orders": (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
    ),
    f"{ACL_CHANGE.path[:-1]}0000000000": b"Topic:orders",
    "/kafka-acl-extended/prefixed/Topic/or": (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
    ),
    f"{EXTENDED_ACL_CHANGE.path[:-1]}0000000000": (
        b'{"version":1,"resourceType":"TOPIC","name":"or","patternType":"PREFIXED"}'
    ),
}
"""Kinds that were not recorded, in the form of their sources."""


def a_znode_of(kind: Kind[Any]) -> tuple[str, bytes]:
    """Return path and data of a valid znode."""
    for (path, data), other in RECORDED.items():
        if other is kind:
            return path, data.encode()
    return next((path, data) for path, data in LIKE_RECORDED.items() if pattern(kind).fullmatch(path))


def named(kind: Kind[Any]) -> str:
    return kind.path


every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)


@pytest.mark.parametrize(
    ("path", "data", "kind"),
    [
        *((path, data.encode(), kind) for (path, data), kind in RECORDED.items()),
        *((path, data, kind) for kind in KINDS for path, data in [a_znode_of(kind)]),
    ],
)
def test_a_znode_of_kafka_is_written_again_with_the_same_meaning(
    path: str, data: bytes, kind: Kind[Any]
) -> None:
    value = kind.decode(data, path)
    written = kind.encode(value)
    if data.startswith(b"{"):
        # json.loads distinguishes "1" from 1, which matters here.
        assert json.loads(written) == json.loads(data)
        fields = {**json.loads(data), "added later": {"x": [1]}}
        assert kind.decode(json.dumps(fields).encode(), path) == value
    else:
        assert written == data
    assert kind.decode(written, path) == value


NONSENSE = {
    "empty": b"",
    "not JSON": b"nonsense",
    "cut JSON": b'{"version":1',
    "no object": b"[]",
    "a text": b'"text"',
    "null": b"null",
    "not UTF-8": b"\xff\xfe",
    "a fraction": b"1.5",
    "negative": b"-1",
    "signed": b"+1",
    "no ASCII digits": "\u0661".encode(),
    "no fields": b"{}",
    "fields of wrong types": (
        b'{"version":true,"partitions":1,"config":1,"subscription":1,"acls":1,"leader":"0","brokerid":"0",'
        b'"id":1,"entity_path":1,"event":"1","host":1,"broker":"0"}'
    ),
    "too deep": b"[" * 10_000,
    "too long a number": b"9" * 5_000,
    "above 64 bits": b"9" * 19,
}
"""Data that no reader accepts, but for ``ACCEPTED``."""
ACCEPTED = {
    ENTITY_CONFIG.path: {"empty"},  # no settings
    RESOURCE_ACLS.path: {"empty"},  # no ACLs
    PREFIX_ACLS.path: {"empty"},
}


def nonsense_for(kind: Kind[Any]) -> list[bytes]:
    return [data for name, data in NONSENSE.items() if name not in ACCEPTED.get(kind.path, ())]


def store_with(path: str, data: bytes) -> MemoryStore:
    store = MemoryZooKeeper().connect()
    store.create(path, data, make_parents=True)
    return store


@every_kind
def test_nonsense_is_passed_over_with_one_warning(kind: Kind[Any], caplog: pytest.LogCaptureFixture) -> None:
    path, valid = a_znode_of(kind)
    store = store_with(path, valid)
    for data in nonsense_for(kind):
        store.write(path, data)
        caplog.clear()
        for _ in range(2):
            assert Znodes(store).read(path, kind) is None
            assert Znodes(store).read_all([path], kind) == {}
        (record,) = caplog.records
        message = record.getMessage()
        assert record.levelno == logging.WARNING
        assert path in message
        assert repr(data)[:100] in message
        assert message.endswith(kind.remedy)
        assert len(message) < 2_000
        assert Znodes(store).read_all_with_problems([path], kind) == ({}, {path: message})
    store.write(path, valid)
    assert Znodes(store).read(path, kind) == kind.decode(valid, path)
    assert Znodes(store).read_all_with_problems([path], kind)[1] == {}


@every_kind
def test_who_needs_the_value_gets_the_error_with_its_path(kind: Kind[Any]) -> None:
    path, valid = a_znode_of(kind)
    store = store_with(path, valid)
    assert read_or_raise(store, path, kind)[0] == kind.decode(valid, path)
    for data in nonsense_for(kind):
        store.write(path, data)
        with pytest.raises(CoordinationError, match=re.escape(path)):
            read_or_raise(store, path, kind)
    store.delete(path)
    with pytest.raises(NoNode):
        read_or_raise(store, path, kind)


def test_a_problem_is_logged_again_after_another_one(caplog: pytest.LogCaptureFixture) -> None:
    path, valid = a_znode_of(BROKER)
    store = store_with(path, b"nonsense")
    for data in (b"{}", valid, b"nonsense"):
        Znodes(store).read(path, BROKER)
        store.write(path, data)
    store.delete(path)
    Znodes(store).read(path, BROKER)
    store.create(path, b"nonsense")
    Znodes(store).read(path, BROKER)
    assert [BROKER.remedy in message for message in caplog.messages] == [True] * 3


def test_a_secret_in_an_invalid_znode_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    path = "/config/topics/t"
    store = store_with(path, b'{"config":{"sasl.jaas.config":"x password=\\"hidden\\";"},"version":1,')
    assert Znodes(store).read(path, ENTITY_CONFIG) is None
    assert "hidden" not in caplog.text


def test_every_kind_has_a_path_and_what_to_do() -> None:
    assert len({kind.path for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        check_path(kind.path)
        assert kind.holds
        assert kind.source
        assert kind.remedy


@pytest.mark.parametrize(
    ("kind", "data", "named"),
    [
        (BROKER, {"version": 3, "host": "h", "endpoints": [], "timestamp": "1"}, "port"),
        (BROKER, {"version": 3, "host": "h", "port": "1", "endpoints": [], "timestamp": "1"}, "port"),
        (BROKER, {"version": 3, "host": "h", "port": True, "endpoints": []}, "port"),
        (BROKER, {"version": 3, "host": 1, "port": 1, "endpoints": []}, "host"),
        (BROKER, {"version": 3, "host": "h", "port": 1, "endpoints": "x"}, "endpoints"),
        (BROKER, {"version": 3, "host": "h", "port": 1, "endpoints": [1]}, "endpoints"),
        (BROKER, {"version": 3, "host": "h", "port": 1, "endpoints": [], "timestamp": "x"}, "timestamp"),
        (BROKER, {"version": 3, "host": "h", "port": 1, "endpoints": [], "timestamp": "²"}, "timestamp"),
        (BROKER, {"host": "h", "port": 1}, "version"),
        (TOPIC, {"version": 1}, "partitions"),
        (TOPIC, {"version": 1, "partitions": []}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"x": [1]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": 1}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": ["1"]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": [-1]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"²": [1]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"4294967296": [1]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": [1], "00": [2]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": [1.0]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"0": [True]}}, "partitions"),
        (TOPIC, {"version": 1, "partitions": {"-1": [1]}}, "partitions"),
        (PARTITION_STATE, {"leader": 1 << 31, "leader_epoch": 0, "controller_epoch": 1, "isr": []}, "leader"),
        (PARTITION_STATE, {"leader": 0, "leader_epoch": 0, "controller_epoch": 1}, "isr"),
        (PARTITION_STATE, {"leader": "0", "leader_epoch": 0, "controller_epoch": 1, "isr": []}, "leader"),
        (PARTITION_STATE, {"leader": 0, "controller_epoch": 1, "isr": []}, "leader_epoch"),
        (PARTITION_STATE, {"leader": 0, "leader_epoch": 0, "isr": []}, "controller_epoch"),
        (PARTITION_STATE, {"leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1, 1]}, "isr"),
        (PARTITION_STATE, {"leader": -2, "leader_epoch": 0, "controller_epoch": 1, "isr": [1]}, "leader"),
        (
            PARTITION_STATE,
            {"leader": 1, "leader_epoch": -1, "controller_epoch": 1, "isr": [1]},
            "leader_epoch",
        ),
        (
            PARTITION_STATE,
            {"leader": 1, "leader_epoch": LAST, "controller_epoch": 1, "isr": [1]},
            "leader_epoch",
        ),
        (
            PARTITION_STATE,
            {"leader": 1, "leader_epoch": 0, "controller_epoch": -1, "isr": [1]},
            "controller_epoch",
        ),
        (CONTROLLER_REGISTRATION, {"version": 1}, "brokerid"),
        (ENTITY_CONFIG, {"version": 1}, "config"),
        (ENTITY_CONFIG, {"version": 1, "config": {"a": 1}}, "config"),
        (CONFIG_CHANGE, {"entity_path": "topics/t"}, "version"),
        (CONFIG_CHANGE, {"version": 3, "entity_path": "topics/t"}, "version"),
        (CONFIG_CHANGE, {"version": 2, "entity_type": "topics", "entity_name": "t"}, "entity_path"),
        (CONFIG_CHANGE, {"version": 2, "entity_path": "topics"}, "entity_path"),
        (CONFIG_CHANGE, {"version": 2, "entity_path": "topics/"}, "entity_path"),
        (CONFIG_CHANGE, {"version": 2, "entity_path": "planets/t"}, "entity_path"),
        (CONFIG_CHANGE, {"version": 1, "entity_type": "planets", "entity_name": "t"}, "entity_type"),
        (CONFIG_CHANGE, {"version": 1, "entity_type": "topics"}, "entity_name"),
        (CLUSTER, {"version": "1"}, "id"),
        (CLUSTER, {"version": "1", "id": ""}, "id"),
    ],
    ids=lambda value: value.path if isinstance(value, Kind) else None,
)
def test_a_wrong_field_is_named(kind: Kind[Any], data: object, named: str) -> None:
    with pytest.raises(CoordinationError, match=f"/some/path/7: '{named}'"):
        kind.decode(json.dumps(data).encode(), "/some/path/7")


@pytest.mark.parametrize("kind", [REASSIGNMENTS, ELECTION, ISR_CHANGE, LOG_FAILURE], ids=named)
@pytest.mark.parametrize(
    "entry",
    [
        "t-0",
        {"partition": 0, "replicas": [1]},
        {"topic": "", "partition": 0, "replicas": [1]},
        {"topic": 1, "partition": 0, "replicas": [1]},
        {"topic": "t", "replicas": [1]},
        {"topic": "t", "partition": "0", "replicas": [1]},
        {"topic": "t", "partition": True, "replicas": [1]},
        {"topic": "t", "partition": -1, "replicas": [1]},
        {"topic": "t", "partition": 1 << 32, "replicas": [1]},
    ],
)
def test_a_list_with_something_that_is_no_partition_is_invalid(kind: Kind[Any], entry: object) -> None:
    data = json.dumps({"version": 1, "broker": 0, "event": 1, "partitions": [entry]}).encode()
    with pytest.raises(CoordinationError, match="/some/path/7: 'partitions'"):
        kind.decode(data, "/some/path/7")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (BROKER, b'{"version":3,"host":"h","port":1,"endpoints":[]}'),
        (TOPIC, b'{"version":1,"partitions":{"0":[]}}'),
        (EPOCH, b"2147483648"),
        (OFFSET, b"9223372036854775808"),
        (OFFSET, b"7 8"),
        (OFFSET, b"1_000"),
        (OWNER, b"consumer"),
        (OWNER, b"-0"),
        (OWNER, b"consumer-x"),
        (ACL_CHANGE, b"orders"),
        (ACL_CHANGE, b"Topic:"),
        (ACL_CHANGE, b"Topic:a/b"),
        (ACL_CHANGE, b"Planet:x"),
        (EXTENDED_ACL_CHANGE, b'{"version":2,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}'),
        (EXTENDED_ACL_CHANGE, b'{"version":1,"resourceType":"PLANET","name":"a","patternType":"PREFIXED"}'),
        (EXTENDED_ACL_CHANGE, b'{"version":1,"resourceType":"TOPIC","name":"a/b","patternType":"PREFIXED"}'),
        (EXTENDED_ACL_CHANGE, b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}'),
        (LOG_FAILURE, b'{"version":1,"broker":0,"event":2,"partitions":[]}'),
        (CLUSTER, rb'{"version":"1","id":"\uD800"}'),
        (CLUSTER, b'{"version":"1","id":"\xed\xa0\x80"}'),
    ],
    ids=lambda value: value.path if isinstance(value, Kind) else None,
)
def test_a_value_that_cannot_be_is_invalid(kind: Kind[Any], data: bytes) -> None:
    with pytest.raises(CoordinationError, match="/brokers/ids/007: "):
        kind.decode(data, "/brokers/ids/007")


def test_text_may_have_any_character() -> None:
    for text in (r"\ud83d\ude00", "\U0001f600", "\ud55c"):
        data = f'{{"version":"1","id":"{text}"}}'.encode()
        assert CLUSTER.decode(data, "/p").id == json.loads(f'"{text}"')


def test_an_offset_may_end_with_a_new_line() -> None:
    assert OFFSET.decode(b"7\n", "/p") == 7
