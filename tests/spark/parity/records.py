"""Topics whose records are numbers, and options that name them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from tests.interop.releases import KAFKA_3_9
from tests.spark.parity.conftest import Source

SECOND = 1_700_000_001_000
"""The time of the second third of the records."""
NEVER = 9_000_000_000_000

STRATEGIES = ("assign", "subscribe", "subscribePattern")

BESIDE_THE_PEER = (
    pytest.mark.interop,
    pytest.mark.skipif(
        not os.environ.get(KAFKA_3_9.variable),
        reason=f"run beside the peer: {KAFKA_3_9.variable} does not name the jars of Apache Kafka",
    ),
)
"""What other tests of ours show too, and what would take long in every run."""


def only_beside_the_peer(test: Any) -> Any:
    """A test with the marks of ``BESIDE_THE_PEER``."""
    for mark in BESIDE_THE_PEER:
        test = mark(test)
    return test


BY_COLUMN_OR_OPTION = pytest.mark.parametrize(
    "by", [*(pytest.param(by, marks=BESIDE_THE_PEER) for by in ("column", "option")), "both"]
)
"""How a sink is told the topic."""


def matrix(*axes: Sequence[str], always: Sequence[tuple[str, ...]]) -> list[Any]:
    """Every combination; those that are not in ``always`` only where the peer is there too."""
    return [
        pytest.param(
            *combination, marks=() if combination in always else BESIDE_THE_PEER, id="-".join(combination)
        )
        for combination in itertools.product(*axes)
    ]


def sent(source: Source, partitions: int = 3) -> str:
    """A topic with the records 0 to 29, of partition ``n % 3``; ten each at three times, a second apart."""
    topic = source.kafka.topic(partitions, config={"retention.ms": "-1"})
    for third in range(3):
        for partition in range(3):
            values = [str(n) for n in range(10 * third, 10 * third + 10) if n % 3 == partition]
            source.kafka.produce(topic, values, partition, timestamp_ms=SECOND + 1_000 * (third - 1))
    return topic


def numbers(*ranges: Sequence[int]) -> list[str]:
    """Their texts, in order of the alphabet."""
    return sorted(str(n) for numbers in ranges for n in numbers)


def strategy(name: str, topic: str) -> dict[str, str]:
    """The option that says to read a topic of three partitions."""
    values = {
        "assign": json.dumps({topic: [0, 1, 2]}),
        "subscribe": topic,
        "subscribePattern": f"{topic[:-1]}.",
    }
    return {name: values[name]}


def each(topic: str, *values: int) -> str:
    """``values`` as an option has them, one for each partition."""
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def after_the_last(option: str, topic: str) -> tuple[dict[str, object], list[str]]:
    """A start later than all of ``sent``, or than its partition 2, and what is read if that means latest."""
    if option == "startingTimestamp":
        return {option: NEVER}, []
    return {option: each(topic, SECOND, SECOND, NEVER)}, numbers(range(12, 30, 3), range(10, 30, 3))


def start(kind: str, topic: str) -> tuple[dict[str, object], list[str]]:
    """Options that say where to start reading ``sent``, and what is read then."""
    return {
        "latest": ({"startingOffsets": "latest"}, []),
        "earliest": ({"startingOffsets": "earliest"}, numbers(range(30))),
        # Of partition 0 the first two are left out, of 1 none; 2 is read from its sixth.
        "offsets": (
            {"startingOffsets": each(topic, 2, -2, 5)},
            numbers(range(6, 30, 3), range(1, 30, 3), range(17, 30, 3)),
        ),
        "times": (
            {"startingOffsetsByTimestamp": each(topic, SECOND, SECOND + 1_000, SECOND - 1)},
            numbers(range(12, 30, 3), range(22, 30, 3), range(11, 30, 3)),
        ),
        "time": ({"startingTimestamp": SECOND}, numbers(range(10, 30))),
    }[kind]
