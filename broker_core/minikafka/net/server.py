"""A server of frames over real sockets: one acceptor, N processors, a handler.

``Exchange`` and ``RequestHandler`` are the port between the network and the broker (``net.port``).
"""

from __future__ import annotations

from minikafka.base.clock import Clock
from minikafka.base.errors import ConfigError
from minikafka.net.acceptor import Acceptor, listen
from minikafka.net.port import Exchange, RequestHandler, Server
from minikafka.net.processor import Processor, ServerOptions

__all__ = ["Exchange", "RequestHandler", "Server", "ServerOptions", "SocketServer"]


_STUCK_MS = 5000
"""How much longer than the drain a stop waits for a handler that blocks."""


class SocketServer:
    """Listens from ``start`` to ``stop``.

    ``host`` empty: all addresses. ``port`` 0: a free one. ``processors``: threads
    (``num.network.threads``). The others are explained at ``ServerOptions``; the defaults are Kafka's, but
    that buffers are left to the system.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handler: RequestHandler,
        *,
        processors: int = 3,
        backlog: int = 128,
        max_request_bytes: int = 104857600,
        idle_ms: int = 600_000,
        write_timeout_ms: int = 30_000,
        linger_ms: int = 200,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if processors < 1:
            raise ConfigError("num.network.threads", processors, "at least 1")
        self._host = host
        self._port = port
        self._handler = handler
        self._count = processors
        self._backlog = backlog
        self._options = ServerOptions(
            max_request_bytes=max_request_bytes,
            idle_ms=idle_ms,
            write_timeout_ms=write_timeout_ms,
            linger_ms=linger_ms,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
        )
        self._clock = clock
        self._acceptor: Acceptor | None = None
        self._processors: list[Processor] = []

    @property
    def port(self) -> int:
        """The port that is listened on, once ``start`` has returned."""
        return self._port

    def start(self) -> int:
        """Listen and serve; the port. NetworkError when the address cannot be had."""
        sock = listen(self._host, self._port, self._backlog, self._options)
        self._port = int(sock.getsockname()[1])
        self._processors = [
            Processor(f"net-processor-{self._port}-{number}", self._handler, self._options, self._clock)
            for number in range(self._count)
        ]
        self._acceptor = Acceptor(sock, self._processors, f"net-acceptor-{self._port}")
        for processor in self._processors:
            processor.start()
        self._acceptor.start()
        return self._port

    def stop(self, drain_ms: int = 5000) -> None:
        """Accept and read no more, wait up to ``drain_ms`` for the answers in flight, close everything.

        The handler must still be able to answer meanwhile. A second call does nothing.
        """
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is None:
            return
        acceptor.stop()
        for processor in self._processors:
            processor.drain(drain_ms)
        for processor in self._processors:
            processor.join(drain_ms + _STUCK_MS)
