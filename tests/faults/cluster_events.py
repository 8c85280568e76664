"""The simulated time and network of ``cluster_simulation``.

Everything that happens is an event of ``Events`` at a millisecond; events of one millisecond are in random
order. A wait (of a worker for ZooKeeper, of a stopping broker for the controller) runs other events meanwhile
(``Events.wait``), so that everything interleaves as on real machines.

A connection keeps the order of its frames, as TCP does, and delays each at random; there is no order between
connections. A blocked direction holds its frames: they arrive when it is free again, unless an end has closed
the connection.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from minikafka.base.errors import NetworkError, RemoteWireError, StorageError
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.net.interfaces import Endpoint, PendingResponse, RequestHandler, RequestMeter
from minikafka.net.request_times import RequestTimes
from minikafka.security.principals import ANONYMOUS, KafkaPrincipal
from minikafka.wire.frame_parts import Part, join

_log = logging.getLogger("minikafka.net")

Action = Callable[[], None]

MOST_EVENTS = 25_000
"""The limit of events in a usual run, which has some thousands: more are an endless loop."""


class Died(BaseException):
    """Ends the current call of a dead process. Not an Exception, so that no handler takes it for an error."""


class Events:
    """The clock and the queue of future events."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now_ms = 0
        self.count = 0
        self.most = MOST_EVENTS
        """The limit of ``count``."""
        self.depth = 0
        """The number of nested ``wait`` calls."""
        self.trace: list[object] = []
        """All events, for the comparison of runs."""
        self.messages: deque[str] = deque(maxlen=4000)
        """The last events as text."""
        self.happened: Counter[str] = Counter()
        self._heap: list[tuple[int, float, int, Action]] = []
        self._serial = itertools.count()

    def at(self, delay_ms: int, action: Action) -> None:
        """Schedule ``action`` in ``delay_ms``."""
        item = (self.now_ms + max(0, delay_ms), self.dice.random(), next(self._serial), action)
        heapq.heappush(self._heap, item)

    def note(self, source: str, message: str) -> None:
        """Record an event of ``source``, a host or client, for people."""
        self.trace.append((self.now_ms, source, message))
        self.messages.append(f"{self.now_ms / 1000:8.3f}  {source:<12} {message}")

    def run(self, until: Callable[[], bool], deadline_ms: int) -> bool:
        """Run events until ``until()`` or the time ``deadline_ms``. Return False at the deadline."""
        heap = self._heap
        while not until():
            if not heap or heap[0][0] > deadline_ms:
                self.now_ms = max(self.now_ms, deadline_ms)
                return False
            time_ms, _, _, action = heapq.heappop(heap)
            # A nested wait may have advanced the time.
            self.now_ms = max(self.now_ms, time_ms)
            self.count += 1
            assert self.count < self.most, f"endless loop after {self.count} events"
            action()
        return True

    def wait(self, until: Callable[[], bool], wait_ms: int) -> bool:
        """Run events during a wait in the middle of another event."""
        self.depth += 1
        try:
            return self.run(until, self.now_ms + wait_ms)
        finally:
            self.depth -= 1


class Host(Protocol):
    """One end of connections: a machine with its process, or a client."""

    @property
    def host(self) -> str: ...

    @property
    def life(self) -> int:
        """The number of the current process; actions for an earlier one are dropped."""

    def execute(self, life: int, action: Action) -> None:
        """Run an action of the process ``life``: now, after a pause, or never."""


class Network:
    """All servers and connections of the cluster."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.delays_ms: Sequence[int] = (0, 1, 1, 2)
        """The choices for the delay of a frame."""
        self.servers: dict[str, Server] = {}
        self.connections: dict[Connection, None] = {}
        self._blocked: Counter[tuple[str, str]] = Counter()
        self._stalled: list[Way] = []

    def blocked(self, source: str, target: str) -> bool:
        """Return True if frames from ``source`` to ``target`` are held."""
        return self._blocked[source, target] > 0

    def block(self, source: str, target: str) -> None:
        """Hold all frames until ``unblock`` is called as often."""
        self._blocked[source, target] += 1

    def unblock(self, source: str, target: str) -> None:
        """Deliver the held frames, unless another block remains."""
        self._blocked[source, target] -= 1
        stalled, self._stalled = self._stalled, []
        for way in stalled:
            way.deliver_next()

    def stall(self, way: Way) -> None:
        self._stalled.append(way)

    def connect(self, source: Host, host: str) -> Connection:
        """Return a new connection. Raises NetworkError if no server listens, or the way is blocked."""
        server = self.servers.get(host)
        if server is None:
            raise NetworkError("cannot connect: Connection refused", host)
        if self.blocked(source.host, host) or self.blocked(host, source.host):
            raise NetworkError("cannot connect: no answer", host)
        connection = Connection(self, source, server)
        self.connections[connection] = None
        return connection


class Server:
    """The server of a machine's process of one life. See ``net.interfaces.Server``."""

    def __init__(self, network: Network, machine: Host, listener: str, handler: RequestHandler) -> None:
        self.network = network
        self.machine = machine
        self.life = machine.life
        self.listener = listener
        self.handler = handler
        self.port = 9092
        network.servers[machine.host] = self

    @property
    def ports(self) -> Mapping[str, int]:
        return {self.listener: self.port}

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Ignored: the simulation has no such limits."""

    def set_ip_rates(self, limits: Mapping[str, int]) -> None:
        """Ignored: the simulation has no such limits."""

    def own(self) -> list[Connection]:
        return [connection for connection in self.network.connections if connection.server is self]

    def stop(self, drain_ms: int = 5000) -> None:
        if self.network.servers.get(self.machine.host) is self:
            del self.network.servers[self.machine.host]
        for connection in self.own():
            connection.draining = True
        self.network.events.wait(lambda: not any(each.in_flight for each in self.own()), drain_ms)
        for connection in self.own():
            connection.end_by_server("the peer closed the connection")


class Way:
    """One direction of a connection. The frame None is its end."""

    def __init__(self, network: Network, source: str, target: str, arrive: Callable[[Any], None]) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.frames: deque[bytes | None] = deque()
        self.lost = False
        """True if frames are dropped silently."""
        self._arrive = arrive
        self._due_ms = 0

    def send(self, frame: bytes | None) -> None:
        self.frames.append(frame)
        self.deliver_next()

    def deliver_next(self) -> None:
        """Schedule the arrival of one frame, after those that are scheduled."""
        network = self.network
        now_ms = network.events.now_ms
        self._due_ms = max(self._due_ms, now_ms + network.events.dice.choice(network.delays_ms))
        network.events.at(self._due_ms - now_ms, self._move)

    def _move(self) -> None:
        if self.network.blocked(self.source, self.target):
            self.network.stall(self)
        elif self.frames and not self.lost:
            self._arrive(self.frames.popleft())


class Pending:
    """See ``net.interfaces.PendingResponse``."""

    def __init__(self, connection: Connection, came: Action | None) -> None:
        self.connection = connection
        self.made_ms = connection.network.events.now_ms
        self.frame: bytes | None = None
        self.error: NetworkError | None = None
        self.came = came

    def done(self) -> bool:
        return self.frame is not None or self.error is not None

    def result(self, timeout_ms: int | None = None) -> memoryview:
        events = self.connection.network.events
        timeout_ms = 30_000 if timeout_ms is None else timeout_ms
        life = self.connection.source.life
        if not self.done():
            events.wait(self.done, self.made_ms + timeout_ms - events.now_ms)
            if self.connection.source.life != life:
                raise Died
        if not self.done():
            self.connection.fail(f"no response within {timeout_ms} ms")
        if self.error is not None:
            raise NetworkError(*self.error.args)
        assert self.frame is not None
        return memoryview(bytearray(self.frame))


class Connection:
    """Both ends of a connection. See ``net.interfaces.Connection`` for the client's."""

    def __init__(self, network: Network, source: Host, server: Server) -> None:
        self.network = network
        self.source = source
        self.source_life = source.life
        self.server = server
        self.peer = f"{server.machine.host}:{server.port}"
        self.in_flight = False
        self.draining = False
        self.memory: dict[str, Any] = {}
        self.principal = ANONYMOUS
        self.session_end_ms: int | None = None
        self._error: NetworkError | None = None
        self._ended = False
        """True when the server's end is closed."""
        self._pending: deque[Pending] = deque()
        self._inbox: deque[bytes] = deque()
        self._paused_until_ms = 0
        target = server.machine
        self._requests = Way(
            network, source.host, target.host, lambda frame: target.execute(target.life, self._serve(frame))
        )
        self._responses = Way(
            network,
            target.host,
            source.host,
            lambda frame: source.execute(self.source_life, lambda: self._take(frame)),
        )

    # The client's end.

    @property
    def closed(self) -> bool:
        return self._error is not None or self.source.life != self.source_life

    def request(self, parts: Sequence[Part], came: Action | None = None) -> Pending:
        self._check()
        pending = Pending(self, came)
        self._pending.append(pending)
        self._requests.send(join(parts))
        return pending

    def send(self, parts: Sequence[Part]) -> None:
        self._check()
        self._requests.send(join(parts))

    def close(self, drain_ms: int = 0) -> None:
        if not self.closed:
            self.fail("the connection was closed by this client")

    def abort(self) -> None:
        self.close()

    def fail(self, reason: str) -> None:
        """Close this end, and send the end to the server."""
        self._lose(reason)
        self._requests.send(None)

    def _lose(self, reason: str) -> None:
        self.network.connections.pop(self, None)
        if self._error is None:
            self._error = NetworkError(reason, self.peer)
        while self._pending:
            pending = self._pending.popleft()
            pending.error = self._error
            if pending.came is not None:
                pending.came()

    def _take(self, frame: bytes | None) -> None:
        if self._error is not None:
            return
        if frame is None:
            self._lose("Connection reset by peer")
        elif self._pending:
            pending = self._pending.popleft()
            pending.frame = frame
            if pending.came is not None:
                pending.came()

    def _check(self) -> None:
        if self._error is not None:
            raise NetworkError(*self._error.args)
        if self.closed:
            raise Died

    # The server's end.

    def _serve(self, frame: bytes | None) -> Action:
        def action() -> None:
            if self.server.machine.life != self.server.life:
                if frame is not None:
                    self._responses.send(None)  # the new process does not know the connection
            elif frame is None:
                self._ended = True
                self._inbox.clear()
            elif not self._ended:
                self._inbox.append(frame)
                self._pump()

        return action

    def _pump(self) -> None:
        events = self.network.events
        if not self._inbox or self.in_flight or self.draining or self._ended:
            return
        if events.now_ms < self._paused_until_ms:
            machine, life = self.server.machine, self.server.life
            events.at(self._paused_until_ms - events.now_ms, lambda: machine.execute(life, self._pump))
            return
        self.in_flight = True
        try:
            self.server.handler.on_request(_Exchange(self), memoryview(bytearray(self._inbox.popleft())))
        except RemoteWireError as error:
            self.end_by_server(str(error))
        except Exception:  # noqa: BLE001 - as a processor does
            _log.exception("unexpected error in a request of %s", self.source.host)
            self.end_by_server("its request failed")

    def answer(self, parts: Sequence[Part], pause_ms: int) -> None:
        if not self.in_flight:
            return
        self.in_flight = False
        self._paused_until_ms = self.network.events.now_ms + pause_ms
        try:
            if parts and not self._ended:
                self._responses.send(join(parts))
        except StorageError as error:
            self.end_by_server(str(error))
        if self._inbox:
            machine, life = self.server.machine, self.server.life
            self.network.events.at(pause_ms, lambda: machine.execute(life, self._pump))

    def end_by_server(self, reason: str) -> None:
        """Close the server's end, and send the end to the client."""
        self.in_flight = False
        if not self._ended:
            self._ended = True
            self._inbox.clear()
            self._responses.send(None)

    def hang(self) -> None:
        """Drop all frames silently."""
        self._responses.lost = self._requests.lost = True

    def break_off(self) -> None:
        """Break the connection visibly for both ends."""
        self._responses.send(None)
        self._requests.send(None)


class _Exchange:
    """See ``net.interfaces.Exchange``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answered = False
        self.meter: RequestMeter | None = None
        self.times = RequestTimes()

    @property
    def client_host(self) -> str:
        return self._connection.source.host

    @property
    def listener(self) -> str:
        return self._connection.server.listener

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
        return False

    def authenticated(self) -> None:
        """Ignored: the simulation has no such limits."""

    def park(self) -> None:
        """Ignored: the simulation has no such limit."""

    def keep_counted(self, kept: bool = True) -> None:
        """Ignored: the simulation does not count memory."""

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        if self._answered:
            raise RuntimeError(f"a request of {self.client_host} was answered twice")
        self._answered = True
        self._connection.answer(parts, pause_ms)

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        """Close at once: no client of the simulation fails to authenticate."""
        self._answered = True
        if response:
            self._connection.answer(response, 0)
        self._connection.end_by_server(reason)


class Connector:
    """The network as seen from one host. See ``net.interfaces.Connector``."""

    def __init__(self, network: Network, source: Host) -> None:
        self._network = network
        self._source = source

    def connect(self, host: str, port: int) -> Connection:
        return self._network.connect(self._source, host)

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        life = self._source.life
        found = self._network.events.wait(lambda: any(response.done() for response in pending), timeout_ms)
        if self._source.life != life:
            raise Died
        return found


def listen(network: Network, machine: Host, endpoints: Sequence[Endpoint], handler: RequestHandler) -> Server:
    """Return a server for the first of ``endpoints``."""
    return Server(network, machine, endpoints[0].listener, handler)
