"""Fetches message sets of a consumer's partitions, in the order of arrival.

A driver of a fetch session (``clients.fetch.fetch_session``): it sends the requests to all leaders, the next
ones before the caller processes the responses, and looks up leaders. This module never looks at single
records.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import CompletedFetch, FetchSettings, FetchStatus
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.fetched_records import Fetched
from minikafka.clients.group.member import REQUEST_MIN_TIMEOUT_MS
from minikafka.clients.metrics.consumer import FetchMetrics
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import DedicatedConnectionPool
from minikafka.clients.network.retry import Backoff
from minikafka.wire.apis.fetch import LARGEST_MESSAGE_BYTES, FetchResponse

Positions = Mapping[TopicPartition, int]

logger = logging.getLogger("minikafka.clients.group")


@dataclass(slots=True)
class FetchResult:
    """The result of one ``collect_fetch``.

    out_of_range: partitions whose position is not in the log.
    truncated: fetches of partitions whose records before the position are no longer in the log.
    error: of a partition for which a further fetch would fail too.
    """

    sets: list[Fetched] = field(default_factory=list)
    out_of_range: list[TopicPartition] = field(default_factory=list)
    truncated: list[CompletedFetch] = field(default_factory=list)
    error: BrokerError | None = None


class GroupFetcher:
    """Fetches for one consumer. Not thread-safe."""

    def __init__(
        self, cluster: ClusterClient, config: GroupConsumerConfig, pool: DedicatedConnectionPool
    ) -> None:
        self.metrics = FetchMetrics(cluster.clock)
        self._cluster = cluster
        self._config = config
        self._pool = pool
        settings = FetchSettings(
            partition_max_bytes=config.max_partition_fetch_bytes,
            max_bytes=config.fetch_max_bytes,
            message_max_bytes=max(LARGEST_MESSAGE_BYTES, config.max_partition_fetch_bytes),
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            isolation=config.isolation,
            retry_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms),
            rack=config.rack,
            follower_ms=config.metadata_max_age_ms,
            in_session=True,
        )
        self._session = FetchSession(settings, lambda tp: cluster.topic_id(tp.topic))
        self._replies: dict[int, tuple[FetchRequestData, ResponseFuture[Any]]] = {}
        self._next_refresh_ms = 0
        """The time of the next look-up of leaders."""
        self._fruitless_refreshes = 0

    def retain(self, partitions: Set[TopicPartition]) -> None:
        """Forget all other partitions."""
        self._session.retain(partitions)
        self.metrics.retain(partitions)

    def send_fetches(self, positions: Positions) -> None:
        """Send a request to each known leader that has none in flight. ``positions`` must not be changed
        afterwards.
        """
        self._session.update(positions)
        cluster = self._cluster
        requests = self._session.next_requests(
            cluster.known_leader_and_epoch, cluster.leaders_version, self._now_ms()
        )
        for data in requests:
            try:
                reply = cluster.send(
                    data.broker_id, data.api, data.request, pool=self._pool, newest=data.newest_version
                )
            except BaseException as error:
                if self._session.skip_validation(data.broker_id, error):
                    continue
                self._disconnected(data.broker_id)
                if not isinstance(error, (NetworkError, RemoteWireError)):
                    raise
            else:
                self._replies[data.broker_id] = data, reply

    def collect_fetch(self, positions: Positions, timeout_ms: int) -> FetchResult:
        """Return the first sets that arrive for ``positions``; empty if none arrive within ``timeout_ms``."""
        deadline = self._cluster.deadline(timeout_ms)
        self.send_fetches(positions)
        if self._refresh_leaders():
            self.send_fetches(positions)
        found = FetchResult()
        if not self._wait_for_replies(deadline.remaining_ms()):
            return found
        for broker_id, (data, reply) in list(self._replies.items()):
            age_ms = self._now_ms() - data.sent_ms
            overdue = age_ms > self._config.fetch_max_wait_ms + self._cluster.request_timeout_ms
            if not reply.done() and not overdue:
                continue
            del self._replies[broker_id]
            for completed in self._result(broker_id, reply, age_ms):
                self._handle_fetch(completed, found)
        return found

    # --- requests

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()

    def _wait_for_replies(self, timeout_ms: int) -> bool:
        """Wait for a response, or the end of a back-off. Return False if no request is in flight."""
        now_ms = self._now_ms()
        ready_ms = self._session.next_ready_ms(now_ms)
        if ready_ms is not None:
            timeout_ms = min(timeout_ms, ready_ms - now_ms)
        if not self._replies:
            self._cluster.waiter.wait(min(timeout_ms, self._config.retry_backoff_ms))
            return False
        self._cluster.wait_any([reply for _, reply in self._replies.values()], timeout_ms)
        return True

    def _refresh_leaders(self) -> bool:
        """Look up unknown leaders, also in a poll with less time. Return True if that was done.

        The pause between two look-ups grows from ``retry.backoff.ms`` to one second, as a response describes
        all partitions of a topic.
        """
        unknown = self._session.without_leader
        if not unknown:
            self._fruitless_refreshes = 0
            return False
        if self._now_ms() < self._next_refresh_ms:
            return False
        # If no broker can be reached, a later call looks them up again.
        with contextlib.suppress(NetworkError, RemoteWireError):
            self._cluster.metadata(unknown, refresh=True, timeout_ms=REQUEST_MIN_TIMEOUT_MS)
        self._fruitless_refreshes += 1
        backoff = Backoff(self._config.retry_backoff_ms)
        self._next_refresh_ms = self._now_ms() + backoff.delay_ms(self._fruitless_refreshes)
        return True

    def _invalidate_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {tp.topic for tp in partitions}:
            self._cluster.invalidate(topic)

    # --- responses

    def _result(self, broker_id: int, reply: ResponseFuture[Any], age_ms: int) -> list[CompletedFetch]:
        try:
            response = reply.result(age_ms)
            found = self._session.handle_response(broker_id, response, reply.version, self._now_ms())
            if isinstance(response, FetchResponse):
                size_bytes = sum(len(completed.records) for completed in found)
                self.metrics.record_response(reply.latency_ms, size_bytes, response.throttle_time_ms)
            return self._session.follow_new_leaders(broker_id, found, response, self._cluster.update_leaders)
        except (NetworkError, RemoteWireError):
            return []
        finally:
            self._disconnected(broker_id)  # unless there was a response

    def _disconnected(self, broker_id: int) -> None:
        self._invalidate_leaders(self._session.handle_disconnect(broker_id, self._now_ms()))

    def _handle_fetch(self, completed: CompletedFetch, found: FetchResult) -> None:
        tp, status, error = completed.topic_partition, completed.status, completed.error
        self.metrics.record_range(tp, completed.log_start_offset, completed.readable_end)
        if status is FetchStatus.RECORDS:
            fetched = Fetched(
                tp, completed.records, completed.offset, completed.next_offset, completed.high_watermark
            )
            found.sets.append(fetched)
        elif status is FetchStatus.OUT_OF_RANGE:
            found.out_of_range.append(tp)
        elif status is FetchStatus.TRUNCATED:
            found.truncated.append(completed)
        elif status is FetchStatus.LEADER_LOST:
            self._invalidate_leaders([tp])
            assert error is not None
            if error.code is ErrorCode.UNKNOWN and completed.failures == 1:
                logger.warning("%s; retrying", error)
        elif error is not None:
            found.error = error
