"""The network in memory: deterministic, with one thread, a manual clock, and no sockets.

``listen`` takes the same handler as a ``SocketServer``, ``connect`` returns the same interface as a
``SocketConnection``, and both follow the same rules: one request of a connection in flight, responses in
order, a limit on frames, and an exception of the handler ends only its connection.

Nothing moves by itself. ``deliver`` moves one frame, of each connection in turn. Where real code would wait,
in ``PendingResponse.result`` and ``MemoryServer.stop``, everything is delivered; then the clock advances by
``step_ms`` and the callbacks of ``on_step`` run (the broker's own timers), until the response arrives or the
time is up. Steps in which no callback has work are passed over.

Faults of an address apply to the next ``count`` frames (or connects): see ``Fault``. They are what TCP can
do: a stream has no gaps, so a dropped frame takes all later ones of its direction with it.

Connections have no TLS, and a client has no deadline to authenticate.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from minikafka.base.clock import NEVER_MS, ManualClock
from minikafka.base.errors import NetworkError, NoResponse, PeerClosed, RemoteWireError, StorageError
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.net.interfaces import Endpoint, PendingResponse, RequestHandler, RequestMeter
from minikafka.net.request_times import RequestTimes
from minikafka.security.principals import ANONYMOUS, KafkaPrincipal
from minikafka.security.sasl.server_states import MAX_REQUEST_BYTES
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import LENGTH_BYTES, FrameReader, encode_frame

logger = logging.getLogger("minikafka.net")

_FIRST_FREE_PORT = 40_000


class Fault(Enum):
    """A fault of the traffic with one address."""

    REFUSE = "the connection is refused"
    DROP_REQUEST = "this request and all later ones of its connection vanish; the connection stays up"
    DROP_RESPONSE = "the request is served; its response and all later ones of its connection vanish"
    CUT_REQUEST = "the connection breaks before the request arrives"
    CUT_RESPONSE = "the request is served; the connection breaks before the response arrives"


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class MemoryNetwork:
    """All servers and connections of one simulation. Not thread-safe. It is a ``Connector`` too."""

    def __init__(
        self, clock: ManualClock | None = None, *, step_ms: int = 10, request_timeout_ms: int = 30_000
    ) -> None:
        self.clock = clock or ManualClock()
        self.request_timeout_ms = request_timeout_ms
        self._step_ms = step_ms
        self._steps: list[tuple[Callable[[], None], Callable[[], int]]] = []
        self._servers: dict[_Address, MemoryServer] = {}
        self._connections: deque[MemoryConnection] = deque()
        self._faults: dict[tuple[_Address, Fault], int] = {}
        self._next_port = _FIRST_FREE_PORT
        self._client_numbers = itertools.count(1)

    def listen(
        self, host: str, port: int, handler: RequestHandler, *, max_request_bytes: int = 104857600
    ) -> MemoryServer:
        """Return a server with one listener; see ``listen_all``."""
        endpoints = [Endpoint("PLAINTEXT", host, port)]
        return self.listen_all(endpoints, handler, max_request_bytes=max_request_bytes)

    def listen_all(
        self, endpoints: Sequence[Endpoint], handler: RequestHandler, *, max_request_bytes: int = 104857600
    ) -> MemoryServer:
        """Return a listening server; port 0: the next free number. Raises NetworkError for a used address."""
        listeners: dict[_Address, Endpoint] = {}
        for endpoint in endpoints:
            port = endpoint.port
            if port == 0:
                port, self._next_port = self._next_port, self._next_port + 1
            address = _Address(endpoint.host, port)
            if address in self._servers or address in listeners:
                raise NetworkError(f"cannot listen on {address}: Address already in use")
            listeners[address] = endpoint
        server = MemoryServer(self, listeners, handler, max_request_bytes)
        self._servers |= dict.fromkeys(listeners, server)
        return server

    def connect(self, host: str, port: int) -> MemoryConnection:
        """Return a new connection. Raises NetworkError when no server listens there."""
        address = _Address(host, port)
        server = self._servers.get(address)
        if self.strikes(address, Fault.REFUSE) or server is None:
            raise NetworkError("cannot connect: Connection refused", str(address))
        connection = MemoryConnection(self, server, address, f"client-{next(self._client_numbers)}")
        self._connections.append(connection)
        return connection

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """See ``interfaces.Connector``."""
        return self.wait(
            lambda: any(response.done() for response in pending), self.clock.monotonic_ms() + timeout_ms
        )

    def on_step(self, callback: Callable[[], None], due_ms: Callable[[], int] = lambda: 0) -> None:
        """Run ``callback`` after each advance of the clock during a wait.

        ``due_ms`` returns the time (monotonic) before which it has nothing to do if nothing is delivered.
        """
        self._steps.append((callback, due_ms))

    def inject(self, host: str, port: int, fault: Fault, count: int = 1) -> None:
        """Let ``fault`` happen to the next ``count`` frames (or connects, for REFUSE) of this address."""
        key = (_Address(host, port), fault)
        self._faults[key] = self._faults.get(key, 0) + count

    def heal(self, host: str, port: int) -> None:
        """Remove the pending faults of this address."""
        address = _Address(host, port)
        self._faults = {key: left for key, left in self._faults.items() if key[0] != address}

    def cut(self, host: str, port: int) -> None:
        """Break all connections with this address now."""
        address = _Address(host, port)
        for connection in list(self._connections):
            if connection.address == address:
                connection.reset()

    def deliver(self) -> bool:
        """Move one frame, connections in turn. Return False when there is nothing to move."""
        for number, connection in enumerate(self._connections, 1):
            if connection.ready():
                self._connections.rotate(-number)
                connection.deliver()
                return True
        return False

    def run(self) -> None:
        """Deliver until nothing moves."""
        while self.deliver():
            pass

    def wait(self, settled: Callable[[], bool], deadline_ms: int) -> bool:
        """Deliver and advance the clock until ``settled()`` or the deadline. Return whether it settled."""
        while not settled():
            if self.deliver():
                continue
            left_ms = deadline_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                return False
            self.clock.advance(min(self._idle_ms(), left_ms))
            for step, _ in self._steps:
                step()
        return True

    def _idle_ms(self) -> int:
        """Return how far the clock may advance: to the first step in which there is work."""
        due = [due_ms() for _, due_ms in self._steps] or [0]
        due += [connection.due_ms() for connection in self._connections]
        steps = -(-(min(due) - self.clock.monotonic_ms()) // self._step_ms)
        return max(1, steps) * self._step_ms

    def strikes(self, address: _Address, fault: Fault) -> bool:
        """Return whether ``fault`` happens now, and consume it."""
        left = self._faults.get((address, fault), 0)
        if left:
            self._faults[address, fault] = left - 1
        return left > 0

    def forget(self, connection: MemoryConnection) -> None:
        """Remove a connection that has ended."""
        if connection in self._connections:
            self._connections.remove(connection)

    def close_ports(self, server: MemoryServer) -> list[MemoryConnection]:
        """Remove ``server`` from its addresses, and return its connections."""
        self._servers = {address: other for address, other in self._servers.items() if other is not server}
        return [connection for connection in self._connections if connection.server is server]


class MemoryServer:
    """See ``interfaces.Server``."""

    def __init__(
        self,
        network: MemoryNetwork,
        listeners: Mapping[_Address, Endpoint],
        handler: RequestHandler,
        max_request_bytes: int,
    ) -> None:
        self.listeners = listeners
        self.handler = handler
        self.max_request_bytes = max_request_bytes
        self.ip_rates: Mapping[str, int] = {}
        self.limits: ConnectionLimits | None = None
        """The limits that were set last, like ``ip_rates``: this network has none."""
        self._network = network

    @property
    def ports(self) -> Mapping[str, int]:
        return {endpoint.listener: address.port for address, endpoint in self.listeners.items()}

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()))

    def connections(self) -> Mapping[str, tuple[int, int]]:
        """Return nothing: this network does not count."""
        return {}

    def ended_threads(self) -> Sequence[str]:
        """Return nothing: this network has no threads."""
        return ()

    def idle_seconds(self) -> Mapping[str, float]:
        """Return nothing: this network has no threads."""
        return {}

    def set_limits(self, limits: ConnectionLimits) -> None:
        self.limits = limits

    def set_ip_rates(self, limits: Mapping[str, int]) -> None:
        self.ip_rates = dict(limits)

    def vanish(self) -> None:
        """Simulate the loss of the machine: close its ports and break its connections."""
        for connection in self._network.close_ports(self):
            connection.reset()

    def stop(self, drain_ms: int = 5000) -> None:
        network = self._network
        connections = network.close_ports(self)
        for connection in connections:
            connection.draining = True
        network.wait(
            lambda: not any(connection.busy for connection in connections),
            network.clock.monotonic_ms() + drain_ms,
        )
        for connection in connections:
            if connection.busy:
                connection.end_by_server("its request was not answered before the stop")
            else:
                connection.close_by_server()


class _MemoryExchange:
    """See ``interfaces.Exchange``."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._answered = False
        self.meter: RequestMeter | None = None
        self.times = RequestTimes()

    @property
    def client_host(self) -> str:
        return self._connection.client_host

    @property
    def listener(self) -> str:
        return self._connection.endpoint.listener

    @property
    def memory(self) -> dict[str, Any]:
        return self._connection.memory

    @property
    def principal(self) -> KafkaPrincipal:
        return self._connection.principal

    @principal.setter
    def principal(self, principal: KafkaPrincipal) -> None:
        self._connection.principal = principal

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    @property
    def is_abandoned(self) -> bool:
        return self._connection.closed

    def authenticated(self) -> None:
        self._connection.max_request_bytes = self._connection.server.max_request_bytes

    def park(self) -> None:
        """Do nothing: this network holds back no requests."""

    def keep_counted(self, kept: bool = True) -> None:
        """Do nothing: this network counts no bytes."""

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        if self._answered:
            raise RuntimeError(f"a request of {self._connection.client_host} was answered twice")
        frame = encode_frame(parts) if parts else []
        self._answered = True
        self._connection.answer(frame, pause_ms)

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        frame = encode_frame(response) if response else []
        self._answered = True
        self._connection.end_later(reason, frame, delay_ms)


class _MemoryPending:
    """See ``interfaces.PendingResponse``."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self.made_ms = connection.network.clock.monotonic_ms()
        self.frame: memoryview | None = None
        self.error: NetworkError | None = None

    def settled(self) -> bool:
        """Return whether the response or an error is present."""
        return self.frame is not None or self.error is not None

    def done(self) -> bool:
        self._connection.network.run()
        return self.settled()

    def result(self, timeout_ms: int | None = None) -> memoryview:
        network = self._connection.network
        timeout_ms = network.request_timeout_ms if timeout_ms is None else timeout_ms
        if not network.wait(self.settled, self.made_ms + timeout_ms):
            self._connection.break_off(NoResponse(timeout_ms, self._connection.peer))
        if self.frame is None:
            assert self.error is not None
            raise type(self.error)(*self.error.args)
        return self.frame


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a connection that its server closes."""

    reason: str
    frame: bytes
    """The last response; empty for none, or once it was sent."""
    due_ms: int


class MemoryConnection:
    """Both ends of a connection. See ``interfaces.Connection`` for the client's."""

    def __init__(
        self, network: MemoryNetwork, server: MemoryServer, address: _Address, client_host: str
    ) -> None:
        self.network = network
        self.server = server
        self.address = address
        self.peer = str(address)
        self.client_host = client_host
        self.draining = False
        self.memory: dict[str, Any] = {}
        self.principal = ANONYMOUS
        self.endpoint = server.listeners[address]
        self.max_request_bytes = server.max_request_bytes
        if self.endpoint.demands_authentication:
            self.max_request_bytes = min(self.max_request_bytes, MAX_REQUEST_BYTES)
        self._pending: deque[_MemoryPending] = deque()
        # Frames with their length, each on its way to the other side.
        self._requests: deque[bytes] = deque()
        self._responses: deque[bytes] = deque()
        self._in_flight = False
        self._paused_until_ms = 0
        self._end: _End | None = None
        self._lost_requests = False
        self._lost_responses = False
        self._error: NetworkError | None = None
        self.session_end_ms: int | None = None

    @property
    def closed(self) -> bool:
        end_ms = self.session_end_ms
        if end_ms is not None and not self._pending and end_ms <= self.network.clock.monotonic_ms():
            return True
        return self._error is not None

    @property
    def busy(self) -> bool:
        """True when a request is in flight or a response is not delivered."""
        return self._in_flight or bool(self._responses)

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> _MemoryPending:
        self._check()
        self._requests.append(join(encode_frame(parts)))
        pending = _MemoryPending(self)
        self._pending.append(pending)
        return pending

    def send(self, parts: Sequence[Part]) -> None:
        self._check()
        self._requests.append(join(encode_frame(parts)))

    def close(self, drain_ms: int = 0) -> None:
        if drain_ms > 0:
            self.network.wait(lambda: not self._pending, self.network.clock.monotonic_ms() + drain_ms)
        # What was sent before the close still arrives, as on a socket; its answers go nowhere.
        self._fail(NetworkError("the connection was closed by this client", self.peer))
        if not self._requests:
            self.network.forget(self)

    def abort(self) -> None:
        self._requests.clear()
        self.close()

    def ready(self) -> bool:
        """Return True if a frame may move in either direction, or the end has come."""
        if self._end is not None and not self._responses:
            return self.network.clock.monotonic_ms() >= self._end.due_ms
        if self._responses or not self._requests:
            return bool(self._responses)
        muted = self._in_flight or self.draining
        return not muted and self.network.clock.monotonic_ms() >= self._paused_until_ms

    def deliver(self) -> None:
        """Move a frame: a response, if there is one. The connection must be ``ready``."""
        if self._responses:
            self._deliver_response(self._responses.popleft())
        elif self._end is not None:
            self._begin_end(self._end)
        else:
            self._deliver_request(self._requests.popleft())

    def due_ms(self) -> int:
        """Return the time (monotonic) at which a frame may move that may not move now."""
        if self._end is not None:
            return self._end.due_ms
        return self._paused_until_ms if self._requests and not self.busy else NEVER_MS

    def answer(self, frame: Sequence[Part], pause_ms: int) -> None:
        """Send the server's response to the request in flight, or nothing for a request without one."""
        if not self._in_flight:
            return
        self._in_flight = False
        self._paused_until_ms = self.network.clock.monotonic_ms() + pause_ms
        try:
            if frame and not self.closed:
                self._responses.append(join(frame))
        except StorageError as error:
            self.end_by_server(str(error))
        if self.closed and not self._requests:
            self.network.forget(self)

    def end_later(self, reason: str, frame: Sequence[Part], delay_ms: int) -> None:
        """Close the connection from the server's side after a last response, ``delay_ms`` from now."""
        if self._in_flight and (frame or delay_ms):
            self._end = _End(reason, join(frame), self.network.clock.monotonic_ms() + delay_ms)
        else:
            self.end_by_server(reason)

    def _begin_end(self, end: _End) -> None:
        if end.frame and not self.closed:
            self._responses.append(end.frame)
            self._end = replace(end, frame=b"")
        else:
            self.end_by_server(end.reason)

    def end_by_server(self, reason: str) -> None:
        """Close the connection from the server's side, and log the reason."""
        logger.warning("connection from %s closed: %s", self.client_host, reason)
        self.close_by_server()

    def close_by_server(self) -> None:
        """Close the connection from the server's side."""
        self.break_off(PeerClosed("the peer closed the connection", self.peer))

    def reset(self) -> None:
        """Break the connection as a fault of the network does."""
        self.break_off(NetworkError("Connection reset by peer", self.peer))

    def break_off(self, error: NetworkError) -> None:
        """Break the connection in both directions."""
        self._requests.clear()
        self._responses.clear()
        self._in_flight = False
        self._end = None
        self._fail(error)
        self.network.forget(self)

    def _deliver_request(self, data: bytes) -> None:
        strikes = self.network.strikes
        if self._lost_requests or strikes(self.address, Fault.DROP_REQUEST):
            self._lost_requests = True
            return
        if strikes(self.address, Fault.CUT_REQUEST):
            self.reset()
            return
        self._in_flight = True
        try:
            (frame,) = FrameReader(self.max_request_bytes).feed(data)
            self.server.handler.on_request(_MemoryExchange(self), frame)
        except RemoteWireError as error:
            self.end_by_server(str(error))
        except Exception:
            logger.exception("unexpected error in a request of %s", self.client_host)
            self.end_by_server("unexpected error in its request")

    def _deliver_response(self, data: bytes) -> None:
        strikes = self.network.strikes
        if self._lost_responses or strikes(self.address, Fault.DROP_RESPONSE):
            self._lost_responses = True
        elif strikes(self.address, Fault.CUT_RESPONSE):
            self.reset()
        elif self._pending:
            self._pending.popleft().frame = memoryview(bytearray(data))[LENGTH_BYTES:]
        elif not self.closed:
            self.break_off(NetworkError("unexpected response without a request", self.peer))

    def _fail(self, error: NetworkError) -> None:
        if self._error is None:
            self._error = error
            while self._pending:
                self._pending.popleft().error = self._error

    def _check(self) -> None:
        if self._error is not None:
            raise type(self._error)(*self._error.args)
