"""Runs a console: serves until a signal, and reports through our logging."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import host_port
from minikafka.console.app import make_app
from minikafka.console.connections import BrowserConnection
from minikafka.console.settings import ConsoleSettings

GRACE_S = 2
"""The time for pages under way when the console ends."""
HEADERS_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 200


class ConsoleServer(uvicorn.Server):
    """A server that says when it serves, and ends with status 0 at SIGINT and SIGTERM."""

    def __init__(self, settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._app = make_app(settings)
        config = uvicorn.Config(
            self._app,
            host=settings.host.strip("[]"),
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=BrowserConnection,
            ws="none",
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Begin to listen, and report the address."""
        await super().startup(None)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._on_ready(f"http://{host_port(self._settings.host.strip('[]'), port)}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the first SIGINT or SIGTERM; the base class would raise the signal again at the end."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.should_exit = True
            self._app.state.console.slots.closing.set()  # searches and live tails end now

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
    """Serve a console until a signal. Raises MinikafkaError if it cannot listen at its address."""
    settings.check()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = ConsoleServer(settings, on_ready)
    log, errors = logging.getLogger("uvicorn.error"), _ListenErrors()
    log.addFilter(errors)
    try:
        server.run()
    except SystemExit:
        address = host_port(settings.host.strip("[]"), settings.port)
        reason = errors.reason or "see the message above"
        raise MinikafkaError(f"cannot listen at {address}: {reason}; choose another --port") from None
    finally:
        log.removeFilter(errors)


class _ListenErrors(logging.Filter):
    """Keeps the reason for which uvicorn cannot listen, in place of its line."""

    reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.msg, OSError):
            return True
        number = record.msg.errno or 0  # asyncio puts a sentence of its own into the error
        self.reason = os.strerror(number) if number > 0 else str(record.msg)
        return False
