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
from tests.seeds import seeds
from tests.unit.net.support import HOST, PATIENCE_SECONDS, Keeping, eventually, go_round
from tests.unit.net.test_server import framed, gone, plain, read_frame

Serve = Callable[..., SocketServer]


def test_above_the_number_of_requests_nothing_more_is_read_until_one_is_answered(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, queued_requests=2)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(plain(server)) for _ in range(5)]
        eventually(lambda: sum(len(one._channels) for one in server._processors) == 5, "all are accepted")
        for number, sock in enumerate(socks):
            sock.sendall(framed(b"%d" % number))
            go_round(server)
        assert [bytes(frame) for frame in handler.frames] == [b"0", b"1"]
        for number in range(5):
            handler.exchanges[number].respond([b"answer %d" % number])
            # Who was held first is read first.
            assert read_frame(socks[number]) == b"answer %d" % number
            eventually(lambda: len(handler.frames) == min(number + 3, 5), "the next one is read")  # noqa: B023
        assert [bytes(frame) for frame in handler.frames] == [b"%d" % number for number in range(5)]


def test_who_is_held_is_not_read_though_its_next_request_has_come_along(serve: Serve) -> None:
    handler = Keeping()
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
        go_round(server)
        assert len(handler.exchanges) == 1
        processor._on_room()
        go_round(server)
        assert [bytes(frame) for frame in handler.frames] == [b"1", b"2"]


def test_a_limit_counts_for_all_processors_together(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, processors=3, queued_requests=1)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(plain(server)) for _ in range(6)]
        socks[0].sendall(framed(b"first"))
        eventually(lambda: handler.exchanges, "the first is read")
        go_round(server)
        for sock in socks[1:]:
            sock.sendall(framed(b"later"))
        go_round(server)
        assert len(handler.exchanges) == 1
        for done in range(6):
            handler.exchanges[done].respond([b"answer"])
            eventually(lambda: len(handler.exchanges) >= min(done + 2, 6), "the next is read")  # noqa: B023
        for sock in socks:
            assert read_frame(sock) == b"answer"


def test_what_waits_for_others_never_keeps_them_out(serve: Serve) -> None:
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


def test_a_parked_request_whose_memory_is_in_use_keeps_its_bytes_counted(serve: Serve) -> None:
    class InWork(Keeping):
        """All are worked on beside the processor."""

        def on_request(self, exchange, frame) -> None:  # type: ignore[no-untyped-def]
            exchange.keep_counted()
            super().on_request(exchange, frame)
            exchange.park()

    handler = InWork()
    size = FREE_BYTES + 1
    server = serve(handler, queued_requests=1, queued_bytes=size)
    with plain(server) as one, plain(server) as two, plain(server) as small:
        one.sendall(framed(bytes(size)))
        eventually(lambda: handler.exchanges, "the first is in work")
        two.sendall(framed(bytes(size)))
        go_round(server)
        small.sendall(framed(b"small"))
        eventually(lambda: len(handler.exchanges) == 2, "the small one is read")
        go_round(server)
        assert bytes(handler.frames[1]) == b"small"
        handler.exchanges[0].respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 3, "the other large one is read")


def test_a_request_that_is_parked_later_no_longer_counts(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, queued_requests=1)
    with plain(server) as one, plain(server) as two:
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is read")
        go_round(server)
        two.sendall(framed(b"two"))
        go_round(server)
        assert len(handler.exchanges) == 1
        handler.exchanges[0].park()
        eventually(lambda: len(handler.exchanges) == 2, "the other is read")


def test_a_connection_that_breaks_no_longer_counts(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, queued_requests=1)
    with plain(server) as one, plain(server) as two:
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is read")
        go_round(server)
        two.sendall(framed(b"two"))
        go_round(server)
        handler.exchanges[0].close("for a test")
        eventually(lambda: len(handler.exchanges) == 2, "the other is read")
        assert gone(one)


def test_large_requests_are_received_only_while_there_is_room_and_small_ones_always(serve: Serve) -> None:
    handler = Keeping()
    size = 3 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size)
    with plain(server) as one, plain(server) as two, plain(server) as small:
        one.sendall(framed(b"1" * size)[:-1])
        go_round(server)
        two.sendall(struct.pack(">i", size))
        go_round(server)
        two.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        two.settimeout(None)
        small.sendall(framed(b"small"))
        eventually(lambda: handler.exchanges, "the small one is read")
        go_round(server)
        (held,) = server._processors[0]._held
        assert held.reader.space().nbytes == FREE_BYTES  # nothing of it was received, and no more taken
        one.sendall(b"1")
        eventually(lambda: len(handler.exchanges) == 2, "the first is complete")
        handler.exchanges[1].respond([b"answer"])
        two.sendall(b"2" * size)
        eventually(lambda: len(handler.exchanges) == 3, "the second is read")
        assert bytes(handler.frames[2]) == b"2" * size


def test_who_has_room_never_waits_behind_those_who_wait_for_it(serve: Serve) -> None:
    handler = Keeping()
    size = 2 * FREE_BYTES
    server = serve(handler, queued_requests=1, queued_bytes=size, max_request_bytes=size)
    with plain(server) as begun, plain(server) as small, plain(server) as waiting:
        begun.sendall(framed(b"1" * size)[:100])
        go_round(server)
        small.sendall(framed(b"small"))
        eventually(lambda: handler.exchanges, "the small one is in flight: that is all there may be")
        go_round(server)
        waiting.sendall(framed(b"2" * 10))
        go_round(server)
        begun.sendall(framed(b"1" * size)[100:])
        eventually(lambda: len(handler.exchanges) == 2, "the one that had begun is complete")
        for exchange in list(handler.exchanges):
            exchange.respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 3, "the last one is read")


def test_small_requests_do_not_wait_behind_a_large_one_that_waits_for_room(serve: Serve) -> None:
    handler = Keeping()
    size = 2 * FREE_BYTES
    server = serve(handler, queued_requests=1, queued_bytes=size, max_request_bytes=size)
    with plain(server) as begun, plain(server) as one, plain(server) as large, plain(server) as small:
        begun.sendall(framed(bytes(size))[:100])
        go_round(server)
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is in flight: that is all there may be")
        go_round(server)
        large.sendall(framed(bytes(size))[:100])
        go_round(server)
        small.sendall(framed(b"small"))
        go_round(server)
        handler.exchanges[0].respond([b"answer"])
        eventually(lambda: len(handler.exchanges) == 2, "the small one is read")
        assert bytes(handler.frames[1]) == b"small"


def test_who_holds_room_that_others_wait_for_and_sends_nothing_is_cut_off(serve: Serve) -> None:
    handler = Keeping()
    size = 2 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size, write_timeout_ms=50)
    with plain(server) as liar, plain(server) as honest:
        liar.sendall(struct.pack(">i", size))
        go_round(server)
        honest.sendall(framed(bytes(size)))
        assert gone(liar)
        eventually(lambda: handler.exchanges, "the other is read")


def test_a_stop_does_not_wait_for_connections_that_are_held(serve: Serve) -> None:
    handler = Keeping()
    server = serve(handler, queued_requests=1)
    with plain(server) as one, plain(server) as two:
        one.sendall(framed(b"one"))
        eventually(lambda: handler.exchanges, "it is read")
        go_round(server)
        two.sendall(framed(b"two"))
        go_round(server)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert gone(two)
        go_round(server)
        handler.exchanges[0].respond([b"answer"])
        assert read_frame(one) == b"answer"
        assert gone(one)
        one.close()
        stopping.join(PATIENCE_SECONDS)
        assert not stopping.is_alive()
    assert len(handler.exchanges) == 1


@pytest.mark.parametrize("seed", seeds(3))
def test_under_the_tightest_limits_every_request_is_answered_in_order(serve: Serve, seed: int) -> None:
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
        while (one := work.get()) is not None:
            waiting.append(one)
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
        assert [bytes(one.result()) for one in pending] == heads
        connection.close()

    with ThreadPoolExecutor(12) as pool:
        for future in [pool.submit(ask, number) for number in range(12)]:
            future.result()
    work.put(None)
    answering.join()


def test_a_waiter_is_called_once_for_each_time_that_it_was_refused() -> None:
    backlog, calls = RequestLimiter(1, 10), []

    def waiter() -> None:
        calls.append(1)

    assert backlog.has_room(waiter)
    backlog.begin()
    assert not backlog.has_room(waiter)
    assert not backlog.has_room(waiter)
    backlog.end(requests=1)
    assert (calls, backlog.is_scarce) == ([1], False)
    assert backlog.reserve("one", 100, waiter) == 100  # the last one may exceed the limit
    assert not backlog.reserve("two", 1, waiter)
    backlog.end(holder="one")
    assert calls == [1, 1]


def nobody() -> None:
    """Waits for nothing."""


def test_bytes_are_counted_as_they_arrive() -> None:
    backlog = RequestLimiter(1, 3 * FREE_BYTES)
    assert backlog.reserve("one", 100 * FREE_BYTES, nobody) == 4 * FREE_BYTES
    assert backlog.reserve("one", 100 * FREE_BYTES, nobody) == 16 * FREE_BYTES
    assert backlog.reserve("one", 100 * FREE_BYTES, nobody) == 64 * FREE_BYTES
    assert backlog.reserve("one", 100 * FREE_BYTES, nobody) == 100 * FREE_BYTES


def test_of_those_who_receive_only_the_one_that_began_first_exceeds_the_limit() -> None:
    size = 100 * FREE_BYTES
    backlog = RequestLimiter(1, 12 * FREE_BYTES)
    for holder in ("one", "two"):
        assert backlog.reserve(holder, size, nobody)
    assert not backlog.reserve("three", size, nobody)
    assert not backlog.reserve("two", size, nobody)
    assert backlog.reserve("one", size, nobody)
    backlog.complete("one")  # it is in work now, and takes its bytes
    assert backlog.reserve("two", size, nobody)
    assert not backlog.reserve("three", size, nobody)
    backlog.end(holder="one")
    backlog.end(holder="two")
    assert backlog.reserve("three", size, nobody)


def test_large_and_small_requests_do_not_wait_for_each_other() -> None:
    backlog = RequestLimiter(1, 12 * FREE_BYTES)
    for number in range(2):
        assert backlog.reserve(f"large {number}", LARGE_BYTES + 1, nobody)
    assert not backlog.reserve("large", LARGE_BYTES + 1, nobody)
    assert backlog.reserve("small", LARGE_BYTES, nobody)


def test_what_a_closed_connection_had_received_is_let_go_at_once(serve: Serve) -> None:
    server = serve(Keeping(), max_request_bytes=64 << 20)
    with plain(server) as sock:
        sock.sendall(framed(bytes(8 << 20))[:-1])
        (processor,) = server._processors
        eventually(lambda: processor._channels, "it is accepted")
        (peer,) = processor._channels
        eventually(lambda: peer.reader.received_bytes == (8 << 20) - 1, "nearly all is there")
        reader = weakref.ref(peer.reader)
    eventually(lambda: reader() is None, "its memory is free, though its alarm is still to come")


def test_who_sends_a_little_while_others_wait_for_room_is_cut_off(serve: Serve) -> None:
    handler = Keeping()
    size = 2 * FREE_BYTES
    server = serve(handler, queued_bytes=size, max_request_bytes=size, write_timeout_ms=50)
    with plain(server) as slow, plain(server) as honest:
        slow.sendall(struct.pack(">i", size))
        go_round(server)
        honest.sendall(framed(bytes(size)))
        eventually(lambda: handler.exchanges or slow.send(b"x") < 0, "the other is read")
        assert gone(slow)
