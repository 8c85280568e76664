"""The socket server: one acceptor per listener, N processors for all listeners, and a request handler.

``Exchange`` and ``RequestHandler`` are the interface between the network and the broker (``net.interfaces``).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import ConfigError
from minikafka.net.acceptor import Accepted, Acceptor, listen
from minikafka.net.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    LogLimit,
    descriptors_for_connections,
)
from minikafka.net.interfaces import Endpoint, Exchange, RequestHandler, RequestObserver, Server
from minikafka.net.network_send import peer_name
from minikafka.net.processor import Processor
from minikafka.net.request_limiter import RequestLimiter
from minikafka.net.response_memory import ResponseMemory
from minikafka.net.server_options import (
    AUTHENTICATION_TIMEOUT_MS,
    UNAUTHENTICATED_CONNECTIONS,
    UNSENT_BYTES,
    ServerOptions,
)
from minikafka.security.sasl.server_states import MAX_REQUEST_BYTES

__all__ = [
    "ConnectionLimits",
    "Endpoint",
    "Exchange",
    "RequestHandler",
    "Server",
    "ServerOptions",
    "SocketServer",
]

_STUCK_MS = 5000
"""The time after the drain for which a stop waits for a blocking handler."""


class SocketServer:
    """A server that listens on all ``endpoints`` from ``start`` to ``stop``.

    ``processors``: threads (``num.network.threads``, here for all listeners together). ``backlog``: the
    operating system's queue of connections that are not accepted yet. ``queued_requests``, ``queued_bytes``:
    see ``net.request_limiter``; ``unsent_bytes``: ``net.response_memory``; ``limits``:
    ``net.connection_quotas``; ``observer``: of requests. For the others see ``ServerOptions``. The
    defaults are Kafka's, except that the socket buffers are left to the system.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        handler: RequestHandler,
        *,
        processors: int = 3,
        backlog: int = 128,
        max_request_bytes: int = 104857600,
        idle_ms: int = 600_000,
        write_timeout_ms: int = 30_000,
        linger_ms: int = 200,
        authentication_timeout_ms: int = AUTHENTICATION_TIMEOUT_MS,
        unauthenticated_connections: int = UNAUTHENTICATED_CONNECTIONS,
        unauthenticated_request_bytes: int = MAX_REQUEST_BYTES,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        queued_requests: int = 500,
        queued_bytes: int | None = None,
        unsent_bytes: int = UNSENT_BYTES,
        limits: ConnectionLimits | None = None,
        clock: Clock | None = None,
        observer: RequestObserver | None = None,
    ) -> None:
        if processors < 1:
            raise ConfigError("num.network.threads", processors, "must be at least 1")
        self._endpoints = endpoints
        self._handler = handler
        self._count = processors
        self._listen_backlog = backlog
        self._options = ServerOptions(
            max_request_bytes=max_request_bytes,
            idle_ms=idle_ms,
            write_timeout_ms=write_timeout_ms,
            linger_ms=linger_ms,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
            authentication_timeout_ms=authentication_timeout_ms,
            unauthenticated_connections=-(-unauthenticated_connections // processors),
            unauthenticated_request_bytes=unauthenticated_request_bytes,
        )
        self._clock = clock or SystemClock()
        self._observer = observer
        self._limiter = RequestLimiter(queued_requests, queued_bytes)
        self._response_memory = ResponseMemory(unsent_bytes)
        self._log_limit = LogLimit(self._clock)
        self._connection_quotas = ConnectionQuotas(
            limits or ConnectionLimits(), processors, self._clock, descriptors_for_connections()
        )
        self._ports: dict[str, int] = {}
        self._acceptors: list[Acceptor] = []
        self._processors: list[Processor] = []

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that are listened on, by the listener's name, once ``start`` has returned."""
        return self._ports

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self._ports.values()))

    def start(self) -> None:
        """Bind all listeners and serve. Raises NetworkError, with no listener bound, if an address is not
        available.
        """
        with contextlib.ExitStack() as undo:
            sockets: list[tuple[Endpoint, socket.socket]] = []
            for endpoint in self._endpoints:
                sock = listen(endpoint.host, endpoint.port, self._listen_backlog, self._options)
                undo.callback(sock.close)
                sockets.append((endpoint, sock))
            undo.pop_all()
        self._ports = {endpoint.listener: int(sock.getsockname()[1]) for endpoint, sock in sockets}
        self._processors = [self._processor(number) for number in range(self._count)]
        self._acceptors = [
            Acceptor(
                sock, self._assign_connections(endpoint), f"net-acceptor-{self._ports[endpoint.listener]}"
            )
            for endpoint, sock in sockets
        ]
        for processor in self._processors:
            processor.start()
        for acceptor in self._acceptors:
            acceptor.start()

    def stop(self, drain_ms: int = 5000) -> None:
        """Stop accepting and reading, wait up to ``drain_ms`` for responses in flight, and close everything.

        The handler must still be able to respond meanwhile. A second call does nothing.
        """
        acceptors, self._acceptors = self._acceptors, []
        for acceptor in acceptors:
            acceptor.stop()
        if acceptors:
            for processor in self._processors:
                processor.drain(drain_ms)
            for processor in self._processors:
                processor.join(drain_ms + _STUCK_MS)

    def _processor(self, number: int) -> Processor:
        return Processor(
            f"net-processor-{self.port}-{number}",
            self._handler,
            self._options,
            limiter=self._limiter,
            response_memory=self._response_memory,
            log_limit=self._log_limit,
            on_close=lambda ip, listener: self._connection_quotas.release(number, ip, listener),
            clock=self._clock,
            observer=self._observer,
        )

    def connections(self) -> dict[str, tuple[int, int]]:
        """See ``interfaces.Server``."""
        return dict.fromkeys(self._ports, (0, 0)) | self._connection_quotas.counts()

    def ended_threads(self) -> list[str]:
        """See ``interfaces.Server``."""
        return [f"net-processor-{number}" for number in self._numbers if self._processors[number].has_ended]

    def idle_seconds(self) -> dict[str, float]:
        """See ``interfaces.Server``."""
        return {str(number): _waited_ns(self._processors[number]) / 1e9 for number in self._numbers}

    @property
    def _numbers(self) -> range:
        return range(len(self._processors))

    def set_limits(self, limits: ConnectionLimits) -> None:
        """See ``interfaces.Server``."""
        self._connection_quotas.set_limits(limits)

    def set_ip_rates(self, limits: Mapping[str, int]) -> None:
        """See ``interfaces.Server``."""
        self._connection_quotas.set_ip_rates(limits)

    def _assign_connections(self, endpoint: Endpoint) -> Callable[[socket.socket, object], Accepted]:
        quotas = self._connection_quotas

        def assign(sock: socket.socket, address: object) -> Accepted:
            ip = peer_name(address)[0]
            throttle_ms = quotas.throttle_ms(ip)
            if not throttle_ms:
                number = quotas.admit(ip, sock.fileno(), endpoint.listener)
                if number is None:
                    sock.close()
                else:
                    self._processors[number].add(sock, address, endpoint)
            return Accepted(quotas.pause_ms(endpoint.listener), throttle_ms)

        return assign


def _waited_ns(processor: Processor) -> int:
    """Return the time that a thread has waited for events, with the present wait."""
    while True:
        mark_ns, now_ns = processor.waited_mark_ns, perf_counter_ns()
        if mark_ns == processor.waited_mark_ns:  # else a wait began or ended meanwhile
            return mark_ns + now_ns if mark_ns < 0 else mark_ns
