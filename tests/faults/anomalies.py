"""What clients of a cluster have seen, and which of Jepsen's anomalies are in it.

The names are those of Jepsen's test of Kafka-like logs. Of its list, what needs transactions (G0, G1c, a read
before the commit) cannot be here, as there are none; an "int-" anomaly lies within one operation, the other
of its name between two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Rows = Sequence[tuple[int, bytes]]
"""Offset and value, by offset."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What is promised of what one producer sends."""

    once: bool
    """A retry is not written again."""
    in_order: bool
    """Nothing overtakes what was sent before, to the same partition."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll gave of one partition. ``assignment``: positions go on only within one."""

    assignment: int
    partition: int
    rows: tuple[tuple[int, bytes], ...]


@dataclass
class History:
    """Filled in by clients, each in its own entries."""

    senders: dict[str, Sender] = field(default_factory=dict)
    sent: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Partition and value, in their order; no value is sent twice."""
    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """With acks=all: value -> partition and offset, -1 where that was not told."""
    failed: set[bytes] = field(default_factory=set)
    """Refused before anything was written."""
    polls: dict[str, list[Poll]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """What clients noticed themselves."""

    def add_sender(self, name: str, *, once: bool, in_order: bool) -> list[tuple[int, bytes]]:
        """Its list of what was sent."""
        self.senders[name] = Sender(once, in_order)
        return self.sent.setdefault(name, [])

    def add_reader(self, name: str) -> list[Poll]:
        """Its list of polls."""
        return self.polls.setdefault(name, [])

    def all_sent(self) -> int:
        """How many values."""
        return sum(map(len, self.sent.values()))

    def all_read(self) -> dict[str, int]:
        """How many records each reader was given."""
        return {name: sum(len(poll.rows) for poll in polls) for name, polls in self.polls.items()}


def find(history: History, logs: Mapping[int, Rows]) -> dict[str, list[str]]:
    """The anomalies, by name. ``logs``: what each partition holds in the end; every reader has read it."""
    found: dict[str, list[str]] = defaultdict(list)
    there = {partition: dict(rows) for partition, rows in logs.items()}
    places: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for partition, rows in logs.items():
        for offset, value in rows:
            places[value].append((partition, offset))
    for name, what in (
        *_of_the_log(history, places),
        *_of_sends(history, there, places),
        *(one for reader in history.polls for one in _of_polls(history, reader, logs, there)),
        *(("told by a client", one) for one in history.wrong),
    ):
        found[name].append(what)
    return dict(found)


def _of_the_log(
    history: History, places: Mapping[bytes, Sequence[tuple[int, int]]]
) -> Iterator[tuple[str, str]]:
    known = {value: name for name, sent in history.sent.items() for _, value in sent}
    for value, where in places.items():
        name = known.get(value)
        if name is None:
            yield "phantom", f"{value!r} at {where} was sent by nobody"
        elif value in history.failed:
            yield "G1a", f"{value!r} at {where} was refused"
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
                        yield "reordered", f"what {name} sent first is at {before}, what followed at {after}"


def _of_sends(
    history: History,
    there: Mapping[int, Mapping[int, bytes]],
    places: Mapping[bytes, Sequence[tuple[int, int]]],
) -> Iterator[tuple[str, str]]:
    by_place: dict[tuple[int, int], bytes] = {}
    for value, place in history.acknowledged.items():
        partition, offset = place
        if value not in places:
            yield "lost write", f"{value!r} was acknowledged at {place}, and is nowhere"
        if offset < 0:
            continue
        if by_place.setdefault(place, value) != value:
            yield "inconsistent offsets", f"{by_place[place]!r} and {value!r} were acknowledged at {place}"
        if there.get(partition, {}).get(offset) != value:
            other = there.get(partition, {}).get(offset)
            yield "inconsistent offsets", f"{value!r} was acknowledged at {place}, where {other!r} is"
    for name, sender in history.senders.items():
        last: dict[int, int] = {}
        for partition, value in history.sent[name] if sender.in_order else ():
            offset = history.acknowledged.get(value, (partition, -1))[1]
            if offset >= 0:
                if offset <= last.get(partition, -1):
                    yield "nonmonotonic send", f"{name}: {value!r} at {offset} follows {last[partition]}"
                last[partition] = offset


def _of_polls(
    history: History, reader: str, logs: Mapping[int, Rows], there: Mapping[int, Mapping[int, bytes]]
) -> Iterator[tuple[str, str]]:
    seen: dict[int, set[int]] = {partition: set() for partition in logs}
    last: dict[int, tuple[int, int]] = {}
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
                elif any(one in there[partition] for one in range(before + 1, offset)):
                    yield f"{within}poll skip", what
            last[partition] = poll.assignment, offset
            seen.setdefault(partition, set()).add(offset)
            within = "int-"
    for partition, rows in logs.items():
        unseen = [(offset, value) for offset, value in rows if offset not in seen[partition]]
        if unseen:
            yield "unseen", f"{reader} did not read {len(unseen)} of partition {partition}, first {unseen[0]}"


def shown(found: Mapping[str, Iterable[str]], most: int = 3) -> str:
    """The first few of each kind."""
    lines = []
    for name, all_of_them in sorted(found.items()):
        examples = list(all_of_them)
        lines += [f"{name}: {len(examples)}", *(f"    {one}" for one in examples[:most])]
    return "\n".join(lines)
