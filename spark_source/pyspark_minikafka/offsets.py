"""Offsets: their JSON, and what a stream's offset carries.

JSON in the form of Spark's Kafka connector, topics and partitions in order::

    {"flights": {"0": 23, "1": -2}}

-1 stands for latest and -2 for earliest, in options only: what a checkpoint holds is resolved.

A stream's offset may carry one more key. ``:`` cannot stand in a topic name, so the key cannot be a topic:

* ``"minikafka:initial": true`` marks what ``initialOffset()`` gave: the query has planned no batch yet.
* ``"minikafka:start": {…}`` stands in the end offset of batch 0 and says where that batch starts. Spark does
  not keep the initial offset of a Python source: were batch 0 to fail, a restart would ask for it again, and
  with ``startingOffsets=latest`` the records between would be lost. With it batch 0 is replayed as planned.

Later offsets carry nothing extra, so that Spark's own connector can go on from them.
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
START_KEY = "minikafka:start"

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
            document[INITIAL_KEY] = True
        if self.batch_start is not None:
            document[START_KEY] = to_json(self.batch_start)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """The offset in ``document``; BadStreamOffset for what is none."""
        rest = dict(document)
        initial = rest.pop(INITIAL_KEY, False) is True
        start = rest.pop(START_KEY, None)
        if start is not None and not isinstance(start, dict):
            raise BadStreamOffset(f"{START_KEY} in the checkpoint must hold offsets, not {start!r}")
        return cls(_from_json(rest), initial, None if start is None else _from_json(start))


def batch_start(start: StreamOffset, end: StreamOffset) -> Mapping[TopicPartition, int]:
    """Where the batch from ``start`` to ``end`` begins.

    Only for the first batch (its start came from ``initialOffset()``) the addition of ``end`` counts.
    """
    if start.initial and end.batch_start is not None:
        return end.batch_start
    return start.positions
