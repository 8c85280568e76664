"""What the network offers to the floors above it, and what it asks of them.

A server gives one frame of a connection to the handler, and the next one when that exchange is answered
("muted"): this keeps responses in the order of their requests. It reads no further meanwhile than what small
requests came along in the same few kilobytes, so a peer that sends faster than it is served fills its own
buffers, not ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from minikafka.wire.frame_parts import Part


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and what this listener is called."""

    listener: str
    host: str
    """Empty: all addresses."""
    port: int
    """0: a free one."""


class Exchange(Protocol):
    """One request in flight on one connection. May be used from any thread.

    A connection that has broken in the meantime takes what it is given and does nothing.
    """

    @property
    def client_host(self) -> str:
        """The peer's address, without the port."""

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in by."""

    @property
    def memory(self) -> dict[str, Any]:
        """What the handler keeps of this connection, by names of its own; it goes with the connection.

        It belongs to the request in flight: after the answer it is not to be touched.
        """

    def park(self) -> None:
        """It waits for what others must bring, and is no longer work to be done: do not hold back other
        requests for it. Any number of times, also when it was answered already.
        """

    def keep_counted(self, kept: bool = True) -> None:
        """The request's memory stays in use until the answer: count its bytes until then, parked or not.

        To be called by the handler, before it returns. Not ``kept``: no more, when it is parked next.
        """

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        """Send ``parts`` as one frame (the length is added) and, ``pause_ms`` after it was taken, take the
        next request. Exactly once.

        Memory and files must stay as they are until they are sent. ``[]`` sends nothing: the request wanted
        no response. Raises LocalWireError for more than 2 GiB, RuntimeError when this exchange was answered
        before.
        """

    def close(self, reason: str) -> None:
        """Close the connection in place of an answer; ``reason`` is logged."""


class RequestHandler(Protocol):
    """What a server does with requests."""

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Deal with one frame (without its length): answer ``exchange`` now or later, from any thread.

        Runs on the thread that serves the connection and must not block, as others wait behind it.
        ``frame`` is writable memory that belongs to this request. A RemoteWireError closes the connection
        with its message as the reason; any other exception closes it too and is logged as a defect.
        """


class Server(Protocol):
    """Listening ports with their connections."""

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that are listened on, by the listener's name."""

    @property
    def port(self) -> int:
        """The port of the first listener."""

    def stop(self, drain_ms: int = 5000) -> None:
        """Take no more requests, let those in flight be answered for up to ``drain_ms``, close everything."""


class PendingResponse(Protocol):
    """The answer to one request of a client, which may be still under way."""

    def done(self) -> bool:
        """Whether ``result`` would return or raise at once. Takes in what has arrived, and does not wait."""

    def result(self, timeout_ms: int | None = None) -> memoryview:
        """The frame of the response (without its length), as writable memory that belongs to the caller.

        Responses are matched to requests by order; the caller compares the correlation ids. Waits until
        ``timeout_ms`` after the request was made (the connection's request time-out by default). Raises
        NetworkError with the peer and the reason when the connection broke, or the time was up; then the
        connection is closed, as an answer that nobody waits for any more would be in the way of the next.
        """


class Connection(Protocol):
    """A client's connection to one broker. Any number of threads may use it at the same time."""

    @property
    def peer(self) -> str:
        """``host:port``, for messages."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more. That the peer has closed an idle connection is noticed."""

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        """Send ``parts`` as one frame (the length is added). Does not wait for earlier responses.

        A response of more than ``max_response_bytes`` breaks the connection as soon as it is announced.
        Raises NetworkError when the connection is broken, or the peer takes nothing for the request time-out.
        """

    def send(self, parts: Sequence[Part]) -> None:
        """Send a frame that has no response (Produce with acks 0). NetworkError as with ``request``."""

    def close(self) -> None:
        """Close; whoever waits for a response gets a NetworkError. A second call does nothing."""


class Connector(Protocol):
    """How clients come by connections: over real sockets, or over the network in memory."""

    def connect(self, host: str, port: int) -> Connection:
        """A new connection. Raises NetworkError with the address and the reason."""

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """Wait until one of these is ``done``, or ``timeout_ms`` have passed: False. Closes nothing.

        They may belong to several connections, all of them made by this connector.
        """
