"""The client of one cluster: finds topics and leaders, and sends requests to its brokers.

Every client sends its requests through a ``ClusterClient``. It is thread-safe. It joins the parts that do the
work: the cached view (``metadata.Metadata``), the connections (``connections.BrokerConnections``), the
repetition of failed attempts (``retry.Retrier``), the warnings of a lasting outage (``outage_log.OutageLog``)
and the rule that keeps requests from creating topics (``metadata.AutoTopicCreation``). Each operation has a
deadline; its error names the brokers, their addresses and the attempts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    IdentityProviderUnreachable,
    NetworkError,
    NoSuchBroker,
    RemoteWireError,
)
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name
from minikafka.clients.common_client_configs import PROTOCOL, ClientSecurity
from minikafka.clients.metrics.connections import CLIENT
from minikafka.clients.metrics.registry import Metrics, seconds_ago
from minikafka.clients.network.bootstrap import OPTION, HostPort, parse_bootstrap
from minikafka.clients.network.broker_connection import (
    CONNECTIONS_MAX_IDLE_MS,
    BrokerConnection,
    ConnectionConfig,
    ResponseFuture,
)
from minikafka.clients.network.connections import (
    AnyPool,
    BrokerConnections,
    ConnectionPool,
    DedicatedConnectionPool,
)
from minikafka.clients.network.metadata import (
    AutoTopicCreation,
    ClusterMetadata,
    LeaderAndEpoch,
    Metadata,
    TopicMetadata,
    from_response,
    listener_problem,
)
from minikafka.clients.network.outage_log import OutageLog
from minikafka.clients.network.response_errors import denied
from minikafka.clients.network.retry import (
    UNKNOWN_TOPIC_TIMEOUT_MS,
    Deadline,
    EventWaiter,
    FailedAttempts,
    Retrier,
    Waiter,
)
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.net.interfaces import Connector
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from minikafka.wire.apis.current_leader import NodeEndpoint

T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

OUTAGE_WARNING_AFTER_MS = 5_000
"""The time without a response, over any number of requests, after which a warning is logged."""

OUTAGE_WARNING_INTERVAL_MS = 60_000
"""The interval at which the warning is repeated."""

_METADATA_ATTEMPT_MS = 10_000
"""Longest wait for one broker's response while there are other brokers to try."""

_log = logging.getLogger("minikafka.clients")


class ClusterClient:
    """The client of one cluster, which is found through any of its brokers. Connects at the first use.

    ``bootstrap`` is ``host:port,host:port``; anything else is a ConfigError under the name ``option``.
    With ``creates_topics`` False no request of this client can create a topic: readers want this, as a
    deleted topic would come back empty. With ``one_connection`` all shared pools use one connection: for many
    short-lived users, whose fetches do not wait. ``newest_versions`` limits APIs to an older version than
    both sides speak. Configs: ``connections.max.idle.ms``, ``metadata.max.age.ms``, ``request.timeout.ms``.

    ``security``: TLS and SASL, for example ``ClientSecurity.from_properties({"security.protocol": "SSL"})``.
    ``connector``: makes the connections instead.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        security: ClientSecurity | None = None,
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
        self.security = security or ClientSecurity()
        self._bootstrap = parse_bootstrap(bootstrap, option, self.security.protocol)
        self._option = option
        why_closed = partial(self.security.why_closed, client_id=client_id) if connector is None else None
        self._connector = connector = connector or self.security.connector(
            client_id=client_id, connect_timeout_ms=connect_timeout_ms, request_timeout_ms=request_timeout_ms
        )
        self.clock = clock or SystemClock()
        self.waiter = waiter or EventWaiter()
        self.request_timeout_ms = request_timeout_ms
        self._retrier = Retrier(
            self.clock,
            self.waiter,
            timeout_ms=request_timeout_ms,
            unknown_topic_timeout_ms=unknown_topic_timeout_ms,
        )
        self.backoff = self._retrier.backoff
        config = ConnectionConfig(
            connector,
            self.clock,
            self.waiter,
            client_id,
            request_timeout_ms,
            newest_versions=newest_versions or {},
            connections_max_idle_ms=connections_max_idle_ms,
            why_closed=why_closed,
        )
        self._connections = BrokerConnections(config, one_connection=one_connection)
        self._metadata = Metadata(metadata_max_age_ms)
        self._refresh_lock = threading.Lock()
        self._topic_creation = AutoTopicCreation(creates_topics)
        self._outage = OutageLog(OUTAGE_WARNING_AFTER_MS, OUTAGE_WARNING_INTERVAL_MS)
        self._listener_outage = OutageLog(OUTAGE_WARNING_AFTER_MS, OUTAGE_WARNING_INTERVAL_MS)

    # --- metadata -------------------------------------------------------------------------------------------

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
        stale = tuple(name for name in names if not self._metadata.is_fresh(name, asked_at_ms))
        needed = names if refresh else stale
        if not needed:
            return self._metadata.view
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
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}: {topic.partition_range}")
            leader = self._metadata.view.leader(tp)
            if leader is None:
                self.invalidate(tp.topic)
                raise self._metadata.view.no_leader_error([tp])
            return leader

        return self.retry(f"finding the leader of {tp}", deadline, attempt)

    def known_topic(self, name: str) -> TopicMetadata | None:
        """Return the cached metadata of a topic, however old; None if no partitions of it are known."""
        topic = self._metadata.view.topics.get(name)
        return topic if topic is not None and topic.partitions else None

    def known_leader(self, tp: TopicPartition) -> int | None:
        """Return the leader of a partition from the cache; None if it is unknown or stale."""
        topic = self._metadata.fresh_topic(tp.topic, self.clock.monotonic_ms())
        found = None if topic is None else topic.partition(tp.partition)
        if found is None or found.leader_id not in self._metadata.view.brokers:
            return None
        return found.leader_id

    def known_leader_and_epoch(self, tp: TopicPartition) -> LeaderAndEpoch | None:
        """Return the leader of a partition with its epoch, as ``known_leader``."""
        if not self._metadata.is_fresh(tp.topic, self.clock.monotonic_ms()):
            return None
        return self._metadata.view.leader_and_epoch(tp)

    @property
    def leaders_version(self) -> int:
        """A number that is another one whenever ``known_leader`` may return another leader."""
        return self._metadata.version_at(self.clock.monotonic_ms())

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of a partition from the cache, however old; -1 if it is unknown."""
        return self._metadata.view.leader_epoch(tp)

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic from the cache, however old; zero if it is unknown."""
        return self._metadata.view.topic_id(name)

    def known_in_sync(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """Return the in-sync replicas of a partition from the cache; None for an unknown partition."""
        found = self._metadata.view.partition(tp)
        return None if found is None else found.in_sync

    def check_security(self, given: ClientSecurity | None) -> None:
        """Raise ConfigError if the security that a producer or consumer was given is not this client's."""
        if given is not None and given != self.security:
            allowed = (
                f"is not the security of the ClusterClient, which has {self.security.protocol.name}; pass "
                "security=ClientSecurity.from_properties(…) with the same settings to it"
            )
            raise ConfigError(PROTOCOL, given.protocol.name, allowed)

    def check_login(self, timeout_ms: int) -> bool:
        """Send a request to the first bootstrap server that can be reached. Return True if it accepts this
        client, False if none answers: they may be away. No other one is tried in the last half of the time.

        Raises AuthenticationFailed if it refuses this client, because of a wrong secret, certificate or
        security protocol; and IdentityProviderUnreachable.
        """
        deadline = self.deadline(timeout_ms)
        request = AutoTopicCreation(False).request((), NEWEST_USED[METADATA.key])
        for connection in self._candidate_connections():
            try:
                connection.send(METADATA, lambda _: request, deadline).result(deadline.remaining_ms())
                return True
            except IdentityProviderUnreachable:
                raise
            except (NetworkError, RemoteWireError):
                if deadline.remaining_ms() < timeout_ms / 2:
                    break
        return False

    def update_leaders(
        self, leaders: Mapping[TopicPartition, LeaderAndEpoch], endpoints: Iterable[NodeEndpoint]
    ) -> frozenset[TopicPartition]:
        """Take the leaders that a broker named with NOT_LEADER_FOR_PARTITION (KIP-951); return the partitions
        whose leader is one of them now, so that none needs to be looked up.
        """
        addresses = {e.node_id: BrokerAddress(e.node_id, e.host, e.port, e.rack) for e in endpoints}
        self._metadata.update_leaders(leaders, addresses)
        view = self._metadata.view
        return frozenset(tp for tp, leader in leaders.items() if view.leader_and_epoch(tp) == leader)

    def invalidate(self, topic: str) -> None:
        """Mark the metadata of ``topic`` as stale: it is requested again before its next use."""
        self._metadata.invalidate(topic)

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

    # --- requests -------------------------------------------------------------------------------------------

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """Return a deadline on this client's clock, after the request time-out by default."""
        return self._retrier.deadline(timeout_ms)

    def connection(self, broker_id: int, pool: AnyPool = ConnectionPool.CONTROL) -> BrokerConnection:
        """Return the connection to a broker in the metadata. Raises NoSuchBroker if it is not in it."""
        address = self._metadata.view.brokers.get(broker_id)
        if address is None:
            living = ", ".join(map(str, sorted(self._metadata.view.brokers))) or "none"
            raise NoSuchBroker(
                f"broker {broker_id} is not among the live brokers of the cluster at {self.bootstrap_text} "
                f"(live: {living})"
            )
        return self.connection_to(address, pool)

    def connection_to(
        self, address: BrokerAddress, pool: AnyPool = ConnectionPool.CONTROL
    ) -> BrokerConnection:
        """Return the connection to a broker that another broker named, such as a group's coordinator."""
        return self._connections.get(address, address, pool)

    def any_connection(self, deadline: Deadline) -> BrokerConnection:
        """Return a connection to any broker that can be reached. Raises NetworkError if there is none."""
        self._refresh((), deadline, asked_at_ms=None)
        return self._candidate_connections()[0]

    def wait_any(self, replies: Iterable[ResponseFuture[Any]], timeout_ms: int) -> bool:
        """Wait until one of ``replies`` is done; False if ``timeout_ms`` pass first. All stay valid."""
        return self._connector.wait_any([reply.pending for reply in replies], timeout_ms)

    def send(
        self,
        broker_id: int,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        *,
        pool: AnyPool = ConnectionPool.CONTROL,
        deadline: Deadline | None = None,
        newest: int | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send a request to a broker without waiting. One attempt; as ``BrokerConnection.send``."""
        deadline = deadline or self.deadline()
        return self.connection(broker_id, pool).send(api, lambda _: request, deadline, newest)

    def call(
        self,
        broker_id: int | None,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        *,
        pool: AnyPool = ConnectionPool.CONTROL,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """Return the response of one broker, in one attempt, or (None) of any broker that can be reached.

        With None the request must be idempotent, as it may reach several brokers.
        """
        deadline = self.deadline(timeout_ms)
        if broker_id is None:
            return self._call_any_broker(api, lambda _: request, deadline)
        reply = self.send(broker_id, api, request, pool=pool, deadline=deadline)
        return reply.result(deadline.remaining_ms())

    def retry(self, what: str, deadline: Deadline, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, repeated with back-off while its error is retriable.

        Raises as ``Retrier.run``.
        """
        return self._retrier.run(f"{what} failed", deadline, attempt)

    def close_pool(self, pool: DedicatedConnectionPool) -> None:
        """Close the connections of ``pool``; requests in flight on them fail with a NetworkError."""
        self._connections.close_pool(pool)

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long, also those to brokers no longer in use."""
        self._connections.close_idle()

    def metrics(self, prefix: str = CLIENT) -> Metrics:
        """Return the metrics of all connections, and of those to each broker: group -> name -> value.

        ``prefix``: that of the groups' names, as of the kind of client that uses the connections.
        """
        return self._connections.metrics(prefix, self._metadata.view.brokers.values())

    @property
    def metadata_age_s(self) -> float:
        """The seconds since metadata of a topic was fetched last; NaN if it never was."""
        fetched_ms = max((topic.fetched_ms for topic in self._metadata.view.topics.values()), default=None)
        return seconds_ago(fetched_ms, self.clock.monotonic_ms())

    def close(self) -> None:
        """Close all connections; requests in flight fail with a NetworkError. A second call does nothing."""
        self._retrier.close()
        self._connections.close()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- internals ------------------------------------------------------------------------------------------

    def _topic_once(self, name: str, deadline: Deadline, creates_topics: bool | None = None) -> TopicMetadata:
        known = self.metadata(
            [name],
            timeout_ms=deadline.remaining_ms(),
            caller_timeout_ms=deadline.timeout_ms,
            creates_topics=creates_topics,
        )
        topic = known.topics.get(name)
        if topic is not None and topic.partitions and topic.error is ErrorCode.NONE:
            return topic
        self.invalidate(name)
        creates = self._topic_creation.allowed if creates_topics is None else creates_topics
        raise self._unusable_topic_error(name, "Describe or Create" if creates else "Describe")

    def _unusable_topic_error(self, name: str, operation: str) -> BrokerError:
        """Return the error of a requested topic that has no usable partitions. operation: what was asked."""
        topic = self._metadata.view.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text = f"there is no topic {name!r} in the cluster at {self.bootstrap_text}"
            return BrokerError(code, f"{text}, or this client may not describe it")
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return BrokerError(code, denied(operation, f"topic {name!r}"))
        return BrokerError(
            code if code is not ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE,
            f"topic {name!r} is not available in the cluster at {self.bootstrap_text}",
        )

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
            if asked_at_ms is not None and topics and self._metadata.fetched_since(topics, asked_at_ms):
                return self._metadata.view
            creation = self._topic_creation if creates_topics is None else AutoTopicCreation(creates_topics)
            version = NEWEST_USED[METADATA.key]
            sent = creation.request(topics, version)

            def request(spoken: int) -> MetadataRequest:
                nonlocal sent, version
                sent, version = creation.request(topics, spoken), spoken
                return sent

            response = self._call_any_broker(
                METADATA, request, deadline, _no_brokers_problem, caller_timeout_ms
            )
            newer = from_response(response, self.clock.monotonic_ms(), topics or (), version)
            self._warn_of_listeners(newer)
            view = self._metadata.update(newer, sent.names)
            in_use = {HostPort(b.host, b.port) for b in newer.brokers.values()}
            self._connections.keep(in_use.union(self._bootstrap))
            return view
        finally:
            self._refresh_lock.release()

    def _candidate_connections(self) -> list[BrokerConnection]:
        """Return the connections that any request can use: connected ones first, the bootstrap list last."""
        brokers = self._metadata.view.brokers.values()
        names: dict[HostPort, str | BrokerAddress] = {HostPort(b.host, b.port): b for b in brokers}
        for endpoint in self._bootstrap:
            names.setdefault(endpoint, f"bootstrap server {endpoint}")
        connections = [self._connections.get(endpoint, name) for endpoint, name in names.items()]
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
                # A broker that hangs leaves the others their time; the last one may take all that remains.
                left = len(connections) - position
                share_ms = -(-deadline.remaining_ms() // left)  # rounded up: 0 ms would ask nobody
                if left > 1:
                    share_ms = min(share_ms, _METADATA_ATTEMPT_MS)
                limit = self.deadline(deadline.at_most(share_ms))
                try:
                    response = connection.send(api, request, limit).result(limit.remaining_ms())
                except (NetworkError, RemoteWireError) as error:
                    failed.add(error)
                    continue
                problem = problem_in(response)
                if not problem:
                    self._outage.record_success()
                    return response
                failed.add(NetworkError(problem, str(connection.name)))
            self._warn_of_outage(started_ms, failed, caller_timeout_ms or deadline.timeout_ms)
            raise failed.network_error("")

        return self._retrier.run("no broker could be reached", deadline, attempt, self._unreachable_advice)

    def _warn_of_outage(self, started_ms: int, failed: FailedAttempts, caller_timeout_ms: int) -> None:
        if self._outage.record_failure(started_ms, self.clock.monotonic_ms()) and not self._retrier.closed:
            # A caller with a shorter time-out sends another request after it.
            whole = caller_timeout_ms >= self.request_timeout_ms
            limit = f", for {round(caller_timeout_ms / 1000)} s in total" if whole else ""
            _log.warning("minikafka: %s; retrying%s", failed, limit)

    def _warn_of_listeners(self, found: ClusterMetadata) -> None:
        """Log a warning if leaders do not have this client's listener, as Kafka's clients do."""
        hidden, now_ms = found.without_listener(), self.clock.monotonic_ms()
        if not hidden:
            self._listener_outage.record_success()
        elif self._listener_outage.record_failure(now_ms, now_ms):
            _log.warning("minikafka: %s", listener_problem(hidden))

    def _unreachable_advice(self) -> str:
        """Return the end of an error message: what to check if no broker responds."""
        if self._metadata.view.brokers:
            return (
                "check that the brokers run, and that this host can connect to them; if they have other "
                f"listeners now, set {self._option} and {PROTOCOL} to one of them"
            )
        return (
            "check that a broker runs there (`minikafka up` starts one), and that "
            f"{self._option} has the host and port of one of its listeners"
        )


def _no_brokers_problem(response: MetadataResponse) -> str:
    # A broker that has just started knows no broker yet, not even itself.
    return "" if response.brokers else "lists no live broker (it may have just started)"
