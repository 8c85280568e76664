"""Spark's own source and sink ``kafka`` on our broker: no groups, no admin, but checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.clients import CODECS
from tests.interop.conftest import Broker, Pair, recorded
from tests.interop.driver import Message, Program
from tests.interop.spark_connector import PROGRAMS, spark_connector

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(broker: Broker) -> Iterator[tuple[Program, str]]:
    """Spark with its connector, and the connector's version."""
    peer = spark_connector()
    program = Program(
        [peer.python, str(PROGRAMS / "spark_kafka.py"), broker.bootstrap, peer.jars], peer.environment()
    )
    yield program, peer.number
    program.close()


@pytest.fixture
def spark(request: pytest.FixtureRequest, running: tuple[Program, str]) -> Program:
    """The program; the test's feature goes into the report."""
    program, number = running
    recorded(request, "Spark's kafka format", number)
    return program


def sent_by_spark(program: Program, topic: str, pairs: list[Pair], codec: str = "none") -> list[Message]:
    """Hard records for two partitions, as they must come back but for their times, which are Spark's."""
    headers = (("h", b"\xfe\x00"), ("null", None), ("h", b""))
    messages = [
        Message(number % 2, 0, key, value, headers[: number % 4], number // 2)
        for number, (key, value) in enumerate(pairs)
    ]
    lines = (message.line() for message in messages)
    program.ask("produce", topic, codec, "default", len(messages), lines=lines)
    return messages


def received(answer: list[list[str]]) -> list[Message]:
    """By partition and offset."""
    messages = [Message.parse(words) for words in answer]
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def timeless(messages: list[Message]) -> list[Message]:
    """Without the times."""
    found = [replace(message, timestamp_ms=0) for message in messages]
    return sorted(found, key=lambda message: (message.partition, message.offset))


@pytest.mark.parametrize("codec", CODECS)
def test_spark_reads_what_spark_wrote(spark: Program, broker: Broker, pairs: list[Pair], codec: str) -> None:
    """produce and read."""
    topic, began_ms = broker.create_topic(2), int(time.time() * 1000)
    sent = sent_by_spark(spark, topic, pairs, codec)
    found = received(spark.ask("read", topic))
    assert timeless(found) == timeless(sent)
    assert all(began_ms <= message.timestamp_ms <= time.time() * 1000 for message in found)


def test_spark_begins_at_a_time(spark: Program, broker: Broker, pairs: list[Pair]) -> None:
    """offsets by time."""
    topic = broker.create_topic(2)
    sent_by_spark(spark, topic, pairs)
    between_ms = int(time.time() * 1000) + 1
    spark.until_told(lambda: time.time() * 1000 > between_ms, "next millisecond")
    sent_by_spark(spark, topic, pairs[:10])
    found = received(spark.ask("since", topic, between_ms))
    expected = [(key, value) for half in (0, 1) for key, value in pairs[half:10:2]]
    assert [(message.key, message.value) for message in found] == expected


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: Program, broker: Broker, pairs: list[Pair], tmp_path: Path
) -> None:
    """commit and resume."""
    topic = broker.create_topic(2)
    first = sent_by_spark(spark, topic, pairs)
    assert timeless(received(spark.ask("stream", topic, tmp_path))) == timeless(first)
    second = sent_by_spark(spark, topic, pairs[:20])
    found = received(spark.ask("stream", topic, tmp_path))
    assert timeless(found) == timeless(
        [replace(message, offset=message.offset + len(pairs) // 2) for message in second]
    )


def test_a_stream_writes_what_it_reads(
    spark: Program, broker: Broker, pairs: list[Pair], tmp_path: Path
) -> None:
    """write a stream."""
    topic, to = broker.create_topic(2), broker.create_topic(2)
    sent = sent_by_spark(spark, topic, pairs, "zstd")
    spark.ask("copy", topic, to, tmp_path)
    assert timeless(received(spark.ask("read", to))) == timeless(sent)
