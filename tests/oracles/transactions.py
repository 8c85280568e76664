"""The committed records of transactions, in plain Python: the rule of Kafka's consumer, and that of its
broker, which lists the aborted transactions. It shares nothing with the project's own code.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracles.batches import decode_batch, number
from tests.oracles.messages import Message


@dataclass(frozen=True)
class Transaction:
    """``last`` is the offset of its mark."""

    producer_id: int
    first: int
    last: int
    aborted: bool


def aborted_in(transactions: list[Transaction], start: int, end: int) -> list[tuple[int, int]]:
    """Producer and first offset of each that a broker names with the offsets from ``start`` to before
    ``end``.
    """
    return [(t.producer_id, t.first) for t in transactions if t.aborted and t.last >= start and t.first < end]


def committed(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[Message]:
    """The records that a consumer gives out (``CompletedFetch.nextFetchedRecord`` of 3.9)."""
    queue = sorted((first, producer) for producer, first in aborted)
    dropping: set[int] = set()
    found: list[Message] = []
    for raw in batches:
        base, attributes = number(raw[:8]), number(raw[21:23])
        last, producer = base + number(raw[23:27]), number(raw[43:51])
        records = decode_batch(raw)
        if producer >= 0:
            while queue and queue[0][0] <= last:
                dropping.add(queue.pop(0)[1])
            if attributes & 32 and records and records[0].key is not None and records[0].key[2:4] == b"\0\0":
                dropping.discard(producer)
            elif attributes & 16 and producer in dropping:
                continue
        if not attributes & 32:
            found += records
    return found
