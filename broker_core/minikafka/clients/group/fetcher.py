"""Message sets of many partitions, as a consumer wants them: what comes first is given out first.

One request is under way to each leader, for all of its partitions that are wanted; the next one leaves
before the caller works on what this one brought. Partitions that gave data go to the end of the order, as
a broker fills its answer from the first on. An answer counts for a partition only if that was asked for where
it is read now: a seek, a pause or a rebalance makes it void.

Nothing here looks at single records: a kernel finds where a set ends, and which offset comes after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_response import fetch_error, records_of, whole_entries
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.fetched_records import Fetched
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient, DedicatedConnectionPool
from minikafka.clients.network.response_errors import is_retriable
from minikafka.wire.apis.fetch import (
    FETCH,
    FetchPartitionResponse,
    FetchResponse,
    consumer_request,
)

if TYPE_CHECKING:
    pass

_EMPTY_PAUSE_MS = 10
_LOOK_UP_MS = 2_000
"""Longest look-up of leaders in one go."""

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What one ``take`` brought. ``out_of_range``: partitions whose position the log does not have."""

    sets: tuple[Fetched, ...] = ()
    out_of_range: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    reply: ResponseFuture[FetchResponse]
    positions: dict[TopicPartition, int]
    at_ms: int


@dataclass(slots=True)
class _Taken:
    sets: list[Fetched] = field(default_factory=list)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    partitions: set[TopicPartition] = field(default_factory=set)
    """Those of which it has something: an old and a new leader may both answer the same question."""


class GroupFetcher:
    """Fetches for one consumer. Not thread-safe."""

    def __init__(
        self, cluster: ClusterClient, config: GroupConsumerConfig, pool: DedicatedConnectionPool
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._pool = pool
        self._under_way: dict[int, _Asked] = {}
        self._last_turn: dict[TopicPartition, int] = {}
        """When a partition gave data last, as a count of turns."""
        self._turns = 0
        self._look_up_ms = 0
        """When leaders may be looked up again."""

    def ask(self, positions: Positions) -> None:
        """Send a request to each leader that has none under way, as far as leaders are known."""
        wanted: dict[int, list[TopicPartition]] = {}
        for tp in sorted(positions, key=lambda one: (self._last_turn.get(one, 0), one)):
            leader = self._cluster.known_leader(tp)
            if leader is not None and leader not in self._under_way:
                wanted.setdefault(leader, []).append(tp)
        for broker_id, partitions in wanted.items():
            try:
                self._send(broker_id, {tp: positions[tp] for tp in partitions})
            except (NetworkError, RemoteWireError):
                self._doubt(partitions)

    def take(self, positions: Positions, timeout_ms: int) -> Found:
        """The first sets to come for ``positions``; nothing when none come within ``timeout_ms``.

        Raises the BrokerError of a partition where trying again is useless.
        """
        clock = self._cluster.clock
        deadline = self._cluster.deadline(timeout_ms)
        self._look_up(positions, deadline.at_most(_LOOK_UP_MS))
        self.ask(positions)
        if not self._under_way:
            self._cluster.waiter.wait(deadline.at_most(self._config.retry_backoff_ms))
            return Found()
        self._cluster.wait_any([one.reply for one in self._under_way.values()], deadline.remaining_ms())
        taken = _Taken()
        quickly_empty = False
        for broker_id, asked in list(self._under_way.items()):
            age_ms = clock.monotonic_ms() - asked.at_ms
            overdue = age_ms > self._config.fetch_max_wait_ms + self._cluster.request_timeout_ms
            if not asked.reply.done() and not overdue:
                continue
            del self._under_way[broker_id]
            before = len(taken.sets)
            self._answered(asked, age_ms, positions, taken)
            quickly_empty |= len(taken.sets) == before and age_ms < self._config.fetch_max_wait_ms // 2
        if quickly_empty and not taken.sets:
            # The brokers wait; this is for what they answer at once, so that it is not asked in a loop.
            self._cluster.waiter.wait(deadline.at_most(_EMPTY_PAUSE_MS))
        return Found(tuple(taken.sets), tuple(taken.out_of_range))

    # --- asking

    def _look_up(self, positions: Positions, timeout_ms: int) -> None:
        """Ask who leads the partitions of which that is not known, now and then."""
        unknown = {tp.topic for tp in positions if self._cluster.known_leader(tp) is None}
        now_ms = self._cluster.clock.monotonic_ms()
        if not unknown or now_ms < self._look_up_ms:
            return
        # Where nobody can be reached it is looked up again at a later call.
        with contextlib.suppress(NetworkError, RemoteWireError):
            self._cluster.metadata(unknown, timeout_ms=max(1, timeout_ms))
        self._look_up_ms = self._cluster.clock.monotonic_ms() + self._config.retry_backoff_ms

    def _send(self, broker_id: int, positions: dict[TopicPartition, int]) -> None:
        request = consumer_request(
            positions,
            partition_max_bytes=self._config.max_partition_fetch_bytes,
            max_bytes=self._config.fetch_max_bytes,
            min_bytes=self._config.fetch_min_bytes,
            max_wait_ms=self._config.fetch_max_wait_ms,
            isolation_level=self._config.isolation,
        )
        reply = self._cluster.send(broker_id, FETCH, request, pool=self._pool)
        self._under_way[broker_id] = _Asked(reply, positions, self._cluster.clock.monotonic_ms())

    def _doubt(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {tp.topic for tp in partitions}:
            self._cluster.invalidate(topic)

    # --- answers

    def _answered(self, asked: _Asked, age_ms: int, positions: Positions, taken: _Taken) -> None:
        self._turns += 1
        try:
            response = asked.reply.result(max(1, age_ms))
        except (NetworkError, RemoteWireError):
            self._doubt(asked.positions)
            return
        for topic in response.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.index)
                if tp in taken.partitions:
                    continue
                if tp in positions and asked.positions.get(tp) == positions[tp]:
                    self._take(tp, positions[tp], part, taken)

    def _take(self, tp: TopicPartition, offset: int, part: FetchPartitionResponse, taken: _Taken) -> None:
        code = ErrorCode.of(part.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            taken.out_of_range.append(tp)
            taken.partitions.add(tp)
            return
        if code is not ErrorCode.NONE:
            error = fetch_error(code, tp, offset)
            if not is_retriable(error):
                raise error
            self._doubt([tp])
            return
        if not records_of(part):
            return
        whole, found = whole_entries(part)
        if found.valid_bytes and found.next_offset > offset:
            self._last_turn[tp] = self._turns
            taken.partitions.add(tp)
            taken.sets.append(Fetched(tp, whole, offset, found.next_offset, part.high_watermark))
        elif found.incomplete and not found.valid_bytes:
            # A broker sends the first message of the first partition whole: be that the next time.
            self._last_turn[tp] = -1
        else:
            problem = found.problem or f"what came ends at {found.next_offset}, before it"
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{tp}, fetched from offset {offset}: {problem}")
