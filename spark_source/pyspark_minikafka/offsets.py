"""Offsets: their JSON, and what a stream's offset carries.

JSON in the form of Spark's Kafka connector, topics and partitions in order::

    {"flights": {"0": 23, "1": -2}}

-1 stands for latest and -2 for earliest, in options only: what a checkpoint holds is resolved.

A stream's offset may carry one more key. ``:`` cannot stand in a topic name, so the key cannot be a topic:

* ``"minikafka:initial": {}`` marks what ``initialOffset()`` gave: the query has planned no batch yet.
* ``"minikafka:start=flights:0:23,1:40;delays:0:5": {}`` stands in the end offset of batch 0 and says where
  that batch starts. Spark does not keep the initial offset of a Python source: were batch 0 to fail, a
  restart would ask for it again, and with ``startingOffsets=latest`` the records between would be lost. With
  it batch 0 is replayed as planned.

Such a key says all by itself and has no partitions, so that Spark's own connector, which can go on from any
offset, and listeners to a query's progress, which show them, find nothing there that looks like an offset.
Checkpoints before had ``"minikafka:start": {OFFSETS}``, which is read as well. Later offsets carry nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition

LATEST = -1
EARLIEST = -2

INITIAL_KEY = "minikafka:initial"
START_KEY = "minikafka:start="
_FORMER_START_KEY = "minikafka:start"
_OURS = "minikafka:"

Offsets = dict[TopicPartition, int]
OffsetJson = dict[str, Any]


def parse_object(name: str, value: str, allowed: str) -> dict[str, Any]:
    """``value`` as a JSON object in which no key stands twice; ConfigError with ``allowed`` otherwise."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ConfigError(name, value, "a topic or partition stands in it twice")
        return found

    try:
        document = json.loads(value, object_pairs_hook=unique)
    except ValueError as problem:
        raise ConfigError(name, value, f"{allowed}; not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ConfigError(name, value, allowed)
    return document


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """``{topic: {partition: offset}}``, topics by name and partitions by number, as the peer writes them."""
    document: OffsetJson = {}
    for topic, partition in sorted(offsets):
        document.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return document


class BadStreamOffset(MinikafkaError):
    """An offset in a checkpoint that this source cannot read."""


def _from_json(document: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = {}
    for topic, partitions in document.items():
        try:
            for partition, offset in partitions.items():
                offsets[TopicPartition(topic, int(partition))] = int(offset)
        except (AttributeError, TypeError, ValueError):
            raise BadStreamOffset(
                f"the checkpoint holds {json.dumps(document)}, which is no offset of a Kafka source "
                '({"topic": {"partition": offset}}); use the checkpoint of this query, or a new directory'
            ) from None
    return offsets


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """An offset as Spark keeps it.

    positions: next offset to read of every partition.
    initial: from ``initialOffset()``; no batch was planned from it yet.
    batch_start: in batch 0's end offset, where that batch starts.
    """

    positions: Mapping[TopicPartition, int]
    initial: bool = False
    batch_start: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> OffsetJson:
        """As a dict for Spark."""
        document = to_json(self.positions)
        if self.initial:
            document[INITIAL_KEY] = {}
        if self.batch_start is not None:
            document[_start_key(self.batch_start)] = {}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """The offset in ``document``; BadStreamOffset for what is none."""
        rest = {name: value for name, value in document.items() if not name.startswith(_OURS)}
        initial, start = False, None
        for name, value in document.items():
            if name == INITIAL_KEY:
                initial = True
            elif name == _FORMER_START_KEY and isinstance(value, dict):
                start = _from_json(value)
            elif name.startswith(START_KEY) and value == {}:
                start = _of_start_key(name)
            elif name.startswith(_OURS):
                raise _not_ours(name, value)
        return cls(_from_json(rest), initial, start)


def _start_key(start: Mapping[TopicPartition, int]) -> str:
    topics = (
        f"{topic}:" + ",".join(f"{partition}:{offset}" for partition, offset in partitions.items())
        for topic, partitions in to_json(start).items()
    )
    return START_KEY + ";".join(topics)


def _of_start_key(key: str) -> Offsets:
    offsets: Offsets = {}
    for text in filter(None, key.removeprefix(START_KEY).split(";")):
        topic, _, partitions = text.partition(":")
        for pair in partitions.split(","):
            partition, _, offset = pair.partition(":")
            if not partition.isdecimal() or not offset.isdecimal():
                raise _not_ours(key, {})
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def _not_ours(key: str, value: object) -> BadStreamOffset:
    return BadStreamOffset(
        f"the checkpoint holds {json.dumps({key: value})[:200]}, which this version of minikafka does not "
        "know: use the checkpoint of this query, and the version that wrote it or a newer one"
    )


def batch_start(start: StreamOffset, end: StreamOffset) -> Mapping[TopicPartition, int]:
    """Return the first offsets of the batch from ``start`` to ``end``.

    Only for the first batch (its start came from ``initialOffset()``) the addition of ``end`` counts.
    """
    if start.initial and end.batch_start is not None:
        return end.batch_start
    return start.positions
