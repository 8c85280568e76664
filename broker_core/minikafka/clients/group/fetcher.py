"""Fetches message sets of a consumer's partitions, in the order of arrival.

One request is in flight to each leader, for all of its fetchable partitions; the next one is sent before the
caller processes the response. Partitions that returned data move to the end of the order, as a broker fills
its response from the first on. A response counts for a partition only if it was requested at the current
fetch position: a seek, a pause or a rebalance invalidates it.

This module never looks at single records: a kernel finds the end of a set and the offset after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_response import fetch_error, records_of, whole_entries
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.fetched_records import Fetched
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.response_errors import is_retriable
from minikafka.wire.apis.fetch import (
    FETCH,
    FetchPartitionResponse,
    FetchResponse,
    consumer_request,
)

_EMPTY_PAUSE_MS = 10
_REFRESH_TIMEOUT_MS = 2_000
"""Longest single look-up of leaders."""

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of one ``collect_fetch``.

    out_of_range: partitions whose position is not in the log.
    """

    sets: tuple[Fetched, ...] = ()
    out_of_range: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class _PendingFetch:
    reply: ResponseFuture[FetchResponse]
    positions: dict[TopicPartition, int]
    sent_ms: int


@dataclass(slots=True)
class _CollectedFetch:
    sets: list[Fetched] = field(default_factory=list)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions with a result: an old and a new leader may both respond to the same fetch."""


class GroupFetcher:
    """Fetches for one consumer. Not thread-safe."""

    def __init__(
        self, cluster: ClusterClient, config: GroupConsumerConfig, pool: DedicatedConnectionPool
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._pool = pool
        self._pending: dict[int, _PendingFetch] = {}
        self._last_turn: dict[TopicPartition, int] = {}
        """The turn in which a partition last returned data."""
        self._turns = 0
        self._next_refresh_ms = 0
        """The time of the next look-up of leaders."""

    def send_fetches(self, positions: Positions) -> None:
        """Send a request to each known leader that has none in flight."""
        partitions_by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(positions, key=lambda tp: (self._last_turn.get(tp, 0), tp)):
            leader = self._cluster.known_leader(tp)
            if leader is not None and leader not in self._pending:
                partitions_by_leader.setdefault(leader, []).append(tp)
        for broker_id, partitions in partitions_by_leader.items():
            try:
                self._send(broker_id, {tp: positions[tp] for tp in partitions})
            except (NetworkError, RemoteWireError):
                self._invalidate_leaders(partitions)

    def collect_fetch(self, positions: Positions, timeout_ms: int) -> FetchResult:
        """Return the first sets that arrive for ``positions``; empty if none arrive within ``timeout_ms``.

        Raises the BrokerError of a partition if it is not retriable.
        """
        clock = self._cluster.clock
        deadline = self._cluster.deadline(timeout_ms)
        self._refresh_leaders(positions, deadline.at_most(_REFRESH_TIMEOUT_MS))
        self.send_fetches(positions)
        if not self._pending:
            self._cluster.waiter.wait(deadline.at_most(self._config.retry_backoff_ms))
            return FetchResult()
        self._cluster.wait_any([fetch.reply for fetch in self._pending.values()], deadline.remaining_ms())
        collected = _CollectedFetch()
        quickly_empty = False
        for broker_id, pending in list(self._pending.items()):
            age_ms = clock.monotonic_ms() - pending.sent_ms
            overdue = age_ms > self._config.fetch_max_wait_ms + self._cluster.request_timeout_ms
            if not pending.reply.done() and not overdue:
                continue
            del self._pending[broker_id]
            before = len(collected.sets)
            self._handle_response(pending, age_ms, positions, collected)
            quickly_empty |= len(collected.sets) == before and age_ms < self._config.fetch_max_wait_ms // 2
        if quickly_empty and not collected.sets:
            # Brokers wait before an empty response; this avoids a busy loop with one that does not.
            self._cluster.waiter.wait(deadline.at_most(_EMPTY_PAUSE_MS))
        return FetchResult(tuple(collected.sets), tuple(collected.out_of_range))

    # --- requests

    def _refresh_leaders(self, positions: Positions, timeout_ms: int) -> None:
        """Look up unknown leaders, at most every ``retry.backoff.ms``."""
        unknown = {tp.topic for tp in positions if self._cluster.known_leader(tp) is None}
        now_ms = self._cluster.clock.monotonic_ms()
        if not unknown or now_ms < self._next_refresh_ms:
            return
        # If no broker can be reached, a later call looks them up again.
        with contextlib.suppress(NetworkError, RemoteWireError):
            self._cluster.metadata(unknown, timeout_ms=max(1, timeout_ms))
        self._next_refresh_ms = self._cluster.clock.monotonic_ms() + self._config.retry_backoff_ms

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
        self._pending[broker_id] = _PendingFetch(reply, positions, self._cluster.clock.monotonic_ms())

    def _invalidate_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {tp.topic for tp in partitions}:
            self._cluster.invalidate(topic)

    # --- responses

    def _handle_response(
        self, pending: _PendingFetch, age_ms: int, positions: Positions, collected: _CollectedFetch
    ) -> None:
        self._turns += 1
        try:
            response = pending.reply.result(max(1, age_ms))
        except (NetworkError, RemoteWireError):
            self._invalidate_leaders(pending.positions)
            return
        for topic in response.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.index)
                if tp in collected.partitions:
                    continue
                if tp in positions and pending.positions.get(tp) == positions[tp]:
                    self._handle_partition(tp, positions[tp], part, collected)

    def _handle_partition(
        self, tp: TopicPartition, offset: int, part: FetchPartitionResponse, collected: _CollectedFetch
    ) -> None:
        code = ErrorCode.of(part.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            collected.out_of_range.append(tp)
            collected.partitions.add(tp)
            return
        if code is not ErrorCode.NONE:
            error = fetch_error(code, tp, offset)
            if not is_retriable(error):
                raise error
            self._invalidate_leaders([tp])
            return
        if not records_of(part):
            return
        whole, found = whole_entries(part)
        if found.valid_bytes and found.next_offset > offset:
            self._last_turn[tp] = self._turns
            collected.partitions.add(tp)
            collected.sets.append(Fetched(tp, whole, offset, found.next_offset, part.high_watermark))
        elif found.incomplete and not found.valid_bytes:
            # A broker sends the first message of the first partition whole: make this the first one.
            self._last_turn[tp] = -1
        else:
            problem = found.problem or f"the response ends at {found.next_offset}, before it"
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{tp}, fetched from offset {offset}: {problem}")
