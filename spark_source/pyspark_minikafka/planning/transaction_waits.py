"""The open transactions for whose end a stream with ``isolation.level`` read_committed waits.

A partition waits if the query has read all up to its last stable offset, and its log goes on: a transaction
is open there. Waits are logged after ten seconds and then every minute, with the producer; and they are in
the newest offset that Spark reports in a query's progress, never in a checkpoint, under the key

    "minikafka:waits=orders:0:120:4711:copier:12000;…": {}

with topic, partition, offset, producer id, transactional id (quoted as in a URL) and milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import quote, unquote

from minikafka.base.clock import Clock
from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import WAITS_KEY

_LOOK_EVERY_MS = 1_000
_FIRST_LINE_MS = 10_000
"""Usual transactions are shorter."""
_LINE_EVERY_MS = 60_000
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class TransactionWait:
    """A partition that is read up to an open transaction.

    offset            the first offset that cannot be read
    producer_id       of the transaction; -1: not known
    transactional_id  empty: not known, or the transaction is hanging
    for_ms            the time for which the query waits; if looked up, that since the transaction began
    """

    offset: int
    producer_id: int = UNKNOWN
    transactional_id: str = ""
    for_ms: int = 0

    @property
    def producer(self) -> str:
        """The producer, for people."""
        if self.producer_id == UNKNOWN:
            return "an unknown producer"
        name = f"transactional id {self.transactional_id!r}" if self.transactional_id else "no known id"
        return f"producer {self.producer_id} ({name})"


Waits = Mapping[TopicPartition, TransactionWait]


class TransactionLookup(Protocol):
    """The look-ups of waits. Each may raise MinikafkaError."""

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends of logs with open transactions."""

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        """Return the first open transaction of each partition that has one."""


class TransactionWatch:
    """Follows the waits of one query, and logs them. ``warn`` logs a line."""

    def __init__(self, lookup: TransactionLookup, clock: Clock, warn: Callable[[str], None]) -> None:
        self._lookup = lookup
        self._clock = clock
        self._warn = warn
        self._looked_ms: int | None = None
        self._waits: dict[TopicPartition, TransactionWait] = {}
        self._since_ms: dict[TopicPartition, int] = {}
        self._logged_ms: dict[TopicPartition, int] = {}

    @property
    def waits(self) -> Waits:
        """The waits as they were observed last."""
        return dict(self._waits)

    def observe(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Compare the positions of the query with the last stable offsets. Raises nothing: a query does not
        fail because its waits cannot be looked up.
        """
        now_ms = self._clock.monotonic_ms()
        at_end = {tp: end for tp, end in ends.items() if positions.get(tp) == end}
        for tp in [tp for tp, wait in self._waits.items() if at_end.get(tp) != wait.offset]:
            self._end(tp, now_ms)
        if not at_end or (self._looked_ms is not None and now_ms - self._looked_ms < _LOOK_EVERY_MS):
            return
        self._looked_ms = now_ms
        try:
            marks = self._lookup.high_watermarks(at_end)
        except MinikafkaError:
            return
        for tp, end in at_end.items():
            if marks.get(tp, end) <= end:
                self._end(tp, now_ms)
                continue
            since_ms = self._since_ms.setdefault(tp, now_ms)
            wait = self._waits.get(tp, TransactionWait(end))
            self._waits[tp] = replace(wait, for_ms=now_ms - since_ms)
        self._log(marks, now_ms)

    def _end(self, tp: TopicPartition, now_ms: int) -> None:
        wait = self._waits.pop(tp, None)
        since_ms, logged_ms = self._since_ms.pop(tp, now_ms), self._logged_ms.pop(tp, None)
        if wait is not None and logged_ms is not None:
            seconds = (now_ms - since_ms) // 1_000
            self._warn(f"{tp}: the transaction of {wait.producer} has ended; waited for {seconds} s")

    def _log(self, marks: Mapping[TopicPartition, int], now_ms: int) -> None:
        due = [
            tp
            for tp, wait in self._waits.items()
            if wait.for_ms >= _FIRST_LINE_MS
            and now_ms - self._logged_ms.get(tp, now_ms - _LINE_EVERY_MS) >= _LINE_EVERY_MS
        ]
        if not due:
            return
        found: Waits = {}
        why = ""
        try:
            found = self._lookup.open_transactions(due)
        except MinikafkaError as problem:
            why = f" (its producer cannot be looked up: {problem})"
        for tp in due:
            known = found.get(tp)
            if known is not None:
                named = known.producer_id, known.transactional_id
                self._waits[tp] = replace(self._waits[tp], producer_id=named[0], transactional_id=named[1])
            wait = self._waits[tp]
            self._logged_ms[tp] = now_ms
            hint = "" if wait.transactional_id else f"; see `minikafka txn find-hanging --topic {tp.topic}`"
            self._warn(
                f"{tp}: waiting for {wait.for_ms // 1_000} s for the end of the transaction of "
                f"{wait.producer}{why}: {marks.get(tp, wait.offset) - wait.offset} offsets from "
                f"{wait.offset} on cannot be read with isolation.level=read_committed{hint}"
            )


def waits_key(waits: Waits) -> str:
    """Return the key of a progress that holds ``waits``."""
    texts = (
        f"{tp.topic}:{tp.partition}:{wait.offset}:{wait.producer_id}:"
        f"{quote(wait.transactional_id, safe='')}:{wait.for_ms}"
        for tp, wait in sorted(waits.items())
    )
    return WAITS_KEY + ";".join(texts)


def parse_waits(document: Mapping[str, object]) -> Waits:
    """Return the waits in the newest offset of a progress."""
    found = {}
    for key in document:
        for text in filter(None, key.removeprefix(WAITS_KEY).split(";")) if key.startswith(WAITS_KEY) else ():
            topic, partition, offset, producer, name, for_ms = text.split(":")
            wait = TransactionWait(int(offset), int(producer), unquote(name), int(for_ms))
            found[TopicPartition(topic, int(partition))] = wait
    return found
