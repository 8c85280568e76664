"""``clients/consumer/arguments``: arguments of the wrong type, and the errors for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer import Consumer, ConsumerConnector
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import TopicFilter, Whitelist
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.serializer import StringDecoder
from tests.support.connector_harness import ZooKeeperGroupHarness
from tests.support.fetcher_harness import SteppedFetcher

Call = Callable[[Any], object]

WRONG: dict[str, tuple[Call, str]] = {
    "a list of topics": (
        lambda consumer: consumer.create_message_streams(["flights"]),
        r"^topic_count_map: expected a mapping of topics .+, such as {'flights': 1}, got \['flights'\]$",
    ),
    "one topic": (
        lambda consumer: consumer.create_message_streams("flights"),
        "as {'flights': 1}, got 'flights'",
    ),
    "a topic of bytes": (lambda consumer: consumer.create_message_streams({b"t": 1}), "got {b't': 1}"),
    "a decoder's class": (
        lambda consumer: consumer.create_message_streams({"t": 1}, StringDecoder),
        r"^key_decoder: expected an object with from_bytes\(data\), such as StringDecoder\(\).*, got <class",
    ),
    "text as decoder": (
        lambda consumer: consumer.create_message_streams_by_filter(
            Whitelist("t"), 1, StringDecoder(), "utf-8"
        ),
        r"^value_decoder: expected an object with from_bytes\(data\)",
    ),
    "a pattern as filter": (
        lambda consumer: consumer.create_message_streams_by_filter("fli.*", 1),
        r"^topic_filter: .+ Whitelist\('fli\.\*'\) or Blacklist\('fli\.\*'\), got 'fli\.\*'$",
    ),
    "a filter of no kind": (
        lambda consumer: consumer.create_message_streams_by_filter(TopicFilter("t")),
        r"as Whitelist\('fli",
    ),
    "a number as listener": (
        lambda consumer: consumer.set_consumer_rebalance_listener(5),
        "^listener: expected .+ before_releasing_partitions and before_starting_fetchers, got 5$",
    ),
    "a number as offsets": (
        lambda consumer: consumer.commit_offsets(5),
        r"^offsets: expected a mapping .+ as {TopicPartition\('flights', 0\): 12}, got 5$",
    ),
    "an offset as text": (
        lambda consumer: consumer.commit_offsets({("t", 0): "5"}),
        r"got {\('t', 0\): '5'}$",
    ),
    "a topic for a partition": (lambda consumer: consumer.commit_offsets({"t": 5}), "got {'t': 5}$"),
    "a topic to look up": (
        lambda consumer: consumer.fetch_offsets(["t"]),
        "^partition: expected a TopicPartition, such as .*, got 't'$",
    ),
    "None as a partition": (lambda consumer: consumer.fetch_offsets([None]), "got None$"),
    "a partition as text": (
        lambda consumer: consumer.commit_offsets({("t", "0"): 5}),
        r"got {\('t', '0'\): 5}$",
    ),
}


@pytest.mark.parametrize("name", ["a b", "", "..", "t" * 250])
def test_invalid_topic_name_is_refused_and_the_connector_stays_usable(name: str) -> None:
    connector = ZooKeeperGroupHarness(t=1).consumer("a").connector
    with pytest.raises(ConfigError, match=r"^topic=.*: .*topic name"):
        connector.create_message_streams({"t": 1, name: 1})
    assert set(connector.create_message_streams({"t": 1})) == {"t"}


@pytest.mark.parametrize(("call", "text"), WRONG.values(), ids=WRONG)
def test_wrong_types_are_refused_and_the_connector_stays_usable(call: Call, text: str) -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer("a")
    with pytest.raises(TypeError, match=text):
        call(consumer.connector)
    consumer.reads(t=1)
    harness.go()
    assert harness.owners() == ["g_a-0"]


def test_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected offsets of 0 or more, got .*: -1}$"):
        ZooKeeperGroupHarness(t=1).consumer("a").connector.commit_offsets({TopicPartition("t", 0): -1})


def test_negative_partition_is_refused() -> None:
    with pytest.raises(ValueError, match=r"number of 0 or more, got -1 \(topic 't'\)$"):
        ZooKeeperGroupHarness(t=1).consumer("a").connector.commit_offsets({TopicPartition("t", -1): 1})


def test_commit_of_an_invalid_topic_writes_nothing() -> None:
    harness = ZooKeeperGroupHarness(t=1)
    consumer = harness.consumer("a").joins(t=1)
    with pytest.raises(ConfigError, match=r"^topic='a/b': .*topic name"):
        consumer.connector.commit_offsets({TopicPartition("t", 0): 5, TopicPartition("a/b", 0): 1})
    assert harness.offset() is None


def test_connector_requires_settings_or_a_mapping_of_them() -> None:
    config: Any = "group.id=g"
    with pytest.raises(TypeError, match=r"^config: expected a ConsumerConfig, or a mapping of properties"):
        Consumer.create(config)


def test_faults_of_a_mapping_are_named_by_their_property() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        Consumer.create({"group.id": "g"})


def test_connector_takes_a_mapping_of_properties() -> None:
    harness = ZooKeeperGroupHarness(t=1)
    properties = {"group.id": "g", "zookeeper.connect": "memory:1", "auto.commit.enable": "false"}
    with ZookeeperConsumerConnector(
        properties,
        store=harness.zookeeper.connect(),
        fetcher=SteppedFetcher(harness.brokers),
        clock=harness.clock,
        threads=False,
    ) as connector:
        assert (connector.config.group_id, connector.config.auto_commit_enable) == ("g", False)


@pytest.mark.parametrize("given", ["group.id=g", ["group.id"], None])
def test_properties_that_are_not_a_mapping_are_refused(given: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^expected a mapping of properties, such as {'group\.id': 'billing', …}, got "
    ):
        ConsumerConfig.from_properties(given)


@pytest.mark.parametrize("given", [5, None, ["a", "b"], b"a"])
def test_filter_requires_a_pattern_as_text(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^Whitelist: expected one pattern, such as 'flights.+', got "):
        Whitelist(given)


@pytest.mark.parametrize("kind", [Consumer, ConsumerConnector, ZookeeperConsumerConnector])
def test_every_public_method_has_its_own_name_and_docstring(kind: type) -> None:
    methods = [
        (name, method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert methods
    for name, method in methods:
        assert method.__name__ == name
        assert inspect.getdoc(method)
