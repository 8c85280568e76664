"""The history of transactional clients, and the search for Jepsen's anomalies in it.

Writers append values to lists: each partition is one. What they append in one transaction is visible to all
readers with read_committed or to none, together with the offsets that are sent with it. The names are those
of ``anomalies``, whose search this one includes, and

    G1a                   a value of an aborted transaction is in a log, or was read
    precommitted read     a value was read before the commit of its transaction was requested
    G1c                   transactions have read each other's values, in a circle
    torn transaction      some of its values are visible at the end, others are not
    lost offsets          a group's offsets are not those of its last visible transaction
    copied twice          two visible transactions have copied one record
    not copied            a record below the group's offset is in no visible transaction

A write cycle (G0) is legal in Kafka: the values of two open transactions may alternate in the partitions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from minikafka.base.ids import TopicPartition
from minikafka.records.format.batch import ControlType
from minikafka.records.format.record import StoredRecord
from tests.faults import anomalies
from tests.faults.anomalies import History, Poll, Rows

NO_OFFSET = -1
"""A group has no offset of a partition."""


class Outcome(Enum):
    """The end of a transaction, by its writer."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """No commit was requested, or it was refused for good."""
    UNSURE = "unsure"
    """The commit had no clear response."""


@dataclass(slots=True)
class Transaction:
    """One transaction. No value is appended twice."""

    appends: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    """In send order."""
    places: dict[bytes, int] = field(default_factory=dict)
    """The offsets of acknowledged values."""
    reads: list[bytes] = field(default_factory=list)
    """The values that the writer has read between the begin and the end."""
    sources: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    """The records that appended values are copies of."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets that were sent for the writer's group."""
    outcome: Outcome = Outcome.ABORTED
    commit_s: float = math.inf
    """The time before the request of the commit."""


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """The offset of a writer's group that it has fetched when all its transactions so far had ended."""

    partition: TopicPartition
    offset: int
    transactions: int
    """The number of transactions so far."""


@dataclass
class TransactionHistory:
    """The operations of all clients. Each client fills in its own entries."""

    transactions: dict[str, list[Transaction]] = field(default_factory=dict)
    """By writer, in order. Each has ended before the next one begins: a new producer epoch follows an unsure
    outcome."""
    polls: dict[str, list[Poll]] = field(default_factory=dict)
    """By reader, with read_committed."""
    partitions: dict[str, Collection[TopicPartition]] = field(default_factory=dict)
    """By reader, those that it reads to the end."""
    fetches: dict[str, list[OffsetFetch]] = field(default_factory=dict)
    """By writer."""
    wrong: list[str] = field(default_factory=list)
    """Problems that clients have detected themselves."""

    def add_writer(self, name: str) -> list[Transaction]:
        """Add a writer, whose group has the same name, and return its list of transactions."""
        return self.transactions.setdefault(name, [])

    def add_reader(self, name: str, partitions: Collection[TopicPartition]) -> list[Poll]:
        """Add a reader and return its list of polls."""
        self.partitions[name] = partitions
        return self.polls.setdefault(name, [])

    def each_transaction(self) -> Iterator[Transaction]:
        """Yield the transactions of all writers."""
        return chain.from_iterable(self.transactions.values())

    def plain(self) -> History:
        """Return the same history without transactions: what a commit acknowledges, and an abort rejects."""
        plain = History(polls=dict(self.polls), partitions=dict(self.partitions), wrong=self.wrong)
        for name, transactions in self.transactions.items():
            sent = plain.add_sender(name, once=True, in_order=True)
            for transaction in transactions:
                sent += transaction.appends
                for partition, value in transaction.appends:
                    if transaction.outcome is Outcome.COMMITTED:
                        plain.acknowledged[value] = partition, transaction.places.get(value, -1)
                    elif transaction.outcome is Outcome.ABORTED:
                        plain.failed.add(value)
        return plain


def find(
    history: TransactionHistory,
    logs: Mapping[TopicPartition, Rows],
    offsets: Mapping[str, Mapping[TopicPartition, int]],
) -> dict[str, list[str]]:
    """Return the anomalies by name.

    ``logs``: the committed records of each partition at the end, after all reads. ``offsets``: those of the
    groups, by writer.
    """
    found = defaultdict(list, anomalies.find(history.plain(), logs))
    visible = {value for rows in logs.values() for _, value in rows}
    for name, what in (
        *_of_reads(history),
        *_circles(history),
        *_torn(history, visible),
        *_of_offsets(history, visible, offsets),
        *_of_copies(history, visible, logs, offsets),
    ):
        found[name].append(what)
    return dict(found)


def committed_rows(records: Iterable[StoredRecord]) -> list[tuple[int, bytes]]:
    """Return the offsets and values of the committed records of a whole log, by its markers alone."""
    found: list[tuple[int, bytes]] = []
    open_rows: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for record in records:
        if record.control:
            assert record.key is not None
            rows = open_rows.pop(record.producer_id, [])
            if int.from_bytes(record.key[2:4], "big") == ControlType.COMMIT:
                found += rows
        elif record.transactional:
            open_rows[record.producer_id].append((record.offset, record.value or b""))
        else:
            found.append((record.offset, record.value or b""))
    return sorted(found)


def _of_reads(history: TransactionHistory) -> Iterator[tuple[str, str]]:
    by_value = {value: each for each in history.each_transaction() for _, value in each.appends}
    for reader, polls in history.polls.items():
        for poll in polls:
            for offset, value in poll.rows:
                transaction = by_value.get(value)
                if transaction is None:
                    continue
                where = f"{reader} read {value!r} at offset {offset} of {poll.partition}"
                if transaction.outcome is Outcome.ABORTED:
                    yield "G1a", f"{where}, of an aborted transaction"
                elif poll.returned_s < transaction.commit_s:
                    early_s = transaction.commit_s - poll.returned_s
                    yield "precommitted read", f"{where}, {early_s:.3f} s before the commit"


def _circles(history: TransactionHistory) -> Iterator[tuple[str, str]]:
    """Find circles of transactions each of which has read a value of the one before."""
    every = list(history.each_transaction())
    writer_of = {value: number for number, each in enumerate(every) for _, value in each.appends}
    before = [{writer_of[value] for value in each.reads if value in writer_of} for each in every]
    for number, sources in enumerate(before):
        sources.discard(number)
    # Take away all that have read from none of those left; circles, and their readers, are left over.
    readers: dict[int, list[int]] = defaultdict(list)
    for number, sources in enumerate(before):
        for source in sources:
            readers[source].append(number)
    left = {number: len(sources) for number, sources in enumerate(before)}
    free = [number for number, count in left.items() if count == 0]
    while free:
        number = free.pop()
        del left[number]
        for reader in readers[number]:
            left[reader] -= 1
            if left[reader] == 0:
                free.append(reader)
    if left:
        path = [next(iter(left))]
        while path[-1] not in path[:-1]:
            path.append(next(source for source in sorted(before[path[-1]]) if source in left))
        circle = path[path.index(path[-1]) :]
        yield "G1c", " has read from ".join(str(every[number].appends[0][1]) for number in circle)


def _torn(history: TransactionHistory, visible: set[bytes]) -> Iterator[tuple[str, str]]:
    for writer, transactions in history.transactions.items():
        for number, transaction in enumerate(transactions):
            there = [value for _, value in transaction.appends if value in visible]
            missing = [value for _, value in transaction.appends if value not in visible]
            if there and missing:
                what = f"transaction {number} of {writer} ({transaction.outcome.value})"
                yield "torn transaction", f"{what}: {there[0]!r} is visible, {missing[0]!r} is not"


def _of_offsets(
    history: TransactionHistory, visible: set[bytes], offsets: Mapping[str, Mapping[TopicPartition, int]]
) -> Iterator[tuple[str, str]]:
    for writer, transactions in history.transactions.items():
        states = _possible_offsets(transactions, visible)
        for fetch in history.fetches.get(writer, ()):
            possible = states[fetch.transactions].get(fetch.partition, {NO_OFFSET})
            if fetch.offset not in possible:
                when = f"after {fetch.transactions} transactions"
                what = f"{writer} fetched {fetch.offset} of {fetch.partition} {when}"
                yield "lost offsets", f"{what}, expected {sorted(possible)}"
        for partition, possible in states[-1].items():
            last = offsets.get(writer, {}).get(partition, NO_OFFSET)
            if last not in possible:
                what = f"group {writer} has {last} of {partition} at the end"
                yield "lost offsets", f"{what}, expected {sorted(possible)}"


def _possible_offsets(
    transactions: Sequence[Transaction], visible: set[bytes]
) -> list[dict[TopicPartition, set[int]]]:
    """Return the offsets that a group can have after none of its transactions, after one, and so on.

    The values of an unsure transaction tell its outcome; without any, both are possible.
    """
    states: list[dict[TopicPartition, set[int]]] = [{}]
    for transaction in transactions:
        after = dict(states[-1])
        is_visible = any(value in visible for _, value in transaction.appends)
        is_unknown = transaction.outcome is Outcome.UNSURE and not transaction.appends
        for partition, offset in transaction.offsets.items():
            before = after.get(partition, {NO_OFFSET})
            if is_unknown:
                after[partition] = before | {offset}
            elif is_visible or transaction.outcome is Outcome.COMMITTED:
                after[partition] = {offset}
            else:
                after[partition] = before
        states.append(after)
    return states


def _of_copies(
    history: TransactionHistory,
    visible: set[bytes],
    logs: Mapping[TopicPartition, Rows],
    offsets: Mapping[str, Mapping[TopicPartition, int]],
) -> Iterator[tuple[str, str]]:
    for writer, transactions in history.transactions.items():
        copies: dict[tuple[TopicPartition, int], bytes] = {}
        for value, source in chain.from_iterable(each.sources.items() for each in transactions):
            if value in visible and copies.setdefault(source, value) != value:
                what = f"{writer} has copied offset {source[1]} of {source[0]}"
                yield "copied twice", f"{what} as {copies[source]!r} and {value!r}"
        if not any(each.sources for each in transactions):
            continue
        for partition, end in offsets.get(writer, {}).items():
            missing = [
                offset
                for offset, _ in logs.get(partition, ())
                if offset < end and (partition, offset) not in copies
            ]
            if missing:
                what = f"{writer} has not copied {len(missing)} records of {partition} below {end}"
                yield "not copied", f"{what}, first offset {missing[0]}"
