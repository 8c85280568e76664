"""A client's view of one cluster: its metadata, who leads what, and a connection to each broker.

Every client asks brokers through a ``ClusterClient``. It is thread-safe. Connections are kept per address
and ``ConnectionPool``: a broker serves the requests of one connection in order, so a fetch that waits for
data delays every request behind it. Each operation has a deadline; its error names the brokers, their
addresses and the attempts. Because that error may be a minute away, an outage that lasts is logged as a
warning of ``minikafka.clients``, again and again, as Kafka's clients do.
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
"""How long a topic that no broker knows is asked for again: one that was just made reaches all brokers
within that."""

ALLOW_AUTO_TOPIC_CREATION_SINCE = 4
"""The Metadata version that can forbid to make topics."""

OUTAGE_WARNING_AFTER_MS = 5_000
"""How long nobody may answer, over however many questions, before a warning says so."""

OUTAGE_WARNING_INTERVAL_MS = 60_000
"""After how long the warning comes again."""

_METADATA_ATTEMPT_MS = 10_000
"""Longest wait for one broker's metadata while there may be others to ask."""

_log = logging.getLogger("minikafka.clients")


class ConnectionPool(Enum):
    """Purposes that do not share a connection."""

    CONTROL = "control"
    FETCH = "fetch"
    PRODUCE = "produce"


class DedicatedConnectionPool:
    """A lane of one user: what it waits for holds up nobody else. ``ClusterClient.close_pool`` ends it."""


class ClusterClient:
    """One cluster, found through any of its brokers. Connects at the first use.

    ``bootstrap`` is ``host:port,host:port`` (ConfigError under the name ``option`` when it is not).
    With ``creates_topics`` False no question of this client can make a topic: brokers with
    ``auto.create.topics.enable`` make one whose metadata is asked for by name, unless they are told not to;
    of those before 0.11, which cannot be told, it asks for all. Whoever only reads wants that, as a deleted
    topic would come back empty. With ``one_connection`` all lanes are one: for many short-lived users, whose
    fetches find what they ask for. ``newest_versions`` holds APIs down to an older version than both sides
    speak. Configs: ``connections.max.idle.ms``, ``metadata.max.age.ms``, ``request.timeout.ms``.
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
            # Here and not above: whoever brings a connector of their own needs no sockets.
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
        """When the first of the questions was asked that nobody has answered; None after an answer."""
        self._outage_warned_ms: int | None = None
        self._closed = False

    # --- what is known
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
        """The cluster with at least ``topics`` (None: all of them, always asked anew).

        Named topics come from the cache unless they are unknown, too old, have turned out wrong, or
        ``refresh`` is set. A topic that does not exist is in the result with its error.

        caller_timeout_ms: how long the caller will go on asking, for the warning of an outage (default:
        ``timeout_ms``). creates_topics: overrides the client's for this request; None does not.
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
        """A topic with its partitions; waits for one that is being made. BrokerError for none.

        ``creates_topics`` as for ``metadata``.
        """
        deadline = self.deadline(timeout_ms)
        return self.retry(
            f"looking up topic {name!r}", deadline, lambda: self._topic_once(name, deadline, creates_topics)
        )

    def leader(self, tp: TopicPartition, timeout_ms: int | None = None) -> BrokerAddress:
        """Who leads a partition; waits for an election.

        BrokerError where there is no such partition or it stays without a leader.
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

        return self.retry(f"looking for the leader of {tp}", deadline, attempt)

    def known_topic(self, name: str) -> TopicMetadata | None:
        """What was last heard of a topic that had partitions, however old; None when nothing was."""
        topic = self._metadata.topics.get(name)
        return topic if topic is not None and topic.partitions else None

    def why_unusable(self, name: str) -> BrokerError:
        """Why nothing is known of the partitions of a topic that was asked for."""
        topic = self._metadata.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return BrokerError(code, f"there is no topic {name!r} on the cluster at {self.bootstrap_text}")
        return BrokerError(
            code if code is not ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE,
            f"topic {name!r} cannot be used on the cluster at {self.bootstrap_text}",
        )

    def known_leader(self, tp: TopicPartition) -> int | None:
        """The leader of a partition as far as is known without asking; None where that is in doubt."""
        if not self._is_fresh(tp.topic):
            return None
        leader = self._metadata.leader(tp)
        return None if leader is None else leader.broker_id

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """The replicas in sync of a partition as far as is known without asking; None for an unknown one."""
        found = self._metadata.partition(tp)
        return None if found is None else found.in_sync

    def invalidate(self, topic: str) -> None:
        """What is known of ``topic`` has turned out wrong: ask again before it is used."""
        with self._lock:
            self._stale.add(topic)

    def controller(self, deadline: Deadline) -> int:
        """The id of the broker that makes and removes topics. NOT_CONTROLLER (retriable) for none."""
        found = self._refresh((), deadline, asked_at_ms=None).controller_id
        if found is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return found

    @property
    def bootstrap_text(self) -> str:
        """The bootstrap list, for messages."""
        return ",".join(map(str, self._bootstrap))

    # --- asking
    # --------------------------------------------------------------------------------------------------

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """A deadline on this client's clock; the request time-out by default."""
        return Deadline(self.clock, self.request_timeout_ms if timeout_ms is None else timeout_ms)

    def connection(
        self, broker_id: int, pool: ConnectionPool | DedicatedConnectionPool = ConnectionPool.CONTROL
    ) -> BrokerConnection:
        """The link to a broker that the metadata names. NoSuchBroker when it is not there (any more)."""
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
        """The link to a broker that another one has named, as a group's coordinator is."""
        return self._connection(Endpoint(address.host, address.port), pool, str(address))

    def wait_any(self, replies: Iterable[ResponseFuture[Any]], timeout_ms: int) -> bool:
        """Wait until one of ``replies`` is done; False when ``timeout_ms`` pass first. They stay as good."""
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
        """Send a request to a broker, without waiting. One attempt; raises as ``BrokerConnection.send``."""
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
        """The answer to a request: of a certain broker in one attempt, or (None) of any that can be reached.

        With None the request must be harmless to repeat, as it may reach several brokers.
        """
        deadline = self.deadline(timeout_ms)
        if broker_id is None:
            return self._call_any_broker(api, lambda _: request, deadline)
        return self.send(broker_id, api, request, pool=pool, deadline=deadline).result(
            max(1, deadline.remaining_ms())
        )

    def retry(self, what: str, deadline: Deadline, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``, repeated with back-off while it fails in a way that may pass.

        Ends with the last error, or with one that also tells what was tried, when the deadline comes first.
        A topic or partition that nobody knows is not waited for longer than ``unknown_topic_timeout_ms``.
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
        """Close the connections of ``pool``; what waits for an answer there gets a NetworkError."""
        with self._lock:
            removed = [self._connections.pop(key) for key in list(self._connections) if key[1] is pool]
        for connection in removed:
            connection.close()

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long, also to brokers that are asked no more."""
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.close_idle()

    def close(self) -> None:
        """Close all connections; what waits for an answer gets a NetworkError. A second call does nothing."""
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

    # --- inside
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
        """Ask for ``topics`` (None: all), unless another thread did so after ``asked_at_ms``."""
        if not self._refresh_lock.acquire(timeout=deadline.remaining_ms() / 1000):
            raise NetworkError(
                f"no metadata from the cluster at {self.bootstrap_text} within {deadline.timeout_ms} ms"
            )
        try:
            if (
                asked_at_ms is not None
                and topics
                and all(self._fetched_since(name, asked_at_ms) for name in topics)
            ):
                return self._metadata
            asked = topics
            creates = self._creates_topics if creates_topics is None else creates_topics

            def request(version: int) -> MetadataRequest:
                nonlocal asked
                may_name = creates or version >= ALLOW_AUTO_TOPIC_CREATION_SINCE
                asked = topics if may_name or not topics else None
                return MetadataRequest(asked, creates)

            response = self._call_any_broker(
                METADATA, request, deadline, _no_brokers_problem, caller_timeout_ms
            )
            newer = from_response(response, self.clock.monotonic_ms(), topics or ())
            return self._update_metadata(newer, asked)
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
                raise NetworkError(f"{name}: this client is closed")
            connection = self._connections.get(key)
            if connection is None:
                connection = self._connections[key] = BrokerConnection(
                    name, endpoint.host, endpoint.port, self._connection_config
                )
            # A bootstrap address turns out to be a certain broker.
            connection.name = name
            return connection

    def _candidate_connections(self) -> list[BrokerConnection]:
        """Links that any question can go to: connected ones first, the bootstrap list last."""
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
        """The first answer of any broker that ``problem_in`` has nothing to say about."""

        def attempt() -> ResponseT:
            failed, begun_ms = FailedAttempts(), self.clock.monotonic_ms()
            connections = self._candidate_connections()
            for position, connection in enumerate(connections):
                # The last one, often the only one, may take all the time there is.
                share_ms = (
                    deadline.remaining_ms() if position == len(connections) - 1 else _METADATA_ATTEMPT_MS
                )
                limit = self.deadline(deadline.at_most(share_ms))
                try:
                    answer = connection.send(api, request, limit).result(max(1, limit.remaining_ms()))
                except (NetworkError, RemoteWireError) as error:
                    failed.add(str(error))
                    continue
                problem = problem_in(answer)
                if not problem:
                    self._outage_since_ms = self._outage_warned_ms = None
                    return answer
                failed.add(f"{connection.name} {problem}")
            self._warn_of_outage(begun_ms, failed, caller_timeout_ms or deadline.timeout_ms)
            raise NetworkError(str(failed))

        return self.retry(f"asking the cluster at {self.bootstrap_text} for {api.name}", deadline, attempt)

    def _warn_of_outage(self, begun_ms: int, failed: FailedAttempts, caller_timeout_ms: int) -> None:
        """Warn when nobody has answered for some time, and then now and again until somebody does."""
        if self._outage_since_ms is None:
            self._outage_since_ms = begun_ms
        now_ms, told_ms = self.clock.monotonic_ms(), self._outage_warned_ms
        due = now_ms - self._outage_since_ms > OUTAGE_WARNING_AFTER_MS
        if told_ms is not None:
            due = now_ms - told_ms >= OUTAGE_WARNING_INTERVAL_MS
        if due and not self._closed:
            self._outage_warned_ms = now_ms
            # Whoever asks for a shorter time goes on with another question.
            whole = caller_timeout_ms >= self.request_timeout_ms
            limit = f", for {round(caller_timeout_ms / 1000)} s in all" if whole else ""
            _log.warning("minikafka: %s; trying again%s", failed, limit)


def describe_partitions(topic: TopicMetadata) -> str:
    """Which partitions a topic has, for messages."""
    count = len(topic.partitions)
    last = f" to {count - 1}" if count != 1 else ""
    return f"topic {topic.name!r} has {counted(count, 'partition')}, 0{last}"


def _no_brokers_problem(response: MetadataResponse) -> str:
    # A broker that has just started has not heard of any, itself included.
    return "" if response.brokers else "names no live broker of its cluster, as one that has just started"


def _retries_exhausted(what: str, timeout_ms: int, failed: FailedAttempts, last: Exception) -> MinikafkaError:
    text = f"{what} failed for {timeout_ms} ms: {failed}"
    return BrokerError(last.code, text) if isinstance(last, BrokerError) else NetworkError(text)
