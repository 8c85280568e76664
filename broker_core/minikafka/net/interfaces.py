"""Interfaces between the network and the packages above it.

A server passes one frame of a connection to the handler, and the next one only after that exchange is
answered (the connection is muted meanwhile), so responses keep the order of the requests. It reads no further
than the same few kilobytes, so a peer that sends faster than it is served fills its own buffers, not ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.net.request_times import RequestTimes
from minikafka.wire.frame_parts import Part

if TYPE_CHECKING:
    import ssl

    from minikafka.net.connection_quotas import ConnectionLimits
    from minikafka.security.principals import KafkaPrincipal


class ServerTlsContext(Protocol):
    """TLS of a listener."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a listener, and its name."""

    listener: str
    host: str
    """Empty: all addresses."""
    port: int
    """0: choose a free port."""
    demands_authentication: bool = False
    """True: a connection has a small limit of request bytes, and a deadline, until ``authenticated``."""
    tls: ServerTlsContext | None = None
    """None: connections are not encrypted. With TLS the handshake has the deadline, too."""


class Exchange(Protocol):
    """One request in flight on one connection. Thread-safe.

    On a connection that has broken meanwhile, calls have no effect.
    """

    @property
    def client_host(self) -> str:
        """The peer's address, without the port."""

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection."""

    @property
    def memory(self) -> dict[str, Any]:
        """State that the handler keeps for this connection, by its own keys.

        Only the request in flight may use it: do not touch it after the response.
        """

    @property
    def times(self) -> RequestTimes:
        """The times of the request, and what an observer needs to know of it."""

    meter: RequestMeter | None
    """Measures the processor time of the request, if the handler has set it before the response."""

    principal: KafkaPrincipal
    """The principal of the connection: ANONYMOUS until a handler sets another one, for all later requests.

    Set it before the response.
    """

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the peer in DER, which the network has verified; None if it has shown none."""

    @property
    def is_abandoned(self) -> bool:
        """True if the peer has closed its side, or the connection has ended: nobody waits for the response.

        Asks the operating system, so it also counts what the network thread has not read yet.
        """

    def authenticated(self) -> None:
        """Declare that the client has authenticated: lift the limits of ``Endpoint.demands_authentication``.

        Call it before the response. On other listeners it does nothing.
        """

    def park(self) -> None:
        """Declare that the request waits for others and is no longer work: do not hold back other requests.

        May be called any number of times, also after the response.
        """

    def keep_counted(self, kept: bool = True) -> None:
        """Count the request's bytes until the response, parked or not, as its memory stays in use.

        Called by the handler before it returns. With ``kept`` false, stop counting when it is parked next.
        """

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        """Send ``parts`` as one frame (the length is added). Call exactly once.

        The next request is read ``pause_ms`` after the frame was sent. Memory and files must not change until
        they are sent. ``[]`` sends nothing, for a request without a response. Raises LocalWireError for more
        than 2 GiB, RuntimeError when this exchange was answered before.
        """

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        """Close the connection; ``reason`` is logged.

        With ``response``, its parts are sent before as one last frame, as ``respond`` does. All of this
        happens ``delay_ms`` from now; meanwhile nothing is read.
        """


class RequestMeter(Protocol):
    """Measures the processor time of a request."""

    def timed(self, steps: Iterator[int]) -> Iterator[int]:
        """Return ``steps``, the time of each of which counts."""

    def sent(self, nanoseconds: int) -> None:
        """Count the time that it took to send the response, or as much of it as could be sent."""


class RequestObserver(Protocol):
    """Observes the requests of a server."""

    counts_errors: bool
    """True if it reads the error codes of responses."""

    def completed(self, exchange: Exchange, sent_ns: int) -> None:
        """Record that the response to a request was sent, at ``sent_ns``; there may have been none to send.

        Runs on the thread of the connection's processor. See ``net.request_times``.
        """


class RequestHandler(Protocol):
    """Handles the requests of a server."""

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Handle one frame (without its length): answer ``exchange`` at once or later, from any thread.

        Runs on the thread that serves the connection, so it must not block. ``frame`` is writable memory that
        belongs to this request. A RemoteWireError closes the connection with its message as the reason; any
        other exception closes it too and is logged with its traceback.
        """


class Server(Protocol):
    """Listening ports with their connections."""

    @property
    def ports(self) -> Mapping[str, int]:
        """Listener name -> its port."""

    @property
    def port(self) -> int:
        """The port of the first listener."""

    def connections(self) -> Mapping[str, tuple[int, int]]:
        """Return the open connections of each listener, and those accepted so far."""

    def ended_threads(self) -> Sequence[str]:
        """Return the names of network threads that have ended, although the server was not stopped."""

    def idle_seconds(self) -> Mapping[str, float]:
        """Return the time that each network thread has waited for events, with the present wait."""

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Replace the limits of connections, for new ones, except ``per_ip_overrides``."""

    def set_ip_rates(self, limits: Mapping[str, int]) -> None:
        """Replace the most new connections in a second from each address; "": from each other one."""

    def stop(self, drain_ms: int = 5000) -> None:
        """Stop reading requests, wait up to ``drain_ms`` for those in flight, and close everything."""


class PendingResponse(Protocol):
    """The future response to a client's request."""

    def done(self) -> bool:
        """Return whether ``result`` would return or raise at once. Reads arrived bytes without waiting."""

    def result(self, timeout_ms: int | None = None) -> memoryview:
        """Return the frame of the response (without its length), as writable memory that belongs to the
        caller.

        Responses are matched to requests by order; the caller compares the correlation ids. Waits until
        ``timeout_ms`` after the request was made (by default the connection's request time-out). Raises
        NetworkError with the peer and the reason when the connection broke or the time is up. A time-out
        closes the connection, as a late response would be taken for the next one.
        """


class Connection(Protocol):
    """A client's connection to one broker. Thread-safe."""

    session_end_ms: int | None
    """The monotonic time from which on the next request belongs on a new connection, as the session of this
    one ends soon; None: it has no end. Set by the connector.
    """

    @property
    def peer(self) -> str:
        """``host:port``, for messages."""

    @property
    def closed(self) -> bool:
        """True when the connection has ended, or when its session does and no response is in flight. Notices
        that the peer closed an idle connection.
        """

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        """Send ``parts`` as one frame (the length is added). Does not wait for earlier responses.

        A response larger than ``max_response_bytes`` breaks the connection as soon as its length arrives.
        Raises NetworkError when the connection is broken, or the peer reads nothing for the request time-out.
        """

    def send(self, parts: Sequence[Part]) -> None:
        """Send a frame that has no response (Produce with acks 0).

        Raises NetworkError as ``request`` does.
        """

    def close(self, drain_ms: int = 0) -> None:
        """Accept no more requests, wait up to ``drain_ms`` for the responses in flight, and close the
        connection. Waiting callers get a NetworkError. A second call does nothing.
        """

    def abort(self) -> None:
        """Close the connection, and send nothing that this machine still has to send: a request that was
        given up must not arrive after the next attempt.
        """


class Connector(Protocol):
    """Makes connections, over real sockets or in memory."""

    def connect(self, host: str, port: int) -> Connection:
        """Return a new connection.

        Raises NetworkError with the address and the reason, and AuthenticationFailed where a retry would not
        help: the two sides do not accept each other.
        """

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """Wait until one of ``pending`` is done. Return False after ``timeout_ms``. Closes nothing.

        They may belong to several connections, all made by this connector.
        """
