"""Connections to other brokers of the cluster: one connection, one request in flight at a time.

An ``InterBrokerConnection`` runs in steps that never wait, except to connect: a thread waits between them,
the simulation advances its clock.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.base.clock import NEVER_MS, Clock
from minikafka.base.errors import AuthenticationFailed, NetworkError, RemoteWireError, SslAuthenticationFailed
from minikafka.base.ids import BrokerAddress
from minikafka.base.reports import report
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.server.served_versions import NEWEST_SERVED
from minikafka.wire.api import Api
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.framing import RequestHeader, split_response

_log = logging.getLogger(__name__)

_LOOK_MS = 1_000
"""The interval at which an idle thread checks whether it must end."""


class LoginRefused(NetworkError):
    """Another broker refuses the login of this one."""


def report_refused_login(broker: str, reason: str) -> None:
    """Log that this broker cannot log in to ``broker``, and report it to the process that waits for it."""
    problem = f"cannot log in to {broker}: {reason}"
    _log.error("%s", problem)
    report("login_refused", message=problem)


def check_own_login(address: BrokerAddress, connector: Connector) -> None:
    """Report if the inter-broker listener of this broker, at ``address``, refuses its own login.

    Others would refuse it too: they have the same users. A listener that does not answer, or whose
    certificate is not trusted, says nothing about the login.
    """
    try:
        connector.connect(address.host, address.port).close()
    except (NetworkError, SslAuthenticationFailed):
        return
    except AuthenticationFailed as error:
        report_refused_login("its own inter-broker listener", error.reason)


class Peer:
    """A connection to one broker at one address. For one thread at a time."""

    def __init__(self, address: BrokerAddress, connector: Connector, client_id: str) -> None:
        self.address = address
        self.connector = connector
        self._client_id = client_id
        self._connection: Connection | None = None
        self._pending: PendingResponse | None = None
        self._asked: tuple[Api[Any, Any], int] = API_VERSIONS, 0
        self._correlation_id = 0
        self._newest: Mapping[int, int] = {}

    @property
    def pending(self) -> PendingResponse | None:
        """The pending response; None if no request is in flight."""
        return self._pending

    @property
    def negotiated(self) -> bool:
        """True if the broker's API versions are known over the current connection."""
        return bool(self._newest) and self._connection is not None and not self._connection.closed

    def version(self, api: Api[Any, Any]) -> int:
        """Return the newest version of ``api`` that both brokers support; valid once ``negotiated``."""
        return min(self._newest.get(api.key, 0), NEWEST_SERVED[api.key])

    def negotiate(self) -> None:
        """Request the API versions; ``answer`` returns the ApiVersionsResponse."""
        self.send(API_VERSIONS, 0, ApiVersionsRequest())

    def send(self, api: Api[Any, Any], version: int, request: Any) -> None:
        """Send a request, after connecting if necessary. Raises NetworkError."""
        self._correlation_id += 1
        header = RequestHeader(int(api.key), version, self._correlation_id, self._client_id)
        parts = [header.encode(), *api.encode_request(version, request)]
        try:
            if self._connection is None or self._connection.closed:
                self.close()
                self._connection = self.connector.connect(self.address.host, self.address.port)
            self._asked = api, version
            self._pending = self._connection.request(parts)
        except AuthenticationFailed as error:
            raise _network_error(error) from None

    def answered(self) -> bool:
        """Return True if ``answer`` returns or raises at once."""
        return self._pending is not None and self._pending.done()

    def answer(self, timeout_ms: int | None = None) -> Any:
        """Wait for and return the response. Raises NetworkError or RemoteWireError; the connection is closed
        then.
        """
        pending, self._pending = self._pending, None
        assert pending is not None, "nothing was sent"
        api, version = self._asked
        try:
            frame = pending.result(timeout_ms)
            correlation_id, body = split_response(frame, api.has_tagged_response_header(version))
            if correlation_id != self._correlation_id:
                raise RemoteWireError(
                    f"expected correlation id {self._correlation_id} in a response, got {correlation_id}"
                )
            response = api.decode_response(version, body)
        except (NetworkError, RemoteWireError):
            self.close()
            raise
        except AuthenticationFailed as error:
            self.close()
            raise _network_error(error) from None
        if api is API_VERSIONS:
            self._newest = {known.api_key: known.max_version for known in response.api_keys}
        return response

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._pending = None
        self._newest = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Close the connection, so that a request that the other broker has not received never arrives."""
        if self._connection is not None:
            self._connection.abort()
        self.close()


def _network_error(error: AuthenticationFailed) -> NetworkError:
    """Return the error for requests, which are tried again: credentials and certificates may change."""
    kind = NetworkError if isinstance(error, SslAuthenticationFailed) else LoginRefused
    return kind(error.reason)


def _level(error: Exception) -> int:
    """Return the level of the line about a failed request: a refused login does not mend itself."""
    return logging.ERROR if isinstance(error, LoginRefused) else logging.WARNING


class InterBrokerConnection(ABC):
    """A sequence of requests to another broker, with retries. Subclasses provide the requests."""

    def __init__(self, peer: Peer, clock: Clock, timeout_ms: int) -> None:
        """``timeout_ms``: the connection is closed if a response takes longer."""
        self.peer = peer
        self.clock = clock
        self._timeout_ms = timeout_ms
        self._asked_ms = 0
        self._not_before_ms = 0
        self._complaint = ""
        self._stopping = False
        self._wake = threading.Event()

    @abstractmethod
    def ask(self) -> bool:
        """Send the next request; return False if there is none. Raises NetworkError if that fails."""

    @abstractmethod
    def take(self, response: Any) -> None:
        """Process the response to the last request."""

    @abstractmethod
    def failed(self, reason: str) -> int:
        """Handle a failed request or connection; return the pause before the next attempt in ms."""

    @abstractmethod
    def next_ms(self) -> int:
        """Return the time (monotonic) before which ``ask`` has no request; NEVER_MS: not before ``wake``."""

    def due_ms(self) -> int:
        """Return the time (monotonic) before which ``step`` has no work if nothing is delivered."""
        if self.peer.pending is None:
            return max(self._not_before_ms, self.next_ms())
        return 0 if self.peer.answered() else self._asked_ms + self._timeout_ms

    def step(self) -> bool:
        """Send a request or process a response; return True if there was work."""
        if self.peer.pending is None:
            self._asked_ms = self.clock.monotonic_ms()
            if self._asked_ms < self._not_before_ms:
                return False
            try:
                return self.ask()
            except NetworkError as error:
                self._fail(error.detail, _level(error))
                return True
        if not self.peer.answered():
            if self.clock.monotonic_ms() < self._asked_ms + self._timeout_ms:
                return False
            self._fail(f"no response within {self._timeout_ms} ms")
            return True
        try:
            response = self.peer.answer()
        except (NetworkError, RemoteWireError) as error:
            self._fail(error.detail if isinstance(error, NetworkError) else str(error), _level(error))
            return True
        if self._complaint:
            _log.info("%s responds again", self.peer.address)
        self._complaint = ""
        self.take(response)
        return True

    def _fail(self, reason: str, level: int = logging.WARNING) -> None:
        self.peer.abort()
        self._not_before_ms = self.clock.monotonic_ms() + self.failed(reason)
        if self._complaint != reason:
            self._complaint = reason
            _log.log(level, "request to %s failed, retrying: %s", self.peer.address, reason)

    def wake(self) -> None:
        """Wake the thread: there is a new request."""
        self._wake.set()

    def run(self) -> None:
        """Run steps on the calling thread until ``stop``."""
        while not self._stopping:
            try:
                if self.step():
                    continue
            except Exception:  # noqa: BLE001 - one failure must not end the thread
                _log.exception("unexpected error in requests to %s, reconnecting", self.peer.address)
                self._fail("unexpected error in this broker")
            self._wait()
        self.peer.close()

    def _wait(self) -> None:
        if self.peer.pending is not None:
            self.peer.connector.wait_any([self.peer.pending], _LOOK_MS)
            return
        now_ms = self.clock.monotonic_ms()
        due = [at - now_ms for at in (self._not_before_ms, self.next_ms()) if at > now_ms]
        self._wake.wait(min([_LOOK_MS, *due]) / 1000)
        self._wake.clear()

    def stop(self) -> None:
        """End ``run`` soon."""
        self._stopping = True
        self._wake.set()


def step_all(connections: Iterable[InterBrokerConnection]) -> bool:
    """Run one step of each connection. Return True if any had work."""
    return any(tuple(connection.step() for connection in tuple(connections)))  # not only up to the first


def first_due_ms(connections: Iterable[InterBrokerConnection]) -> int:
    """Return the time (monotonic) before which ``step_all`` has no work if nothing is delivered."""
    return min((connection.due_ms() for connection in tuple(connections)), default=NEVER_MS)
