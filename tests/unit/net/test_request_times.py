"""The times of requests, as an observer of a real server gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.net.interfaces import Exchange
from minikafka.net.request_times import RequestTimes
from minikafka.net.server import SocketServer
from tests.support.network import PATIENCE_SECONDS, Answering, Keeping, eventually
from tests.support.plain_sockets import framed, plain, read_frame

Serve = Callable[..., SocketServer]


class Recorder:
    """An observer that keeps what it gets."""

    def __init__(self, *, counts_errors: bool = True) -> None:
        self.counts_errors = counts_errors
        self.seen: list[tuple[RequestTimes, int]] = []
        self.threads: set[str] = set()

    def completed(self, exchange: Exchange, sent_ns: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.seen.append((exchange.times, sent_ns))

    def one(self) -> tuple[RequestTimes, int]:
        eventually(lambda: self.seen, "a request is observed")
        (seen,) = self.seen
        return seen


def exchanged(server: SocketServer, request: bytes = b"hello") -> bytes:
    with plain(server) as sock:
        sock.sendall(framed(request))
        return read_frame(sock)


def test_stages_add_up_to_the_whole_time(serve: Serve) -> None:
    recorder = Recorder()
    exchanged(serve(Answering(), observer=recorder))
    times, sent_ns = recorder.one()
    stages = times.queue_ns + times.local_ns + times.remote_ns + times.response_queue_ns
    assert stages + sent_ns - times.response_dequeue_ns == sent_ns - times.start_ns
    assert times.queue_ns == times.remote_ns == 0 < times.local_ns


@pytest.mark.parametrize(
    ("observer", "counts"),
    [(Recorder(), True), (Recorder(counts_errors=False), False), (None, False)],
    ids=["counted", "not counted", "not observed"],
)
def test_errors_are_looked_up_only_for_who_counts_them(
    serve: Serve, observer: Recorder | None, counts: bool
) -> None:
    handler = Keeping()
    with plain(serve(handler, observer=observer)) as sock:
        sock.sendall(framed(b"hello"))
        eventually(lambda: handler.exchanges, "the request is there")
        assert handler.exchanges[0].times.counts_errors is counts


def test_sizes_have_the_frame_and_the_whole_response(serve: Serve) -> None:
    recorder = Recorder()
    exchanged(serve(Answering(lambda frame: [b"x" * 1000]), observer=recorder), b"12345")
    times, _ = recorder.one()
    assert (times.request_bytes, times.response_bytes) == (5, 4 + 1000)


def test_wait_for_the_response_is_remote_time(serve: Serve) -> None:
    recorder, keeping = Recorder(), Keeping()
    server = serve(keeping, observer=recorder)
    with plain(server) as sock:
        sock.sendall(framed(b"hello"))
        eventually(lambda: keeping.exchanges, "the request is there")
        (exchange,) = keeping.exchanges
        eventually(lambda: exchange.times.api_local_complete_ns, "the handler has returned")
        exchange.respond([b"late"])
        read_frame(sock)
    times, _ = recorder.one()
    assert times.remote_ns > 0
    assert times.remote_ns == times.response_complete_ns - times.api_local_complete_ns


def test_request_of_the_pool_is_local_until_the_pool_has_done_its_part(serve: Serve) -> None:
    recorder = Recorder()

    class Pooled(Keeping):
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.keep_counted()
            super().on_request(exchange, frame)

    pooled = Pooled()
    with plain(serve(pooled, observer=recorder)) as sock:
        sock.sendall(framed(b"hello"))
        eventually(lambda: pooled.exchanges, "the request is there")
        (exchange,) = pooled.exchanges
        exchange.times.dequeued()
        exchange.times.local_complete()
        exchange.respond([b"done"])
        read_frame(sock)
    times, _ = recorder.one()
    assert times.queue_ns > 0
    assert times.local_ns + times.remote_ns == times.response_complete_ns - times.start_ns - times.queue_ns


def test_pause_of_the_connection_is_throttle_time(serve: Serve) -> None:
    recorder = Recorder()

    class Pausing(Answering):
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond([b"wait"], 30)

    exchanged(serve(Pausing(), observer=recorder))
    assert recorder.one()[0].throttle_ms == 30


def test_request_without_a_response_is_observed(serve: Serve) -> None:
    recorder = Recorder()
    with plain(serve(Answering(lambda frame: []), observer=recorder)) as sock:
        sock.sendall(framed(b"acks=0"))
        assert recorder.one()[0].response_bytes == 0


def test_observer_runs_on_the_processors_thread(serve: Serve) -> None:
    recorder, keeping = Recorder(), Keeping()
    with plain(serve(keeping, observer=recorder)) as sock:
        sock.sendall(framed(b"hello"))
        eventually(lambda: keeping.exchanges, "the request is there")
        answering = threading.Thread(target=keeping.exchanges[0].respond, args=([b"ok"],))
        answering.start()
        answering.join(PATIENCE_SECONDS)
        read_frame(sock)
    recorder.one()
    assert all(name.startswith("net-processor-") for name in recorder.threads)


def test_error_of_the_observer_leaves_the_connection_open(serve: Serve, caplog: Any) -> None:
    class Failing:
        counts_errors = True

        def completed(self, exchange: Exchange, sent_ns: int) -> None:
            raise ValueError("a defect")

    with plain(serve(Answering(), observer=Failing())) as sock:
        for request in (b"one", b"two"):
            sock.sendall(framed(request))
            assert read_frame(sock) == request
    assert "unexpected error while observing a request" in caplog.text


def test_closed_request_with_an_answer_has_sensible_times(serve: Serve) -> None:
    recorder = Recorder()

    class Refusing(Answering):
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.close("refused", [b"no"])

    with plain(serve(Refusing(), observer=recorder)) as sock:
        sock.sendall(framed(b"hello"))
        assert read_frame(sock) == b"no"
    times, sent_ns = recorder.one()
    assert 0 <= times.local_ns <= sent_ns - times.start_ns
    assert 0 <= times.response_queue_ns <= sent_ns - times.start_ns
