"""A client's connection to one broker: opened when needed, negotiated, pipelined, reopened after a failure.

A new connection first sends ApiVersions with the name and version of this software, in an older version of
the request if the broker refuses the newest. Later requests use the newest version that both sides speak.
After a failed attempt to connect the next one waits, 50 ms at first and twice as long each time, up to a
second. A request that is not answered in time leaves its connection out of step, so the connection is closed,
and all requests in flight on it fail.

After ``connections_max_idle_ms`` without a request a connection is replaced before its next use: a gateway in
between may have dropped it without notice to either side. So is one whose session ends soon; the requests in
flight on it are answered first, and the next one waits for that, so that their order does not change.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from minikafka.base import __version__
from minikafka.base.clock import Clock
from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    IdentityProviderUnreachable,
    NetworkError,
    NoResponse,
    PeerClosed,
    RemoteWireError,
)
from minikafka.base.ids import BrokerAddress
from minikafka.clients.metrics.connections import NodeMetrics
from minikafka.clients.network.retry import Backoff, Deadline, Waiter
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, is_refusal
from minikafka.wire.frame_parts import Part, part_size
from minikafka.wire.framing import RequestHeader, split_response

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

VersionTable = Mapping[int, tuple[int, int]]
"""API key to the oldest and newest version that a broker supports."""

CONNECTIONS_MAX_IDLE_MS = 540_000
"""Kafka's default for clients. Its brokers close a minute later, so that the client closes first."""

_CHECK_INTERVAL_MS = 10_000
"""The interval at which a broker that closes every connection is asked whether it demands a login."""
_CORRELATION_IDS = 0x7FFFFFFF
SOFTWARE = ApiVersionsRequest("minikafka", __version__)
"""The software of this client, for the log of the broker."""


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """The settings that all connections of a client share.

    ``newest_versions`` limits APIs to an older version than this client has.
    """

    connector: Connector
    clock: Clock
    waiter: Waiter
    client_id: str
    request_timeout_ms: int = 30_000
    backoff: Backoff = field(default_factory=Backoff)
    newest_versions: Mapping[ApiKey, int] = field(default_factory=dict)
    connections_max_idle_ms: int = CONNECTIONS_MAX_IDLE_MS
    why_closed: Callable[[str, int], str | None] | None = None
    """Returns why the broker at an address closes connections at the first request; None: unknown."""


class ResponseFuture(Generic[ResponseT]):
    """The response to one request, which may be still in flight."""

    __slots__ = ("_api", "_broker", "_correlation_id", "_sent_ms", "latency_ms", "pending", "version")

    def __init__(
        self,
        broker: BrokerConnection,
        pending: PendingResponse,
        api: Api[Any, ResponseT],
        version: int,
        correlation_id: int,
        sent_ms: int,
    ) -> None:
        self.version = version
        self.latency_ms: int | None = None
        """The time from the request until the response was taken; None before that."""
        self._sent_ms = sent_ms
        self._broker = broker
        self.pending = pending
        self._api = api
        self._correlation_id = correlation_id

    def done(self) -> bool:
        """Return True if ``result`` would return or raise at once."""
        return self.pending.done()

    def result(self, timeout_ms: int | None = None) -> ResponseT:
        """Return the decoded response. Records in it are views of the received frame, which the caller owns.

        Raises NetworkError when the connection broke, or no response came within ``timeout_ms`` of the
        request (the request time-out by default), RemoteWireError for an invalid response; both close the
        connection.
        """
        try:
            frame = self.pending.result(timeout_ms)
        except NetworkError as error:
            self._broker.check_listener(error)
            raise _network_error(str(self._broker.name), self._api.name, error) from error
        self._broker.has_answered = True
        if self.latency_ms is None:
            self.latency_ms = self._broker.record_response(len(frame), self._sent_ms)
        try:
            is_flexible = self._api.has_tagged_response_header(self.version)
            correlation_id, body = split_response(frame, is_flexible)
            if correlation_id != self._correlation_id:
                raise RemoteWireError(f"expected correlation id {self._correlation_id}, got {correlation_id}")
            return self._api.decode_response(self.version, body)
        except RemoteWireError as error:
            self._broker.disconnect()
            raise RemoteWireError(f"{self._broker.name}, {self._api.name} {self.version}: {error}") from error


class BrokerConnection:
    """The connection to one broker. Thread-safe."""

    def __init__(
        self,
        name: str | BrokerAddress,
        host: str,
        port: int,
        config: ConnectionConfig,
        metrics: NodeMetrics | None = None,
    ) -> None:
        self.name = name
        """For messages: the address itself, as making its text takes longer than finding the connection."""
        self.metrics = metrics or NodeMetrics()
        """Those of the broker, which other connections to it may share."""
        self._host = host
        self._port = port
        self._config = config
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._versions: VersionTable = {}
        self.has_answered = False
        """True once the broker has answered another request than ApiVersions."""
        self._next_check_ms = 0
        self._correlation_ids = itertools.count(1)
        self._failures = 0
        self._last_failure = ""
        self._reconnect_at_ms = 0
        self._last_used_ms = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """True while a connection is open, as far as is known."""
        connection = self._connection
        return connection is not None and not connection.closed

    def connect(self, deadline: Deadline) -> None:
        """Open a connection if there is none. Raises NetworkError if that fails."""
        self._ready_connection(deadline)

    def version(self, api: Api[Any, Any], deadline: Deadline) -> int:
        """Return the version of ``api`` to use with this broker; connects if it never has."""
        if not self._versions:
            self._ready_connection(deadline)
        return self._latest_usable_version(api)

    def known_version(self, api: Api[Any, Any]) -> int | None:
        """Return the version of ``api`` to use, as ``version``; None if the broker was never connected."""
        return self._latest_usable_version(api) if self._versions else None

    def send(
        self,
        api: Api[RequestT, ResponseT],
        request: Callable[[int], RequestT],
        deadline: Deadline,
        newest: int | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send ``request(version)`` without waiting for its response; connects if needed.

        ``newest`` is the newest version allowed. Raises NetworkError if the connection cannot be opened or
        breaks, BrokerError UNSUPPORTED_VERSION if broker and client have no version of ``api`` in common,
        LocalWireError for a request that cannot be encoded.
        """
        connection = self._ready_connection(deadline)
        version = self._latest_usable_version(api, newest)
        body = request(version)
        correlation_id, parts = self._encode(api, version, body)
        try:
            pending = connection.request(parts, max_response_bytes=api.response_bytes_max(version, body))
            return ResponseFuture(self, pending, api, version, correlation_id, self._record_request(parts))
        except NetworkError as error:
            raise _network_error(str(self.name), api.name, error) from error

    def send_without_response(
        self,
        api: Api[RequestT, Any],
        request: Callable[[int], RequestT],
        deadline: Deadline,
        newest: int | None = None,
    ) -> None:
        """Send a request that gets no response (Produce with acks 0); else as ``send``."""
        connection = self._ready_connection(deadline)
        version = self._latest_usable_version(api, newest)
        _, parts = self._encode(api, version, request(version))
        try:
            connection.send(parts)
            self._record_request(parts)
        except NetworkError as error:
            raise _network_error(str(self.name), api.name, error) from error

    def record_response(self, size_bytes: int, sent_ms: int) -> int:
        """Record the response to a request; return its latency in ms."""
        now_ms = self._config.clock.monotonic_ms()
        self.metrics.record_response(size_bytes, now_ms - sent_ms, now_ms)
        return now_ms - sent_ms

    def _record_request(self, parts: Sequence[Part]) -> int:
        """Record a request that was sent; return the time."""
        now_ms = self._config.clock.monotonic_ms()
        self.metrics.record_request(sum(map(part_size, parts)), now_ms)
        return now_ms

    def disconnect(self) -> None:
        """Close the connection, if there is one; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.metrics.record(self.metrics.closed, self._config.clock.monotonic_ms())
            connection.close()

    def close_idle(self) -> None:
        """Close the connection if no request was sent on it for ``connections_max_idle_ms``."""
        if self._is_idle() and self._lock.acquire(blocking=False):  # else another thread is connecting
            try:
                if self._is_idle():
                    self.disconnect()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Close for good. A second call does nothing."""
        self._closed = True
        self.disconnect()

    def _encode(self, api: Api[RequestT, Any], version: int, request: RequestT) -> tuple[int, Sequence[Part]]:
        correlation_id = next(self._correlation_ids) & _CORRELATION_IDS
        header = RequestHeader(api.key, version, correlation_id, self._config.client_id)
        return correlation_id, [header.encode(), *api.encode_request(version, request)]

    def _latest_usable_version(self, api: Api[Any, Any], newest_wanted: int | None = None) -> int:
        newest_here = self._newest_here(api)
        if newest_wanted is not None:
            newest_here = min(newest_here, newest_wanted)
        oldest, newest = self._versions.get(api.key, (0, -1))
        version = min(newest_here, newest)
        if version < max(api.min_version, oldest):
            theirs = f"versions {oldest} to {newest}" if newest >= 0 else "no version"
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"no common version of {api.name}: {self.name} supports {theirs}, "
                f"this client {api.min_version} to {newest_here}",
            )
        return version

    def _newest_here(self, api: Api[Any, Any]) -> int:
        newest_used = NEWEST_USED[api.key]
        return min(newest_used, self._config.newest_versions.get(api.key, newest_used))

    def _ready_connection(self, deadline: Deadline) -> Connection:
        connection = self._reusable_connection()
        if connection is not None:
            return connection
        if not self._lock.acquire(timeout=deadline.remaining_ms() / 1000):
            raise self._cannot_connect_error(deadline)
        try:
            return self._reusable_connection() or self._connect(deadline)
        finally:
            self._lock.release()

    def _reusable_connection(self) -> Connection | None:
        """Return the connection for one more request; None if a new one is needed."""
        connection = self._connection
        if connection is None or connection.closed or self._is_idle():
            return None
        now_ms = self._config.clock.monotonic_ms()
        if connection.session_end_ms is not None and connection.session_end_ms <= now_ms:
            return None
        self._last_used_ms = now_ms
        return connection

    def _is_idle(self) -> bool:
        idle_ms = self._config.clock.monotonic_ms() - self._last_used_ms
        return self._connection is not None and idle_ms >= self._config.connections_max_idle_ms

    def _connect(self, deadline: Deadline) -> Connection:
        clock = self._config.clock
        pause_ms = self._reconnect_at_ms - clock.monotonic_ms()
        if pause_ms > 0:
            self._config.waiter.wait(deadline.at_most(pause_ms))
        self._check_open()
        if deadline.expired:
            raise self._cannot_connect_error(deadline)
        replaced, self._connection = self._connection, None
        if replaced is not None:
            self.metrics.record(self.metrics.closed, clock.monotonic_ms())
            replaced.close(drain_ms=deadline.remaining_ms())
        try:
            connection = self._config.connector.connect(self._host, self._port)
            try:
                self._versions = self._negotiate(connection, deadline)
            except BaseException:
                connection.close()
                raise
        except NetworkError as error:
            self._record_failure(error.detail)
            self.check_listener(error)
            kind = type(error) if isinstance(error, IdentityProviderUnreachable) else NetworkError
            raise kind(error.detail, str(self.name), error.advice) from error
        except AuthenticationFailed as error:  # nobody repeats it; another call may come soon
            self._record_failure(error.reason)
            self.metrics.record(self.metrics.failed_logins, clock.monotonic_ms())
            raise
        self._failures = 0
        self._last_used_ms = clock.monotonic_ms()
        self.metrics.record(self.metrics.opened, self._last_used_ms)
        self._connection = connection
        if self._closed:
            # ``close`` was called meanwhile and found no connection to close.
            self.disconnect()
        self._check_open()
        return connection

    def check_listener(self, error: NetworkError) -> None:
        """Raise AuthenticationFailed if the broker has closed the connection because its listener demands a
        login. Otherwise it may be a broker that is being stopped.
        """
        why_closed, causes = self._config.why_closed, (error, error.__cause__)
        is_close = any(isinstance(cause, PeerClosed) for cause in causes)
        if why_closed is None or self.has_answered or not is_close:
            return
        now_ms = self._config.clock.monotonic_ms()
        if now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + _CHECK_INTERVAL_MS
            reason = why_closed(self._host, self._port)
            if reason is not None:
                text = f"{self.name}: {reason}"
                raise AuthenticationFailed(text, text, ErrorCode.ILLEGAL_SASL_STATE)

    def _record_failure(self, reason: str) -> None:
        self._failures += 1
        self._last_failure = reason
        delay_ms = self._config.backoff.delay_ms(self._failures)
        self._reconnect_at_ms = self._config.clock.monotonic_ms() + delay_ms

    def _check_open(self) -> None:
        if self._closed:
            raise NetworkError("the client is closed", str(self.name))

    def _cannot_connect_error(self, deadline: Deadline) -> NetworkError:
        """Return the error for a deadline that passes before the next attempt: the last one's says more."""
        reason = self._last_failure if self._failures else f"no connection within {deadline.timeout_ms} ms"
        return NetworkError(reason, str(self.name))

    def _negotiate(self, connection: Connection, deadline: Deadline) -> VersionTable:
        newest = self._newest_here(API_VERSIONS)
        response = self._ask_versions(connection, newest, deadline)
        if newest and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # Since 2.4 a broker says which version it supports; an older one has an empty table.
            supported = (row.max_version for row in response.api_keys if row.api_key == API_VERSIONS.key)
            older = max(0, min(newest - 1, next(supported, 0)))
            response = self._ask_versions(connection, older, deadline)
        code = ErrorCode.of(response.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            raise BrokerError(code, f"{self.name} rejected ApiVersions")
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _ask_versions(self, connection: Connection, version: int, deadline: Deadline) -> ApiVersionsResponse:
        correlation_id, parts = self._encode(API_VERSIONS, version, SOFTWARE)
        pending = connection.request(parts)
        try:
            frame = pending.result(deadline.at_most(self._config.request_timeout_ms))
            received_id, body = split_response(frame)
            if received_id != correlation_id:
                raise RemoteWireError(f"expected correlation id {correlation_id}, got {received_id}")
            return API_VERSIONS.decode_response(0 if is_refusal(body) else version, body)
        except NetworkError as error:
            raise _network_error(
                "", "cannot connect: ApiVersions (needs Kafka 0.10 or newer)", error
            ) from error
        except RemoteWireError as error:
            raise NetworkError(
                f"cannot connect: invalid response to ApiVersions; check that this is a Kafka broker: {error}"
            ) from error


def _network_error(peer: str, request: str, error: NetworkError) -> NetworkError:
    """Return ``error`` as that of a request to ``peer``."""
    if isinstance(error, NoResponse):
        return NoResponse(error.timeout_ms, peer, request)
    return NetworkError(f"{request}: {error.detail}", peer)
