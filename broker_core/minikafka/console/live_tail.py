"""The live tail: the newest messages of a topic, at a bounded rate, whatever its throughput.

Each look takes the ends of the partitions and reads the last messages before them. What lies between the
last look and these is skipped and counted, so that memory and work stay the same on a topic of any size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import LATEST, list_known_offsets
from minikafka.clients.group.fetched_records import ConsumerRecord
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.messages import FETCH_BYTES, Message, fetch_sets, records_of
from minikafka.console.schemas import Schemas
from minikafka.console.search import Pattern, matching

TICK_S = 0.5
TAIL_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True)
class Tick:
    """The messages of one look at the ends of partitions. ``skipped``: offsets that were not read."""

    messages: tuple[Message, ...]
    skipped: int
    note: str = ""


def tail(
    cluster: ClusterClient,
    partitions: list[TopicPartition],
    *,
    rate: int,
    isolation: IsolationLevel,
    pattern: Pattern | None = None,
    schemas: Schemas | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Tick]:
    """Yield the newest messages of partitions twice a second, at most ``rate`` a second, without end.

    Each look reads only the last messages before the ends, and skips the others. So it costs the same on a
    topic of any throughput.
    """
    positions = _ends(cluster, partitions, isolation)[0]
    budget = max(1, int(rate * TICK_S))
    first = 0
    while True:
        ends, note = _ends(cluster, partitions, isolation)
        behind = {tp: end for tp, end in ends.items() if end > positions.get(tp, end)}
        messages: list[Message] = []
        skipped = 0
        share = max(1, budget // max(1, len(behind)))
        # With more partitions than the budget has messages, each look begins after those of the last one.
        order = list(behind.items())
        at = first % max(1, len(order))
        first = at + budget
        for number, (tp, end) in enumerate(order[at:] + order[:at]):
            start = max(positions[tp], end - share)
            if number >= budget:
                start = end
            skipped += start - positions[tp]
            try:
                found = _between(cluster, tp, start, end, isolation, pattern)
                messages += [Message.of(record, schemas) for record in found]
            except MinikafkaError as error:
                note = note or f"{tp}: {error}"
        # A log that ends earlier than before was made again.
        positions.update(ends)
        messages.sort(key=lambda message: message.timestamp_ms)
        yield Tick(tuple(messages), skipped, note)
        wait(TICK_S)


def _ends(
    cluster: ClusterClient, partitions: list[TopicPartition], isolation: IsolationLevel
) -> tuple[dict[TopicPartition, int], str]:
    wanted = dict.fromkeys(partitions, LATEST)
    found, error = list_known_offsets(cluster, wanted, cluster.deadline(TAIL_TIMEOUT_MS), isolation)
    return {tp: end for tp, end in found.items() if end is not None}, "" if error is None else str(error)


def _between(
    cluster: ClusterClient,
    tp: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel,
    pattern: Pattern | None,
) -> list[ConsumerRecord]:
    if start >= end:
        return []
    sets = fetch_sets(cluster, tp, start, end, isolation, TAIL_TIMEOUT_MS, FETCH_BYTES)
    if pattern is not None:
        return [record for fetched in sets for record in matching(fetched, pattern)]
    return [record for fetched in sets for record in records_of(fetched, 100)]
