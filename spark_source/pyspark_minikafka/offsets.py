"""Offsets: where partitions start and end, their JSON, and what a stream's offset carries.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import BrokerError, ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition, check_topic_name

LATEST = -1
EARLIEST = -2

INITIAL_KEY = "minikafka:initial"
START_KEY = "minikafka:start"

Offsets = dict[TopicPartition, int]
OffsetJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """One end of what is read: all partitions at earliest, all at latest, or each where ``offsets`` says.

    offsets: None, or an offset for every partition, where LATEST and EARLIEST may stand.
    """

    default: int
    offsets: Mapping[TopicPartition, int] | None = None

    def mentions(self, special: int) -> list[TopicPartition]:
        """Partitions that ``offsets`` puts at ``special`` (LATEST or EARLIEST), in order."""
        return sorted(tp for tp, offset in (self.offsets or {}).items() if offset == special)

    @property
    def all_latest(self) -> bool:
        """Whether this is the one word ``latest``."""
        return self.offsets is None and self.default == LATEST

    @property
    def all_earliest(self) -> bool:
        """Whether this is the one word ``earliest``."""
        return self.offsets is None and self.default == EARLIEST

    @property
    def moves(self) -> bool:
        """Whether asking again later can give higher offsets though nothing was deleted."""
        return self.all_latest or bool(self.mentions(LATEST))


ALL_LATEST = OffsetBound(LATEST)
ALL_EARLIEST = OffsetBound(EARLIEST)

_OFFSETS_FORM = 'must be earliest, latest or JSON such as {"topic":{"0":23,"1":-2}} (-1 latest, -2 earliest)'


def parse_bound(name: str, value: str) -> OffsetBound:
    """The value of ``startingOffsets`` or ``endingOffsets``; ConfigError when it is none."""
    text = value.strip()
    if text.lower() == "latest":
        return ALL_LATEST
    if text.lower() == "earliest":
        return ALL_EARLIEST
    document = parse_object(name, value, _OFFSETS_FORM)
    offsets: Offsets = {}
    for topic, partitions in document.items():
        _check_topic(name, value, topic)
        if partitions in ("earliest", "latest"):
            raise ConfigError(name, value, "a word for a whole topic is not supported yet: list partitions")
        if not isinstance(partitions, dict) or not partitions:
            raise ConfigError(name, value, _OFFSETS_FORM)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise ConfigError(name, value, _OFFSETS_FORM)
            if offset < EARLIEST:
                raise ConfigError(name, value, f"offset {offset} of {topic}-{partition} must be at least -2")
            offsets[TopicPartition(topic, int(partition))] = offset
    if not offsets:
        raise ConfigError(name, value, _OFFSETS_FORM)
    return OffsetBound(EARLIEST, offsets)


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


def _check_topic(name: str, value: str, topic: str) -> None:
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError(name, value, problem.detail) from None


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


def check_specified(
    name: str, bound: OffsetBound, assigned: Iterable[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The offsets of ``bound`` when it names exactly the ``assigned`` partitions; ConfigError otherwise."""
    offsets = bound.offsets or {}
    partitions = set(assigned)
    if set(offsets) != partitions:
        raise ConfigError(
            name,
            json.dumps(to_json(offsets)),
            "must name every assigned partition and no other (-1 for latest, -2 for earliest); assigned are "
            f"{_names(partitions)}, missing {_names(partitions - set(offsets))}, "
            f"too many {_names(set(offsets) - partitions)}",
        )
    return offsets


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions)) or "none"
