"""Settings of brokers, topics, clients and queries: the same value is read in the same way everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from minikafka.base.config.types import LONG_MAX
from minikafka.base.errors import ConfigError
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.producer.producer_config import ProducerConfig
from minikafka.log.config import LogConfig
from minikafka.server.config.properties import BrokerConfig
from pyspark_minikafka.options.options import Mode, sink_options, source_options

INT = (1 << 31) - 1


@dataclass(frozen=True)
class Surface:
    """A place where settings are given: a number and a truth value there, and the reader of both.

    low, high: the range of the number.
    """

    name: str
    read: Callable[[Mapping[str, str]], Any]
    number: str
    number_field: str
    low: int
    high: int
    boolean: str | None
    boolean_field: str
    refuses_unknown: bool = False

    def __str__(self) -> str:
        return self.name

    def value(self, field: str, given: Mapping[str, str]) -> Any:
        found = self.read(given)
        for part in field.split("."):
            found = getattr(found, part)
        return found


def reader(make: Callable[[Mapping[str, str]], Any], **needed: str) -> Callable[[Mapping[str, str]], Any]:
    names = {name.replace("_", "."): value for name, value in needed.items()}
    return lambda given: make({**names, **given})


def read_topic(given: Mapping[str, str]) -> LogConfig:
    return LogConfig().with_overrides(given)


def read_source(given: Mapping[str, str]) -> Any:
    return source_options({"subscribe": "t", "minikafka.data.dir": "/d", **given}, Mode.STREAM)


def read_sink(given: Mapping[str, str]) -> Any:
    return sink_options({"topic": "t", "minikafka.data.dir": "/d", **given})


SURFACES = [
    Surface(
        "broker",
        reader(BrokerConfig.from_properties, zookeeper_connect="h:1"),
        "num.partitions",
        "default_partitions",
        1,
        INT,
        "auto.create.topics.enable",
        "auto_create_topics",
    ),
    Surface(
        "logs of a broker",
        reader(BrokerConfig.from_properties, zookeeper_connect="h:1"),
        "log.roll.ms",
        "log.segment_ms",
        1,
        LONG_MAX,
        "log.preallocate",
        "log.preallocate",
    ),
    Surface(
        "topic",
        read_topic,
        "min.compaction.lag.ms",
        "min_compaction_lag_ms",
        0,
        LONG_MAX,
        "preallocate",
        "preallocate",
        refuses_unknown=True,
    ),
    Surface(
        "producer",
        BatchingConfig.from_properties,
        "max.request.size",
        "max_request_bytes",
        1,
        INT,
        "enable.idempotence",
        "idempotence",
    ),
    Surface(
        "producer of the texts",
        reader(ProducerConfig.from_properties, metadata_broker_list="h:1"),
        "request.timeout.ms",
        "request_timeout_ms",
        1,
        INT,
        None,
        "",
    ),
    Surface(
        "consumer in a group",
        reader(GroupConsumerConfig.from_properties, group_id="g"),
        "max.poll.records",
        "max_poll_records",
        1,
        INT,
        "enable.auto.commit",
        "auto_commit",
    ),
    Surface(
        "consumer of the texts",
        reader(ConsumerConfig.from_properties, group_id="g", zookeeper_connect="h:1"),
        "num.consumer.fetchers",
        "num_consumer_fetchers",
        1,
        INT,
        "auto.commit.enable",
        "auto_commit_enable",
    ),
    Surface(
        "source",
        read_source,
        "minPartitions",
        "min_partitions",
        1,
        INT,
        "failOnDataLoss",
        "fail_on_data_loss",
    ),
    Surface(
        "client of a source",
        read_source,
        "kafka.fetch.min.bytes",
        "fetch.min_bytes",
        1,
        INT,
        "kafka.check.crcs",
        "fetch.check_crcs",
    ),
    Surface(
        "client of a sink",
        read_sink,
        "kafka.max.request.size",
        "producer.max_request_bytes",
        1,
        INT,
        "kafka.enable.idempotence",
        "producer.idempotence",
    ),
]
of_numbers = pytest.mark.parametrize("surface", SURFACES, ids=str)
of_booleans = pytest.mark.parametrize("surface", [at for at in SURFACES if at.boolean], ids=str)


@of_numbers
@pytest.mark.parametrize("text", ["7", " 7 ", "+7", "\t007\n"])
def test_number_is_read_without_blanks(surface: Surface, text: str) -> None:
    assert surface.value(surface.number_field, {surface.number: text}) == 7


@of_numbers
@pytest.mark.parametrize("text", ["", " ", "1 000", "1_000", "1e3", "7.0", "0x7", "seven", "٧", "true"])
def test_text_that_is_no_number_of_java_is_refused_with_the_range(surface: Surface, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        surface.read({surface.number: text})
    allowed = f"must be a whole number from {surface.low} to {surface.high}"
    assert (refused.value.name, refused.value.value, refused.value.allowed) == (surface.number, text, allowed)


@of_numbers
def test_number_outside_its_range_is_refused_with_the_range(surface: Surface) -> None:
    for number in (surface.low - 1, surface.high + 1, 10**30):
        with pytest.raises(ConfigError, match=f"from {surface.low} to {surface.high}$"):
            surface.read({surface.number: str(number)})


@of_booleans
@pytest.mark.parametrize(("text", "value"), [("TRUE", True), (" true ", True), ("False", False)])
def test_truth_value_is_read_in_any_case(surface: Surface, text: str, value: bool) -> None:
    assert surface.boolean is not None
    needed = {"acks": "all"} if surface.boolean == "enable.idempotence" else {}
    assert surface.value(surface.boolean_field, {surface.boolean: text, **needed}) is value


@of_booleans
@pytest.mark.parametrize("text", ["yes", "1", "on", "", "tru"])
def test_anything_else_is_no_truth_value(surface: Surface, text: str) -> None:
    assert surface.boolean is not None
    with pytest.raises(ConfigError) as refused:
        surface.read({surface.boolean: text})
    assert str(refused.value) == f"{surface.boolean}={text!r}: must be true or false"


@of_numbers
def test_misspelt_name_is_reported_with_the_name_that_was_meant(
    surface: Surface, caplog: pytest.LogCaptureFixture
) -> None:
    misspelt = surface.number[:-2] + surface.number[-1]
    if surface.refuses_unknown:
        with pytest.raises(ConfigError) as refused:
            surface.read({misspelt: "7"})
        reported = str(refused.value)
    else:
        found = surface.read({misspelt: "7"})
        unused = getattr(found, "unused", None)
        warnings = getattr(found, "warnings", ())
        reported = "".join([unused() if unused else "", *warnings, *caplog.messages])
    assert misspelt.lower() in reported.lower()
    assert f"did you mean {surface.number}?" in reported


@pytest.mark.parametrize("name", ["ssl.keystore.password", "sasl.jaas.config", "sasl.mechanism"])
def test_setting_that_is_not_supported_is_reported_and_its_secret_is_not(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {name: "tiger"}
    broker = BrokerConfig.from_properties({"zookeeper.connect": "h:1", **given})
    BatchingConfig.from_properties(given)
    GroupConsumerConfig.from_properties({"group.id": "g", **given})
    reported = [broker.unused(), *caplog.messages]
    for read in (read_source, read_sink):
        with pytest.raises(ConfigError) as refused:
            read({f"kafka.{name}": "tiger"})
        reported.append(str(refused.value))
    assert len(reported) == 5
    assert all(name in text and "support" in text for text in reported)
    if name != "sasl.mechanism":
        assert "tiger" not in "".join([*reported, repr(broker)])
