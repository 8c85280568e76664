"""Offsets: their JSON, and the extra keys of a stream's offset.

JSON in the form of Spark's Kafka connector, topics and partitions in order::

    {"flights": {"0": 23, "1": -2}}

-1 means latest and -2 earliest, in options only: offsets in a checkpoint are resolved.

A stream's offset may have one more key. A topic name cannot contain ``:``, so the key cannot be a topic:

* ``"minikafka:initial": {}`` marks the result of ``initialOffset()``: the query has planned no batch yet.
* ``"minikafka:start=flights:0:23,1:40;delays:0:5": {}`` is in the end offset of batch 0 and holds the start
  of that batch. Spark does not store the initial offset of a Python source: if batch 0 failed, a restart
  would ask for it again, and with ``startingOffsets=latest`` the records between would be lost. With this key
  batch 0 is replayed as planned.

The key itself holds the data and its value is empty, so Spark's own connector, which can continue from any
offset, and listeners to a query's progress, which show offsets, find nothing there that looks like one.
Older checkpoints have ``"minikafka:start": {OFFSETS}``, which is read as well. Later offsets have no such
key. ``"minikafka:waits=…"`` is only in what a query's progress reports (``planning.transaction_waits``).
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
WAITS_KEY = "minikafka:waits="
_OURS = "minikafka:"

Offsets = dict[TopicPartition, int]
OffsetJson = dict[str, Any]


def parse_object(name: str, value: str, allowed: str) -> dict[str, Any]:
    """Parse ``value`` as a JSON object with unique keys. Raise ConfigError with ``allowed`` otherwise."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ConfigError(name, value, "names a topic or partition twice")
        return found

    try:
        document = json.loads(value, object_pairs_hook=unique)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(name, value, f"{allowed}; not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ConfigError(name, value, allowed)
    return document


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """Return ``{topic: {partition: offset}}``, sorted by topic and partition, as Spark's connector does."""
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
                f"the checkpoint contains {json.dumps(document)}, which is not an offset of a Kafka source "
                '({"topic": {"partition": offset}}); use the checkpoint of this query, or a new directory'
            ) from None
    return offsets


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream's offset as Spark stores it.

    positions: the next offset to read of every partition.
    initial: from ``initialOffset()``; no batch was planned from it yet.
    batch_start: in batch 0's end offset, the start of that batch.
    """

    positions: Mapping[TopicPartition, int]
    initial: bool = False
    batch_start: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> OffsetJson:
        """Return the offset as a dict for Spark."""
        document = to_json(self.positions)
        if self.initial:
            document[INITIAL_KEY] = {}
        if self.batch_start is not None:
            document[_start_key(self.batch_start)] = {}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """Parse ``document``. Raise BadStreamOffset when it is not an offset."""
        rest = {name: value for name, value in document.items() if not name.startswith(_OURS)}
        initial, start = False, None
        for name, value in document.items():
            if name == INITIAL_KEY:
                initial = True
            elif name == _FORMER_START_KEY and isinstance(value, dict):
                start = _from_json(value)
            elif name.startswith(START_KEY) and value == {}:
                start = _of_start_key(name)
            elif name.startswith(_OURS) and not name.startswith(WAITS_KEY):
                raise _unknown_key(name, value)
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
                raise _unknown_key(key, {})
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def _unknown_key(key: str, value: object) -> BadStreamOffset:
    return BadStreamOffset(
        f"the checkpoint contains {json.dumps({key: value})[:200]}, which this version of minikafka cannot "
        "read; use the checkpoint of this query, and the version that wrote it or a newer one"
    )


def batch_start(start: StreamOffset, end: StreamOffset) -> Mapping[TopicPartition, int]:
    """Return the first offsets of the batch from ``start`` to ``end``.

    The start inside ``end`` counts only for the first batch, whose start came from ``initialOffset()``.
    """
    if start.initial and end.batch_start is not None:
        return end.batch_start
    return start.positions
