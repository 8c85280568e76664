"""The history of a cluster's clients, and the search for Jepsen's anomalies in it.

The names are those of Jepsen's test of Kafka-like logs. Its anomalies of transactions are in
``transaction_anomalies``. An "int-" anomaly is within one operation, the one of the same name without the
prefix between two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from minikafka.base.ids import TopicPartition

Partition = int | TopicPartition
"""A number, where all are of one topic."""
Rows = Sequence[tuple[int, bytes]]
"""Offset and value, in the order of offsets."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The guarantees of one producer."""

    once: bool
    """A retry is not written twice."""
    in_order: bool
    """No value overtakes an earlier one of the same partition."""


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of one poll for one partition. Positions continue only within one ``assignment``."""

    assignment: int
    partition: Partition
    rows: tuple[tuple[int, bytes], ...]
    returned_s: float = math.inf
    """The time after it returned."""


@dataclass
class History:
    """The operations of all clients. Each client fills in its own entries."""

    senders: dict[str, Sender] = field(default_factory=dict)
    sent: dict[str, list[tuple[Partition, bytes]]] = field(default_factory=dict)
    """Partition and value, in send order; no value is sent twice."""
    acknowledged: dict[bytes, tuple[Partition, int]] = field(default_factory=dict)
    """With acks=all: value -> partition and offset, -1 if the response had none."""
    failed: set[bytes] = field(default_factory=set)
    """Values that were rejected before any write."""
    polls: dict[str, list[Poll]] = field(default_factory=dict)
    partitions: dict[str, Collection[Partition]] = field(default_factory=dict)
    """The partitions of those readers that do not read all."""
    wrong: list[str] = field(default_factory=list)
    """Problems that clients have detected themselves."""

    def add_sender(self, name: str, *, once: bool, in_order: bool) -> list[tuple[Partition, bytes]]:
        """Add a producer and return its list of sent values."""
        self.senders[name] = Sender(once, in_order)
        return self.sent.setdefault(name, [])

    def add_reader(self, name: str) -> list[Poll]:
        """Add a reader and return its list of polls."""
        return self.polls.setdefault(name, [])

    def all_sent(self) -> int:
        """Return the number of sent values."""
        return sum(map(len, self.sent.values()))

    def all_read(self) -> dict[str, int]:
        """Return the number of records that each reader has read."""
        return {name: sum(len(poll.rows) for poll in polls) for name, polls in self.polls.items()}


def find(history: History, logs: Mapping[Partition, Rows]) -> dict[str, list[str]]:
    """Return the anomalies by name. ``logs``: the content of each partition at the end, after all reads."""
    found: dict[str, list[str]] = defaultdict(list)
    there = {partition: dict(rows) for partition, rows in logs.items()}
    places: dict[bytes, list[tuple[Partition, int]]] = defaultdict(list)
    for partition, rows in logs.items():
        for offset, value in rows:
            places[value].append((partition, offset))
    for name, what in (
        *_of_the_log(history, places),
        *_of_sends(history, there, places),
        *(anomaly for reader in history.polls for anomaly in _of_polls(history, reader, logs, there)),
        *(("reported by a client", problem) for problem in history.wrong),
    ):
        found[name].append(what)
    return dict(found)


def _of_the_log(
    history: History, places: Mapping[bytes, Sequence[tuple[Partition, int]]]
) -> Iterator[tuple[str, str]]:
    known = {value: name for name, sent in history.sent.items() for _, value in sent}
    for value, where in places.items():
        name = known.get(value)
        if name is None:
            yield "phantom", f"{value!r} at {where} was never sent"
        elif value in history.failed:
            yield "G1a", f"{value!r} at {where} was rejected"
        elif len(where) > 1 and history.senders[name].once:
            yield "duplicate", f"{value!r} is at {where}"
    for name, sender in history.senders.items():
        if sender.in_order:
            first = [
                (partition, places[value][0]) for partition, value in history.sent[name] if value in places
            ]
            for partition in {number for number, _ in first}:
                for before, after in pairwise(place for number, place in first if number == partition):
                    if before > after:
                        yield "reordered", f"{name}: an earlier value is at {before}, a later one at {after}"


def _of_sends(
    history: History,
    there: Mapping[Partition, Mapping[int, bytes]],
    places: Mapping[bytes, Sequence[tuple[Partition, int]]],
) -> Iterator[tuple[str, str]]:
    by_place: dict[tuple[Partition, int], bytes] = {}
    for value, place in history.acknowledged.items():
        partition, offset = place
        if value not in places:
            yield "lost write", f"{value!r} was acknowledged at {place}, and is not in any log"
        if offset < 0:
            continue
        if by_place.setdefault(place, value) != value:
            yield "inconsistent offsets", f"{by_place[place]!r} and {value!r} were acknowledged at {place}"
        if there.get(partition, {}).get(offset) != value:
            other = there.get(partition, {}).get(offset)
            yield "inconsistent offsets", f"{value!r} was acknowledged at {place}, where {other!r} is"
    for name, sender in history.senders.items():
        last: dict[Partition, int] = {}
        for partition, value in history.sent[name] if sender.in_order else ():
            offset = history.acknowledged.get(value, (partition, -1))[1]
            if offset >= 0:
                if offset <= last.get(partition, -1):
                    yield "nonmonotonic send", f"{name}: {value!r} at {offset} follows {last[partition]}"
                last[partition] = offset


def _of_polls(
    history: History,
    reader: str,
    logs: Mapping[Partition, Rows],
    there: Mapping[Partition, Mapping[int, bytes]],
) -> Iterator[tuple[str, str]]:
    seen: dict[Partition, set[int]] = {partition: set() for partition in logs}
    last: dict[Partition, tuple[int, int]] = {}
    for poll in history.polls[reader]:
        partition, within = poll.partition, ""
        for offset, value in poll.rows:
            if there.get(partition, {}).get(offset) != value:
                other = there.get(partition, {}).get(offset)
                where = f"offset {offset} of partition {partition}"
                yield "inconsistent offsets", f"{reader} read {value!r} at {where}, where {other!r} is"
            assignment, before = last.get(partition, (-1, -1))
            if assignment == poll.assignment:
                what = f"{reader} read offset {offset} of partition {partition} after {before}"
                if offset <= before:
                    yield f"{within}nonmonotonic poll", what
                elif any(skipped in there[partition] for skipped in range(before + 1, offset)):
                    yield f"{within}poll skip", what
            last[partition] = poll.assignment, offset
            seen.setdefault(partition, set()).add(offset)
            within = "int-"
    for partition in history.partitions.get(reader, logs):
        rows = logs[partition]
        unseen = [(offset, value) for offset, value in rows if offset not in seen[partition]]
        if unseen:
            yield "unseen", f"{reader} did not read {len(unseen)} of partition {partition}, first {unseen[0]}"


def shown(found: Mapping[str, Iterable[str]], most: int = 3) -> str:
    """Return the first ``most`` anomalies of each kind as text."""
    lines = []
    for name, all_of_them in sorted(found.items()):
        examples = list(all_of_them)
        lines += [f"{name}: {len(examples)}", *(f"    {example}" for example in examples[:most])]
    return "\n".join(lines)
