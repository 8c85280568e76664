"""Fetches the beginnings of several ranges together: one request to each leader for all ranges that it leads.

    for topic_partition, first in SharedFetch(cluster, {topic_partition: Beginning(start, max_bytes), …}, …):
        for data in RangeFetcher(cluster, topic_partition, start, end, first=first, …):
            …

A range that is small is complete with its first fetch. A longer one is read on by its own ``RangeFetcher``,
which takes over the position with all that is known of it: leader epoch, topic id, follower. A range for
which the leader has no records, or an error, is left to its fetcher from the start, with that one's retries
and errors: nothing is decided here.

A response has at most ``max_bytes`` (or one larger message), and the next request to a leader is in flight
while the caller works on the ranges of the last response, so at most two responses of each leader are in
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import (
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PartitionFetchState,
)
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool

_RETRIES_MAX = 2
"""Of a range here: a leader may name a follower, and a message may not fit behind those of other ranges."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offset of a range, and the most bytes to fetch of it, unless its first message is larger."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FirstFetch:
    """The first records of a range, the broker that sent them, and the state of the partition behind them."""

    completed: CompletedFetch
    broker_id: int
    state: PartitionFetchState


class SharedFetch:
    """An iterator of partitions, each once, with its first fetch; None where there is none. Not thread-safe,
    except ``stop``.

    settings: those of the ranges' own fetchers, except for the ``max_bytes`` of a response, of which each
    range gets its own part. timeout_ms: the longest wait for a response.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        beginnings: Mapping[TopicPartition, Beginning],
        settings: FetchSettings,
        *,
        timeout_ms: int = 120_000,
        pool: ConnectionPool = ConnectionPool.FETCH,
    ) -> None:
        self._cluster = cluster
        self._pool = pool
        self._session = FetchSession(settings, lambda tp: cluster.topic_id(tp.topic))
        for tp, begin in beginnings.items():
            own = replace(settings, partition_max_bytes=min(begin.max_bytes, settings.partition_max_bytes))
            self._session.adopt(PartitionFetchState(tp, own, begin.offset))
        self._timeout_ms = timeout_ms
        self._left = {tp: begin.offset for tp, begin in beginnings.items()}
        """The ranges that were neither fetched nor given up."""
        self._retries = dict.fromkeys(beginnings, 0)
        self._found: deque[tuple[TopicPartition, FirstFetch | None]] = deque()
        self._in_flight: deque[tuple[FetchRequestData, ResponseFuture[Any]]] = deque()
        self._stopped = False

    def __iter__(self) -> Iterator[tuple[TopicPartition, FirstFetch | None]]:
        self._look_up_leaders()
        self._send()
        while True:
            while self._found:
                yield self._found.popleft()
            if not self._in_flight or self._stopped:
                break
            self._receive()
        for tp in list(self._left):
            yield tp, None

    def stop(self) -> None:
        """Send no more requests. Thread-safe."""
        self._stopped = True

    def _look_up_leaders(self) -> None:
        try:
            timeout_ms = min(self._timeout_ms, self._cluster.request_timeout_ms)
            self._cluster.metadata({tp.topic for tp in self._left}, timeout_ms=timeout_ms)
        except MinikafkaError:
            self._give_up(self._left)  # each fetcher looks for its leader, for as long as it may

    def _send(self) -> None:
        """Send a request to each leader that has none in flight, for the ranges that are left."""
        if not self._left or self._stopped:
            return
        self._session.update(dict(self._left))
        self._session.retain(self._left.keys())
        leader, version = self._cluster.known_leader_and_epoch, self._cluster.leaders_version
        for data in self._session.next_requests(leader, version, self._now_ms()):
            try:
                reply = self._cluster.send(
                    data.broker_id, data.api, data.request, pool=self._pool, newest=data.newest_version
                )
            except MinikafkaError:
                self._give_up(self._session.handle_disconnect(data.broker_id, self._now_ms()))
            else:
                self._in_flight.append((data, reply))

    def _receive(self) -> None:
        answered = next((at for at, (_, reply) in enumerate(self._in_flight) if reply.done()), 0)
        data, reply = self._in_flight[answered]
        del self._in_flight[answered]
        age_ms = self._now_ms() - data.sent_ms
        try:
            wait_ms = min(self._timeout_ms, data.max_wait_ms + self._cluster.request_timeout_ms)
            response = reply.result(age_ms + wait_ms)
            found = self._session.handle_response(data.broker_id, response, reply.version, self._now_ms())
        except MinikafkaError:
            self._give_up(self._session.handle_disconnect(data.broker_id, self._now_ms()))
            return
        filled = any(completed.status is FetchStatus.RECORDS for completed in found)
        for completed in found:
            tp = completed.topic_partition
            if completed.status is FetchStatus.RECORDS:
                del self._left[tp]
                first = FirstFetch(completed, data.broker_id, self._session.remove(tp))
                self._found.append((tp, first))
            elif completed.status is FetchStatus.RETRY and self._retries[tp] < _RETRIES_MAX:
                self._retries[tp] += 1
            elif completed.status is not FetchStatus.EMPTY or not filled:
                # A part is also empty if the others have filled the response: then it is fetched again.
                self._give_up([tp])
        self._give_up(data.partitions.keys() - {completed.topic_partition for completed in found})
        self._send()

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in list(partitions):
            if self._left.pop(tp, None) is not None:
                self._found.append((tp, None))

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()
