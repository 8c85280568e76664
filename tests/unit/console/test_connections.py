"""Connections of browsers that do not send, do not read, or are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from minikafka.console.connections import OF_AN_ADDRESS_MAX, REQUEST_S, STALLED_S, BrowserConnection

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Timer:
    def __init__(self, delay_s: float, call: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Timers that a test ends, and tasks that it runs."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.tasks: list[Any] = []
        self.now_s = 0.0

    def time(self) -> float:
        self.now_s += 1
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Timer:
        self.timers.append(Timer(delay_s, lambda: call(*arguments)))
        return self.timers[-1]

    def create_task(self, task: Any, **_: object) -> Future[None]:
        self.tasks.append(task)
        return Future()

    def pending(self) -> list[float]:
        return [timer.delay_s for timer in self.timers if not timer.is_cancelled]

    def end_of(self, delay_s: float) -> None:
        """Let the time of the newest timer be up."""
        timer = next(timer for timer in reversed(self.timers) if timer.delay_s == delay_s)
        assert not timer.is_cancelled
        timer.is_cancelled = True
        timer.call()


class Transport:
    def __init__(self, host: str) -> None:
        self.host = host
        self.is_aborted = False
        self.buffered = 0

    def get_extra_info(self, name: str) -> object:
        return {"peername": (self.host, 1), "sockname": ("127.0.0.1", 2)}.get(name)

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes) -> None:
        self.buffered += len(data)

    def close(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Browsers:
    """Connections at one server, whose application returns an empty page."""

    def __init__(self, most: int | None = None) -> None:
        self.loop = Loop()
        self.config = uvicorn.Config(
            self.app,
            log_config=None,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            limit_concurrency=most,
        )
        self.config.load()
        self.state = ServerState()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def connect(self, host: str = "192.0.2.1") -> tuple[BrowserConnection, Transport]:
        connection = BrowserConnection(self.config, self.state, {}, self.loop)  # type: ignore[arg-type]
        transport = Transport(host)
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", REQUEST[:-2], b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\na"]
)
def test_a_request_that_is_not_sent_in_time_ends_its_connection(sent: bytes) -> None:
    browsers = Browsers()
    connection, transport = browsers.connect()
    if sent:
        connection.data_received(sent)
    for task in browsers.loop.tasks:
        task.close()
    browsers.loop.end_of(REQUEST_S)
    assert transport.is_aborted


def test_a_response_may_take_longer_than_a_request() -> None:
    browsers = Browsers()
    connection, _ = browsers.connect()
    connection.data_received(REQUEST)
    assert browsers.loop.pending() == []
    (task,) = browsers.loop.tasks
    asyncio.run(task)
    assert REQUEST_S in browsers.loop.pending()  # for the next request
    connection.connection_lost(None)
    assert browsers.loop.pending() == []


def test_a_reader_that_takes_nothing_is_left() -> None:
    browsers = Browsers()
    connection, transport = browsers.connect()
    connection.data_received(REQUEST)
    transport.buffered = 1_000
    connection.pause_writing()
    transport.buffered = 999
    browsers.loop.end_of(STALLED_S)
    assert not transport.is_aborted  # it is slow
    browsers.loop.end_of(STALLED_S)
    assert transport.is_aborted
    connection.connection_lost(None)
    for task in browsers.loop.tasks:
        task.close()


def test_a_reader_that_goes_on_is_not_watched() -> None:
    browsers = Browsers()
    connection, _ = browsers.connect()
    connection.pause_writing()
    connection.resume_writing()
    assert STALLED_S not in browsers.loop.pending()


def test_one_address_cannot_have_all_connections() -> None:
    browsers = Browsers()
    for _ in range(OF_AN_ADDRESS_MAX):
        assert not browsers.connect()[1].is_aborted
        assert not browsers.connect("127.0.0.1")[1].is_aborted
    assert browsers.connect()[1].is_aborted
    assert not browsers.connect("192.0.2.2")[1].is_aborted
    assert not browsers.connect("127.0.0.1")[1].is_aborted


def test_a_new_connection_replaces_the_one_idle_for_longest() -> None:
    browsers = Browsers(most=5)
    sent = [REQUEST, b"GET / HT", b"", b""]
    held = [browsers.connect("127.0.0.1") for _ in sent]
    for (connection, _), data in zip(held, sent, strict=True):
        if data:
            connection.data_received(data)
    for expected in ([2], [2, 3]):
        connection, transport = browsers.connect("127.0.0.1")
        connection.data_received(REQUEST)
        assert [number for number, (_, other) in enumerate(held) if other.is_aborted] == expected
        assert not transport.is_aborted
    _, transport = browsers.connect("127.0.0.1")
    assert held[1][1].is_aborted  # with a part of a request only
    assert not held[0][1].is_aborted
    assert not transport.is_aborted
    for task in browsers.loop.tasks:
        task.close()
