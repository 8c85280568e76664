"""Options of delivery: at least once, and exactly once."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from minikafka.base.errors import ConfigError
from pyspark_minikafka.options.delivery_options import Delivery
from pyspark_minikafka.options.options import SinkOptions, sink_options
from pyspark_minikafka.writing.writer import stream_writer

EXACTLY_ONCE = {"topic": "t", "kafka.bootstrap.servers": "h:1", "minikafka.delivery": "exactly-once"}


def sink(**given: str) -> SinkOptions:
    return sink_options({**EXACTLY_ONCE, **{name.replace("__", "."): value for name, value in given.items()}})


def test_rows_are_written_at_least_once_by_default() -> None:
    found = sink_options({"topic": "t"}).delivery
    assert (found.delivery, found.is_exactly_once, found.sink_id) == (Delivery.AT_LEAST_ONCE, False, None)


def test_an_exactly_once_sink_has_an_id_and_a_time_out() -> None:
    found = sink(minikafka__sink__id=" orders-1 ", kafka__transaction__timeout__ms="7000")
    assert found.delivery.sink_id == "orders-1"
    assert found.delivery.transaction_timeout_ms == 7_000
    assert found.warnings == ()


def test_a_relative_checkpoint_is_in_the_directory_of_spark() -> None:
    options = {**EXACTLY_ONCE, "checkpointLocation": "here"}
    assert sink_options(options, working_directory="/start").delivery.checkpoint == "/start/here"
    assert sink(checkpointLocation="s3a://bucket/c").delivery.checkpoint == "s3a://bucket/c"


@pytest.mark.parametrize("sink_id", ["", "two words", "a/b", "x" * 250])
def test_an_id_that_is_no_part_of_a_topic_name_is_refused(sink_id: str) -> None:
    with pytest.raises(ConfigError, match=r"minikafka\.sink\.id"):
        sink(minikafka__sink__id=sink_id)


@pytest.mark.parametrize(
    "given",
    [
        {"kafka__acks": "1"},
        {"kafka__retries": "0"},
        {"kafka__enable__idempotence": "false"},
        {"kafka__max__in__flight__requests__per__connection": "6"},
    ],
)
def test_a_producer_that_may_write_twice_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"minikafka\.delivery='exactly-once': needs kafka\.acks=all"):
        sink(**given)


def test_an_unknown_delivery_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="at-least-once"):
        sink_options({"topic": "t", "minikafka.delivery": "twice"})


def test_options_of_exactly_once_have_no_effect_without_it() -> None:
    options = {"topic": "t", "minikafka.sink.id": "s", "kafka.transaction.timeout.ms": "9"}
    (warning,) = sink_options(options).warnings
    assert warning.startswith("minikafka.sink.id, kafka.transaction.timeout.ms has no effect without")


def test_a_stream_without_an_id_is_refused() -> None:
    schema = StructType([StructField("value", StringType())])
    with pytest.raises(ConfigError, match=r"minikafka\.sink\.id.*is required for a stream"):
        stream_writer(EXACTLY_ONCE, schema)
