"""Settings of brokers, topics, clients and queries: the same value is read in the same way everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from minikafka.base.config.types import LONG_MAX
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.producer.producer_config import ProducerConfig
from minikafka.log.config import LogConfig
from minikafka.server.config.properties import BrokerConfig
from pyspark_minikafka.options.options import Mode, sink_options, source_options

INT = (1 << 31) - 1
DIRECTORY = {"minikafka.data.dir": "/d"}
READERS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "broker": lambda given: BrokerConfig.from_properties({"zookeeper.connect": "h:1", **given}),
    "topic": LogConfig().with_overrides,
    "producer": BatchingConfig.from_properties,
    "old-producer": lambda given: ProducerConfig.from_properties({"metadata.broker.list": "h:1", **given}),
    "group": lambda given: GroupConsumerConfig.from_properties({"group.id": "g", **given}),
    "old-consumer": lambda given: ConsumerConfig.from_properties(
        {"group.id": "g", "zookeeper.connect": "h:1", **given}
    ),
    "source": lambda given: source_options({"subscribe": "t", **DIRECTORY, **given}, Mode.STREAM),
    "sink": lambda given: sink_options({"topic": "t", **DIRECTORY, **given}),
}
TABLE = f"""
broker        num.partitions          default_partitions          1 {INT}       auto.create.topics.enable  auto_create_topics
broker        log.roll.ms             log.segment_ms              1 {LONG_MAX}  log.preallocate            log.preallocate
topic         min.compaction.lag.ms   min_compaction_lag_ms       0 {LONG_MAX}  preallocate                preallocate
producer      max.request.size        max_request_bytes           1 {INT}       enable.idempotence         idempotence
old-producer  request.timeout.ms      request_timeout_ms          1 {INT}
group         max.poll.records        max_poll_records            1 {INT}       enable.auto.commit         auto_commit
old-consumer  num.consumer.fetchers   num_consumer_fetchers       1 {INT}       auto.commit.enable         auto_commit_enable
source        minPartitions           min_partitions              1 {INT}       failOnDataLoss             fail_on_data_loss
source        kafka.fetch.min.bytes   fetch.min_bytes             1 {INT}       kafka.check.crcs           fetch.check_crcs
sink          kafka.max.request.size  producer.max_request_bytes  1 {INT}       kafka.enable.idempotence   producer.idempotence
"""  # noqa: E501


@dataclass(frozen=True)
class Surface:
    """A reader of settings, and a number and a truth value there: their names and attributes."""

    reader: str
    number: str
    number_field: str
    low: int
    high: int
    boolean: str = ""
    boolean_field: str = ""

    def __str__(self) -> str:
        return f"{self.reader}-{self.number}"

    def read(self, given: Mapping[str, str]) -> Any:
        return READERS[self.reader](given)

    def value(self, field: str, given: Mapping[str, str]) -> Any:
        found = self.read(given)
        for part in field.split("."):
            found = getattr(found, part)
        return found


SURFACES = [
    Surface(reader, number, field, int(low), int(high), *boolean)
    for reader, number, field, low, high, *boolean in map(str.split, TABLE.strip().splitlines())
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
    needed = {"acks": "all"} if surface.boolean == "enable.idempotence" else {}
    assert surface.value(surface.boolean_field, {surface.boolean: text, **needed}) is value


@of_booleans
@pytest.mark.parametrize("text", ["yes", "1", "on", "", "tru"])
def test_anything_else_is_no_truth_value(surface: Surface, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        surface.read({surface.boolean: text})
    assert str(refused.value) == f"{surface.boolean}={text!r}: must be true or false"


@of_numbers
def test_misspelt_name_is_reported_with_the_name_that_was_meant(
    surface: Surface, caplog: pytest.LogCaptureFixture
) -> None:
    misspelt = surface.number[:-2] + surface.number[-1]
    if surface.reader == "topic":
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


@pytest.mark.parametrize("reader", ["source", "sink"])
def test_protocol_that_does_not_exist_is_refused(reader: str) -> None:
    name = "kafka.security.protocol"
    READERS[reader]({name: " plaintext "})
    with pytest.raises(ConfigError) as refused:
        READERS[reader]({name: "SSLL", "kafka.ssl.truststore.password": "tiger"})
    assert (refused.value.name, refused.value.value) == (name, "SSLL")
    assert "must be one of PLAINTEXT, SSL, SASL" in refused.value.allowed
    assert "tiger" not in str(refused.value)


@pytest.mark.parametrize("reader", ["source", "sink"])
def test_every_query_reads_its_security(reader: str) -> None:
    given = {"security.protocol": "ssl", "ssl.enabled.protocols": "TLSv1.3"}
    options = {"kafka.bootstrap.servers": "h:1"} | {f"kafka.{name}": text for name, text in given.items()}
    read = (
        sink_options(options)
        if reader == "sink"
        else source_options({"subscribe": "t", **options}, Mode.BATCH)
    )
    assert read.connection.security == ClientSecurity.from_properties(given)


CLIENTS = ("producer", "old-producer", "group", "old-consumer")


@pytest.mark.parametrize("reader", CLIENTS)
def test_every_client_reads_its_security(reader: str) -> None:
    given = {"security.protocol": "ssl", "ssl.enabled.protocols": "TLSv1.3"}
    assert READERS[reader](given).security == ClientSecurity.from_properties(given)


@pytest.mark.parametrize("reader", CLIENTS)
def test_faults_of_security_come_with_the_others(reader: str) -> None:
    name = "enable.auto.commit" if reader == "group" else "auto.commit.enable"
    name = "request.timeout.ms" if "producer" in reader else name
    given = {"security.protocol": "SSLL", name: "x", "ssl.key.password": "tiger"}
    with pytest.raises(ConfigError) as refused:
        READERS[reader](given)
    assert "security.protocol='SSLL': must be one of PLAINTEXT, SSL, SASL" in str(refused.value)
    assert [fault.name for fault in refused.value.faults] == ["security.protocol", name]
    assert "tiger" not in str(refused.value)
