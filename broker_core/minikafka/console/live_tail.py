"""The live tail: the newest messages of a topic, at a bounded rate, whatever its throughput.

Each look takes the ends of the partitions and reads the last messages before them. What lies between the
last look and these is skipped and counted, so that memory and work stay the same on a topic of any size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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
    topic of any throughput. What a quiet second leaves of the rate is kept for a burst.
    """
    positions = _ends(cluster, partitions, isolation)[0]
    allowed = float(rate)
    first = 0
    while True:
        ends, note = _ends(cluster, partitions, isolation)
        behind = {tp: end for tp, end in ends.items() if end > positions.get(tp, end)}
        messages: list[Message] = []
        skipped = 0
        # With more partitions than messages are allowed, each look begins after those of the last one.
        order = list(behind)
        at = first % max(1, len(order))
        first = at + int(allowed)
        parts = _parts({tp: behind[tp] - positions[tp] for tp in order[at:] + order[:at]}, int(allowed))
        allowed = min(rate, allowed - sum(parts.values()) + rate * TICK_S)
        for tp, end in behind.items():
            start = end - parts.get(tp, 0)
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


def _parts(counts: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return how many messages of each partition to show: all of those with few, equal parts of the others,
    and with more partitions than ``most`` one of each of the first.
    """
    chosen = list(counts)[:most]
    parts: dict[TopicPartition, int] = {}
    for number, tp in enumerate(sorted(chosen, key=counts.__getitem__)):
        parts[tp] = min(counts[tp], most // (len(chosen) - number))
        most -= parts[tp]
    return parts


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
