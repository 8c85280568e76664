"""Back-pressure: at a limit connections are left unread, and nothing that waits for others counts."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from minikafka.net.connection import SocketConnector
from minikafka.net.interfaces import Exchange
from minikafka.net.request_limiter import FREE_BYTES, LARGE_BYTES, RequestLimiter
from minikafka.net.server import SocketServer
from tests.support.network import HOST, PATIENCE_SECONDS, Keeping, eventually, run_processors
from tests.support.plain_sockets import framed, is_closed, plain, read_frame
from tests.support.seeds import seeds

Serve = Callable[..., SocketServer]


def send(server: SocketServer, sock: socket.socket, data: bytes) -> None:
    """Send bytes, and let the processors find them."""
    sock.sendall(data)
    run_processors(server)


def test_request_limit_stops_reading_until_an_answer(handler: Keeping, serve: Serve) -> None:
    server = serve(handler, queued_requests=2)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(plain(server)) for _ in range(5)]
        eventually(
            lambda: sum(len(processor._channels) for processor in server._processors) == 5, "all are accepted"
        )
        for number, sock in enumerate(socks):
            send(server, sock, framed(b"%d" % number))
        assert [bytes(frame) for frame in handler.frames] == [b"0", b"1"]
        for number in range(5):
            handler.exchanges[number].respond([b"answer %d" % number])
            # The connection that was held first is read first.
            assert read_frame(socks[number]) == b"answer %d" % number
            eventually(lambda: len(handler.frames) == min(number + 3, 5), "the next one is read")  # noqa: B023
        assert [bytes(frame) for frame in handler.frames] == [b"%d" % number for number in range(5)]


def test_held_connection_is_not_read_despite_read_ahead(handler: Keeping, serve: Serve) -> None:
    server = serve(handler)
    with plain(server) as sock:
        sock.sendall(framed(b"1", b"2", b"3"))
        eventually(lambda: handler.exchanges, "the first is read")
        (processor,) = server._processors
        (peer,) = processor._channels

        def held_as_it_becomes_ready() -> None:
            handler.exchanges[0].respond([b"one"])
            assert list(processor._ready) == [peer]
            processor._hold(peer)

        processor.execute(held_as_it_becomes_ready)
        run_processors(server)
        assert len(handler.exchanges) == 1
        processor._on_room()
        run_processors(server)
        assert [bytes(frame) for frame in handler.frames] == [b"1", b"2"]


def test_a_limit_counts_for_all_processors_together(handler: Keeping, serve: Serve) -> None:
    server = serve(handler, processors=3, queued_requests=1)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(plain(server)) for _ in range(6)]
        socks[0].sendall(framed(b"first"))
        eventually(lambda: handler.exchanges, "the first is read")
        run_processors(server)
        for sock in socks[1:]:
            sock.sendall(framed(b"later"))
        run_processors(server)
        assert len(handler.exchanges) == 1
        for done in range(6):
            handler.exchanges[done].respond([b"answer"])
            eventually(lambda: len(handler.exchanges) >= min(done + 2, 6), "the next is read")  # noqa: B023
        for sock in socks:
            assert read_frame(sock) == b"answer"


def test_parked_requests_do_not_count_against_the_limit(serve: Serve) -> None:
    class LongPolls(Keeping):
        """All wait for the request ``go``."""

        def on_request(self, exchange, frame) -> None:  # type: ignore[no-untyped-def]
            if bytes(frame) == b"go":
                for waiting in self.exchanges:
                    waiting.respond([b"went"])
                exchange.respond([b"done"])
                return
            super().on_request(exchange, frame)
            exchange.park()

    handler = LongPolls()
    server = serve(handler, queued_requests=1, queued_bytes=FREE_BYTES + 1)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(plain(server)) for _ in range(4)]
        for sock in waiting:
            sock.sendall(framed(bytes(FREE_BYTES + 1)))
        eventually(lambda: len(handler.exchanges) == 4, "all wait")
        releasing = stack.enter_context(plain(server))
        releasing.sendall(framed(b"go"))
        assert read_frame(releasing) == b"done"
        assert [read_frame(sock) for sock in waiting] == [b"went"] * 4


def test_parked_request_may_keep_its_bytes_counted(serve: Serve) -> None:
    class Working(Keeping):
        """All are handled outside the processor."""

        def on_request(self, exchange, frame) -> None:  # type: ignore[no-untyped-def]
            exchange.keep_counted()
            super().on_request(exchange, frame)
            exchange.park()

    handler = Working()
    size = FREE_BYTES + 1
    server = serve(handler, queued_requests=1, queued_bytes=size)
    with plain(server) as one, plain(server) as two, plain(server) as small:
        one.sendall(framed(bytes(size)))
        eventually(lambda: handler.exchanges, "the first is in work")
        send(server, two, framed(bytes(size)))
        small.sendall(framed(b"small"))
        eventually(lambda: len(handler.exchanges) == 2, "the small one is read")
        run_processors(server)
        assert bytes(handler.frames[1]) == b"small"
        handler.exchanges[0].respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 3, "the other large one is read")


@pytest.mark.parametrize("end", [lambda exchange: exchange.park(), lambda exchange: exchange.close("a test")])
def test_a_request_that_is_parked_later_or_cut_off_no_longer_counts(
    handler: Keeping, serve: Serve, end: Callable[[Exchange], None]
) -> None:
    server = serve(handler, queued_requests=1)
    with plain(server) as one, plain(server) as two:
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is read")
        run_processors(server)
        send(server, two, framed(b"two"))
        assert len(handler.exchanges) == 1
        end(handler.exchanges[0])
        eventually(lambda: len(handler.exchanges) == 2, "the other is read")


def test_byte_limit_holds_large_requests_but_not_small_ones(handler: Keeping, serve: Serve) -> None:
    size = 3 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size)
    with plain(server) as one, plain(server) as two, plain(server) as small:
        send(server, one, framed(b"1" * size)[:-1])
        send(server, two, struct.pack(">i", size))
        two.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        two.settimeout(None)
        small.sendall(framed(b"small"))
        eventually(lambda: handler.exchanges, "the small one is read")
        run_processors(server)
        (held,) = server._processors[0]._held
        assert held.reader.space().nbytes == FREE_BYTES  # nothing of it was received, and no more taken
        one.sendall(b"1")
        eventually(lambda: len(handler.exchanges) == 2, "the first is complete")
        handler.exchanges[1].respond([b"answer"])
        two.sendall(b"2" * size)
        eventually(lambda: len(handler.exchanges) == 3, "the second is read")
        assert bytes(handler.frames[2]) == b"2" * size


def test_request_with_reserved_room_never_waits_for_others(handler: Keeping, serve: Serve) -> None:
    size = 2 * FREE_BYTES
    server = serve(handler, queued_requests=1, queued_bytes=size, max_request_bytes=size)
    with plain(server) as started, plain(server) as small, plain(server) as waiting:
        send(server, started, framed(b"1" * size)[:100])
        small.sendall(framed(b"small"))
        eventually(lambda: handler.exchanges, "the small one is in flight: that is all there may be")
        run_processors(server)
        send(server, waiting, framed(b"2" * 10))
        started.sendall(framed(b"1" * size)[100:])
        eventually(lambda: len(handler.exchanges) == 2, "the one that had begun is complete")
        for exchange in list(handler.exchanges):
            exchange.respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 3, "the last one is read")


def test_small_request_does_not_wait_behind_a_held_large_one(handler: Keeping, serve: Serve) -> None:
    size = 2 * FREE_BYTES
    server = serve(handler, queued_requests=1, queued_bytes=size, max_request_bytes=size)
    with plain(server) as started, plain(server) as one, plain(server) as large, plain(server) as small:
        send(server, started, framed(bytes(size))[:100])
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is in flight: that is all there may be")
        run_processors(server)
        send(server, large, framed(bytes(size))[:100])
        send(server, small, framed(b"small"))
        handler.exchanges[0].respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 2, "the small one is read")
        assert bytes(handler.frames[1]) == b"small"


def test_silent_peer_that_holds_scarce_room_is_closed(handler: Keeping, serve: Serve) -> None:
    size = 2 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size, write_timeout_ms=50)
    with plain(server) as silent, plain(server) as honest:
        send(server, silent, struct.pack(">i", size))
        honest.sendall(framed(bytes(size)))
        assert is_closed(silent)
        eventually(lambda: handler.exchanges, "the other is read")


def test_a_stop_does_not_wait_for_connections_that_are_held(handler: Keeping, serve: Serve) -> None:
    server = serve(handler, queued_requests=1)
    with plain(server) as one, plain(server) as two:
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is read")
        run_processors(server)
        send(server, two, framed(b"two"))
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert is_closed(two)
        run_processors(server)
        handler.exchanges[0].respond([b"answer"])
        assert read_frame(one) == b"answer"
        assert is_closed(one)
        one.close()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()
    assert len(handler.exchanges) == 1


@pytest.mark.parametrize("seed", seeds(3))
def test_tight_limits_keep_every_response_in_order(serve: Serve, seed: int) -> None:
    """Answers come from another thread, in any order, and some requests are parked meanwhile."""
    chance = random.Random(seed)
    work: queue.Queue[tuple[Exchange, bytes] | None] = queue.Queue()

    class Elsewhere:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            if frame[0] % 3 == 0:
                exchange.park()
            work.put((exchange, bytes(frame)))

    def answer() -> None:
        waiting = []
        while (item := work.get()) is not None:
            waiting.append(item)
            while waiting and (work.empty() or len(waiting) > 5):
                exchange, frame = waiting.pop(chance.randrange(len(waiting)))
                exchange.respond([frame[:8]])

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    limits = {"processors": 2, "queued_requests": 2, "queued_bytes": FREE_BYTES, "max_request_bytes": 1 << 20}
    connector = SocketConnector(request_timeout_ms=PATIENCE_SECONDS * 1000)
    server = serve(Elsewhere(), **limits)

    def ask(number: int) -> None:
        own = random.Random(f"{seed}:{number}")
        connection = connector.connect(HOST, server.port)
        heads = [bytes([own.randrange(256)]) + b"%07d" % request for request in range(20)]
        pending = [connection.request([head, bytes(own.choice([0, 10, 3 * FREE_BYTES]))]) for head in heads]
        assert [bytes(response.result()) for response in pending] == heads
        connection.close()

    with ThreadPoolExecutor(12) as pool:
        for future in [pool.submit(ask, number) for number in range(12)]:
            future.result()
    work.put(None)
    answering.join()


def test_a_waiter_is_called_once_for_each_time_that_it_was_refused() -> None:
    limiter, calls = RequestLimiter(1, 10), []

    def waiter() -> None:
        calls.append(1)

    assert limiter.has_room(waiter)
    limiter.begin()
    assert not limiter.has_room(waiter)
    assert not limiter.has_room(waiter)
    limiter.end(requests=1)
    assert (calls, limiter.is_scarce) == ([1], False)
    assert limiter.reserve("one", 100, waiter) == 100  # the last one may exceed the limit
    assert not limiter.reserve("two", 1, waiter)
    limiter.end(holder="one")
    assert calls == [1, 1]


def ignore() -> None:
    """A waiter that does nothing."""


def test_bytes_are_counted_as_they_arrive() -> None:
    limiter = RequestLimiter(1, 3 * FREE_BYTES)
    assert limiter.reserve("one", 100 * FREE_BYTES, ignore) == 4 * FREE_BYTES
    assert limiter.reserve("one", 100 * FREE_BYTES, ignore) == 16 * FREE_BYTES
    assert limiter.reserve("one", 100 * FREE_BYTES, ignore) == 64 * FREE_BYTES
    assert limiter.reserve("one", 100 * FREE_BYTES, ignore) == 100 * FREE_BYTES


def test_only_the_oldest_incomplete_request_exceeds_the_limit() -> None:
    size = 100 * FREE_BYTES
    limiter = RequestLimiter(1, 12 * FREE_BYTES)
    for holder in ("one", "two"):
        assert limiter.reserve(holder, size, ignore)
    assert not limiter.reserve("three", size, ignore)
    assert not limiter.reserve("two", size, ignore)
    assert limiter.reserve("one", size, ignore)
    limiter.complete("one")  # it is in work now, and takes its bytes
    assert limiter.reserve("two", size, ignore)
    assert not limiter.reserve("three", size, ignore)
    limiter.end(holder="one")
    limiter.end(holder="two")
    assert limiter.reserve("three", size, ignore)


def test_large_and_small_requests_do_not_wait_for_each_other() -> None:
    limiter = RequestLimiter(1, 12 * FREE_BYTES)
    for number in range(2):
        assert limiter.reserve(f"large {number}", LARGE_BYTES + 1, ignore)
    assert not limiter.reserve("large", LARGE_BYTES + 1, ignore)
    assert limiter.reserve("small", LARGE_BYTES, ignore)


def test_closed_connection_releases_received_bytes_at_once(serve: Serve) -> None:
    server = serve(Keeping(), max_request_bytes=64 << 20)
    with plain(server) as sock:
        sock.sendall(framed(bytes(8 << 20))[:-1])
        (processor,) = server._processors
        eventually(lambda: processor._channels, "it is accepted")
        (peer,) = processor._channels
        eventually(lambda: peer.reader.received_bytes == (8 << 20) - 1, "nearly all is there")
        reader = weakref.ref(peer.reader)
    eventually(lambda: reader() is None, "its memory is free, though its alarm is still to come")


def test_slow_peer_that_holds_scarce_room_is_closed(handler: Keeping, serve: Serve) -> None:
    size = 2 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size, write_timeout_ms=50)
    with plain(server) as slow, plain(server) as honest:
        send(server, slow, struct.pack(">i", size))
        honest.sendall(framed(bytes(size)))
        eventually(lambda: handler.exchanges or slow.send(b"x") < 0, "the other is read")
        assert is_closed(slow)
