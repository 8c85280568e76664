"""A client's view of one cluster: its metadata, the leaders, and a connection to each broker.

Every client sends its requests through a ``ClusterClient``. It is thread-safe. Connections are kept per
address and ``ConnectionPool``: a broker serves the requests of one connection in order, so a fetch that waits
for data delays every request behind it. Each operation has a deadline; its error names the brokers, their
addresses and the attempts. Because that error may be a minute away, a lasting outage is logged as a repeated
warning of ``minikafka.clients``, as Kafka's clients do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoSuchBroker,
    RemoteWireError,
)
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name
from minikafka.base.text import counted
from minikafka.clients.network.bootstrap import OPTION, Endpoint, parse_bootstrap
from minikafka.clients.network.broker_connection import (
    CONNECTIONS_MAX_IDLE_MS,
    BrokerConnection,
    ConnectionConfig,
    ResponseFuture,
)
from minikafka.clients.network.metadata import ClusterMetadata, TopicMetadata, from_response
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Backoff, Deadline, EventWaiter, FailedAttempts, Waiter
from minikafka.net.interfaces import Connector
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse

T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

UNKNOWN_TOPIC_TIMEOUT_MS = 5_000
"""The time for which a topic that no broker knows is requested again. The metadata of a new topic reaches
all brokers within it."""

ALLOW_AUTO_TOPIC_CREATION_SINCE = 4
"""The first Metadata version in which a request can forbid the creation of topics."""

OUTAGE_WARNING_AFTER_MS = 5_000
"""The time without a response, over any number of requests, after which a warning is logged."""

OUTAGE_WARNING_INTERVAL_MS = 60_000
"""The interval at which the warning is repeated."""

_METADATA_ATTEMPT_MS = 10_000
"""Longest wait for one broker's response while there are other brokers to try."""

_log = logging.getLogger("minikafka.clients")


class ConnectionPool(Enum):
    """The shared pools. Requests for different purposes do not share a connection."""

    CONTROL = "control"
    FETCH = "fetch"
    PRODUCE = "produce"


class DedicatedConnectionPool:
    """The connections of one user, whose waits delay no other. ``ClusterClient.close_pool`` closes them."""


class ClusterClient:
    """The client of one cluster, which is found through any of its brokers. Connects at the first use.

    ``bootstrap`` is ``host:port,host:port``; anything else is a ConfigError under the name ``option``.
    With ``creates_topics`` False no request of this client can create a topic: brokers with
    ``auto.create.topics.enable`` create one whose metadata is requested by name, unless the request forbids
    it. Brokers before 0.11 do not know that field, so all topics are requested. Readers want this, as a
    deleted topic would come back empty. With ``one_connection`` all shared pools use one connection: for many
    short-lived users, whose fetches do not wait. ``newest_versions`` limits APIs to an older version than
    both sides speak. Configs: ``connections.max.idle.ms``, ``metadata.max.age.ms``, ``request.timeout.ms``.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        connector: Connector | None = None,
        client_id: str = "minikafka",
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        metadata_max_age_ms: int = 300_000,
        connections_max_idle_ms: int = CONNECTIONS_MAX_IDLE_MS,
        creates_topics: bool = True,
        one_connection: bool = False,
        unknown_topic_timeout_ms: int = UNKNOWN_TOPIC_TIMEOUT_MS,
        clock: Clock | None = None,
        waiter: Waiter | None = None,
        newest_versions: Mapping[ApiKey, int] | None = None,
        option: str = OPTION,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap, option)
        if connector is None:
            # Imported here: a caller with its own connector needs no sockets.
            from minikafka.net.connection import SocketConnector

            connector = SocketConnector(
                connect_timeout_ms=connect_timeout_ms, request_timeout_ms=request_timeout_ms
            )
        self.clock = clock or SystemClock()
        self.waiter = waiter or EventWaiter()
        self.backoff = Backoff(100, 1_000)
        self.request_timeout_ms = request_timeout_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._creates_topics = creates_topics
        self._unknown_topic_timeout_ms = unknown_topic_timeout_ms
        self._connection_config = ConnectionConfig(
            connector,
            self.clock,
            self.waiter,
            client_id,
            request_timeout_ms,
            newest_versions=newest_versions or {},
            connections_max_idle_ms=connections_max_idle_ms,
        )
        self._one_connection = one_connection
        self._lock = threading.Lock()
        self._refresh_lock = threading.Lock()
        self._connections: dict[
            tuple[Endpoint, ConnectionPool | DedicatedConnectionPool], BrokerConnection
        ] = {}
        self._metadata = ClusterMetadata()
        self._stale: set[str] = set()
        self._outage_since_ms: int | None = None
        """Start of the first request that no broker has answered (monotonic); None after a response."""
        self._outage_warned_ms: int | None = None
        self._closed = False

    # --- metadata
    # -------------------------------------------------------------------------------------------

    def metadata(
        self,
        topics: Iterable[str] | None = None,
        *,
        refresh: bool = False,
        timeout_ms: int | None = None,
        caller_timeout_ms: int | None = None,
        creates_topics: bool | None = None,
    ) -> ClusterMetadata:
        """Return the metadata with at least ``topics`` (None: all of them, always requested anew).

        Named topics come from the cache unless they are unknown, too old, were invalidated, or ``refresh`` is
        set. A topic that does not exist is in the result with its error.

        caller_timeout_ms: the time for which the caller keeps retrying, for the warning of an outage
        (default: ``timeout_ms``). creates_topics: overrides the client's for this request unless None.
        """
        deadline = self.deadline(timeout_ms)
        if topics is None:
            return self._refresh(None, deadline, None, caller_timeout_ms)
        names = tuple(dict.fromkeys(topics))
        for name in names:
            check_topic_name(name)
        asked_at_ms = self.clock.monotonic_ms()
        needed = names if refresh else tuple(name for name in names if not self._is_fresh(name))
        if not needed:
            return self._metadata
        return self._refresh(needed, deadline, asked_at_ms, caller_timeout_ms, creates_topics)

    def topic(
        self, name: str, timeout_ms: int | None = None, *, creates_topics: bool | None = None
    ) -> TopicMetadata:
        """Return a topic with its partitions; waits for one being created.

        Raises BrokerError if there is none.

        ``creates_topics`` as for ``metadata``.
        """
        deadline = self.deadline(timeout_ms)
        return self.retry(
            f"looking up topic {name!r}", deadline, lambda: self._topic_once(name, deadline, creates_topics)
        )

    def leader(self, tp: TopicPartition, timeout_ms: int | None = None) -> BrokerAddress:
        """Return the leader of a partition; waits for an election.

        Raises BrokerError if there is no such partition or it stays without a leader.
        """
        deadline = self.deadline(timeout_ms)

        def attempt() -> BrokerAddress:
            topic = self._topic_once(tp.topic, deadline)
            if topic.partition(tp.partition) is None:
                self.invalidate(tp.topic)
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}: {describe_partitions(topic)}")
            leader = self._metadata.leader(tp)
            if leader is None:
                self.invalidate(tp.topic)
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at the moment")
            return leader

        return self.retry(f"finding the leader of {tp}", deadline, attempt)

    def known_topic(self, name: str) -> TopicMetadata | None:
        """Return the cached metadata of a topic, however old; None if no partitions of it are known."""
        topic = self._metadata.topics.get(name)
        return topic if topic is not None and topic.partitions else None

    def why_unusable(self, name: str) -> BrokerError:
        """Return the error of a requested topic that has no known partitions."""
        topic = self._metadata.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return BrokerError(code, f"there is no topic {name!r} in the cluster at {self.bootstrap_text}")
        return BrokerError(
            code if code is not ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE,
            f"topic {name!r} is not available in the cluster at {self.bootstrap_text}",
        )

    def known_leader(self, tp: TopicPartition) -> int | None:
        """Return the leader of a partition from the cache; None if it is unknown or stale."""
        if not self._is_fresh(tp.topic):
            return None
        leader = self._metadata.leader(tp)
        return None if leader is None else leader.broker_id

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """Return the in-sync replicas of a partition from the cache; None for an unknown partition."""
        found = self._metadata.partition(tp)
        return None if found is None else found.in_sync

    def invalidate(self, topic: str) -> None:
        """Mark the metadata of ``topic`` as stale: it is requested again before its next use."""
        with self._lock:
            self._stale.add(topic)

    def controller(self, deadline: Deadline) -> int:
        """Return the broker id of the controller. Raises NOT_CONTROLLER (retriable) if there is none."""
        found = self._refresh((), deadline, asked_at_ms=None).controller_id
        if found is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return found

    @property
    def bootstrap_text(self) -> str:
        """The bootstrap list as text, for messages."""
        return ",".join(map(str, self._bootstrap))

    # --- requests
    # --------------------------------------------------------------------------------------------------

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """Return a deadline on this client's clock, after the request time-out by default."""
        return Deadline(self.clock, self.request_timeout_ms if timeout_ms is None else timeout_ms)

    def connection(
        self, broker_id: int, pool: ConnectionPool | DedicatedConnectionPool = ConnectionPool.CONTROL
    ) -> BrokerConnection:
        """Return the connection to a broker in the metadata. Raises NoSuchBroker if it is not in it."""
        address = self._metadata.brokers.get(broker_id)
        if address is None:
            living = ", ".join(map(str, sorted(self._metadata.brokers))) or "none"
            raise NoSuchBroker(
                f"broker {broker_id} is not among the live brokers of the cluster at {self.bootstrap_text}: "
                f"{living}"
            )
        return self._connection(Endpoint(address.host, address.port), pool, str(address))

    def connection_to(
        self, address: BrokerAddress, pool: ConnectionPool | DedicatedConnectionPool = ConnectionPool.CONTROL
    ) -> BrokerConnection:
        """Return the connection to a broker that another broker named, such as a group's coordinator."""
        return self._connection(Endpoint(address.host, address.port), pool, str(address))

    def wait_any(self, replies: Iterable[ResponseFuture[Any]], timeout_ms: int) -> bool:
        """Wait until one of ``replies`` is done; False if ``timeout_ms`` pass first. All stay valid."""
        return self._connection_config.connector.wait_any([reply.pending for reply in replies], timeout_ms)

    def send(
        self,
        broker_id: int,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        *,
        pool: ConnectionPool | DedicatedConnectionPool = ConnectionPool.CONTROL,
        deadline: Deadline | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send a request to a broker without waiting. One attempt; raises as ``BrokerConnection.send``."""
        return self.connection(broker_id, pool).send(api, lambda _: request, deadline or self.deadline())

    def call(
        self,
        broker_id: int | None,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        *,
        pool: ConnectionPool | DedicatedConnectionPool = ConnectionPool.CONTROL,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """Return the response of one broker, in one attempt, or (None) of any broker that can be reached.

        With None the request must be idempotent, as it may reach several brokers.
        """
        deadline = self.deadline(timeout_ms)
        if broker_id is None:
            return self._call_any_broker(api, lambda _: request, deadline)
        return self.send(broker_id, api, request, pool=pool, deadline=deadline).result(
            max(1, deadline.remaining_ms())
        )

    def retry(self, what: str, deadline: Deadline, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, repeated with back-off while its error is retriable.

        Raises the last error; after the deadline, an error that also lists the failed attempts. An unknown
        topic or partition is retried for ``unknown_topic_timeout_ms`` at most.
        """
        failed = FailedAttempts()
        unknown_topic_deadline = self.deadline(deadline.at_most(self._unknown_topic_timeout_ms))
        while True:
            try:
                return attempt()
            except (NetworkError, BrokerError, RemoteWireError) as error:
                if self._closed or not is_retriable(error):
                    raise
                failed.add(str(error))
                unknown = (
                    isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                delay_ms = self.backoff.delay_ms(failed.count)
                if delay_ms >= (unknown_topic_deadline if unknown else deadline).remaining_ms():
                    if unknown:
                        raise
                    raise _retries_exhausted(what, deadline.timeout_ms, failed, error) from error
                self.waiter.wait(delay_ms)

    def close_pool(self, pool: DedicatedConnectionPool) -> None:
        """Close the connections of ``pool``; requests in flight on them fail with a NetworkError."""
        with self._lock:
            removed = [self._connections.pop(key) for key in list(self._connections) if key[1] is pool]
        for connection in removed:
            connection.close()

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long, also those to brokers no longer in use."""
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.close_idle()

    def close(self) -> None:
        """Close all connections; requests in flight fail with a NetworkError. A second call does nothing."""
        self._closed = True
        self.waiter.stop()
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- internals
    # --------------------------------------------------------------------------------------------------

    def _is_fresh(self, name: str) -> bool:
        topic = self._metadata.topics.get(name)
        return (
            topic is not None
            and name not in self._stale
            and topic.error is ErrorCode.NONE
            and self.clock.monotonic_ms() - topic.fetched_ms < self._metadata_max_age_ms
        )

    def _topic_once(self, name: str, deadline: Deadline, creates_topics: bool | None = None) -> TopicMetadata:
        known = self.metadata([name], timeout_ms=deadline.remaining_ms(), creates_topics=creates_topics)
        topic = known.topics.get(name)
        if topic is not None and topic.partitions and topic.error is ErrorCode.NONE:
            return topic
        self.invalidate(name)
        raise self.why_unusable(name)

    def _refresh(
        self,
        topics: tuple[str, ...] | None,
        deadline: Deadline,
        asked_at_ms: int | None,
        caller_timeout_ms: int | None = None,
        creates_topics: bool | None = None,
    ) -> ClusterMetadata:
        """Request ``topics`` (None: all), unless another thread did so after ``asked_at_ms``."""
        if not self._refresh_lock.acquire(timeout=deadline.remaining_ms() / 1000):
            raise NetworkError(
                f"timed out after {deadline.timeout_ms} ms fetching metadata of the cluster at "
                f"{self.bootstrap_text}"
            )
        try:
            if (
                asked_at_ms is not None
                and topics
                and all(self._fetched_since(name, asked_at_ms) for name in topics)
            ):
                return self._metadata
            requested = topics
            creates = self._creates_topics if creates_topics is None else creates_topics

            def request(version: int) -> MetadataRequest:
                nonlocal requested
                may_name = creates or version >= ALLOW_AUTO_TOPIC_CREATION_SINCE
                requested = topics if may_name or not topics else None
                return MetadataRequest(requested, creates)

            response = self._call_any_broker(
                METADATA, request, deadline, _no_brokers_problem, caller_timeout_ms
            )
            newer = from_response(response, self.clock.monotonic_ms(), topics or ())
            return self._update_metadata(newer, requested)
        finally:
            self._refresh_lock.release()

    def _fetched_since(self, name: str, asked_at_ms: int) -> bool:
        topic = self._metadata.topics.get(name)
        return topic is not None and name not in self._stale and topic.fetched_ms > asked_at_ms

    def _update_metadata(self, newer: ClusterMetadata, topics: tuple[str, ...] | None) -> ClusterMetadata:
        with self._lock:
            if topics is None:
                self._metadata = newer
                self._stale.clear()
            else:
                self._metadata = self._metadata.merged(newer)
                self._stale.difference_update(topics)
            kept = {Endpoint(b.host, b.port) for b in newer.brokers.values()} | set(self._bootstrap)
            removed = [self._connections.pop(key) for key in list(self._connections) if key[0] not in kept]
            metadata = self._metadata
        for connection in removed:
            connection.close()
        return metadata

    def _connection(
        self, endpoint: Endpoint, pool: ConnectionPool | DedicatedConnectionPool, name: str
    ) -> BrokerConnection:
        key = (
            endpoint,
            ConnectionPool.CONTROL if self._one_connection and isinstance(pool, ConnectionPool) else pool,
        )
        with self._lock:
            if self._closed:
                raise NetworkError(f"{name}: the client is closed")
            connection = self._connections.get(key)
            if connection is None:
                connection = self._connections[key] = BrokerConnection(
                    name, endpoint.host, endpoint.port, self._connection_config
                )
            # A bootstrap address turns out to be a broker of the metadata.
            connection.name = name
            return connection

    def _candidate_connections(self) -> list[BrokerConnection]:
        """Return the connections that any request can use: connected ones first, the bootstrap list last."""
        names = {Endpoint(b.host, b.port): str(b) for b in self._metadata.brokers.values()}
        for endpoint in self._bootstrap:
            names.setdefault(endpoint, f"bootstrap server {endpoint}")
        connections = [
            self._connection(endpoint, ConnectionPool.CONTROL, name) for endpoint, name in names.items()
        ]
        return sorted(connections, key=lambda connection: not connection.connected)

    def _call_any_broker(
        self,
        api: Api[RequestT, ResponseT],
        request: Callable[[int], RequestT],
        deadline: Deadline,
        problem_in: Callable[[ResponseT], str] = lambda _: "",
        caller_timeout_ms: int | None = None,
    ) -> ResponseT:
        """Return the first response of any broker in which ``problem_in`` finds no problem."""

        def attempt() -> ResponseT:
            failed, started_ms = FailedAttempts(), self.clock.monotonic_ms()
            connections = self._candidate_connections()
            for position, connection in enumerate(connections):
                # The last broker, often the only one, may take all the remaining time.
                share_ms = (
                    deadline.remaining_ms() if position == len(connections) - 1 else _METADATA_ATTEMPT_MS
                )
                limit = self.deadline(deadline.at_most(share_ms))
                try:
                    response = connection.send(api, request, limit).result(max(1, limit.remaining_ms()))
                except (NetworkError, RemoteWireError) as error:
                    failed.add(str(error))
                    continue
                problem = problem_in(response)
                if not problem:
                    self._outage_since_ms = self._outage_warned_ms = None
                    return response
                failed.add(f"{connection.name} {problem}")
            self._warn_of_outage(started_ms, failed, caller_timeout_ms or deadline.timeout_ms)
            raise NetworkError(str(failed))

        return self.retry(f"sending {api.name} to the cluster at {self.bootstrap_text}", deadline, attempt)

    def _warn_of_outage(self, started_ms: int, failed: FailedAttempts, caller_timeout_ms: int) -> None:
        """Log a warning if no broker has responded for some time, and repeat it until one does."""
        if self._outage_since_ms is None:
            self._outage_since_ms = started_ms
        now_ms, warned_ms = self.clock.monotonic_ms(), self._outage_warned_ms
        due = now_ms - self._outage_since_ms > OUTAGE_WARNING_AFTER_MS
        if warned_ms is not None:
            due = now_ms - warned_ms >= OUTAGE_WARNING_INTERVAL_MS
        if due and not self._closed:
            self._outage_warned_ms = now_ms
            # A caller with a shorter time-out sends another request after it.
            whole = caller_timeout_ms >= self.request_timeout_ms
            limit = f", for {round(caller_timeout_ms / 1000)} s in total" if whole else ""
            _log.warning("minikafka: %s; retrying%s", failed, limit)


def describe_partitions(topic: TopicMetadata) -> str:
    """Return the number and range of a topic's partitions, for messages."""
    count = len(topic.partitions)
    last = f" to {count - 1}" if count != 1 else ""
    return f"topic {topic.name!r} has {counted(count, 'partition')}, 0{last}"


def _no_brokers_problem(response: MetadataResponse) -> str:
    # A broker that has just started knows no broker yet, not even itself.
    return "" if response.brokers else "lists no live broker (it may have just started)"


def _retries_exhausted(what: str, timeout_ms: int, failed: FailedAttempts, last: Exception) -> MinikafkaError:
    text = f"{what} failed for {timeout_ms} ms: {failed}"
    return BrokerError(last.code, text) if isinstance(last, BrokerError) else NetworkError(text)
