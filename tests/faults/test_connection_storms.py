"""Connections that come in storms, stay for nothing, or send what no client sends.

The broker is a process of its own with default limits. See ``attack`` for who else is there, and
what must hold for them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

import pytest

from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import buffer_of
from tests.faults.attack import HOST, AttackedBroker, Others, frame_of, response_of, wait_until
from tests.support import requests

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

ATTACK_S = 4.0
IDLE_CPU_S = 0.5
"""The limit of processor time that an idle broker may use in a second."""
TLS_HELLO = bytes.fromhex("16030100ff010000fb0303") + bytes(200)


def cpu_s(broker: AttackedBroker) -> float:
    """The processor time that the broker has used so far."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(broker: AttackedBroker) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def check_at_rest(broker: AttackedBroker, before: int) -> None:
    """It has closed what came since ``before``, and does nothing any more."""
    wait_until(lambda: descriptors(broker) <= before)
    begun = cpu_s(broker)
    time.sleep(1)
    assert cpu_s(broker) - begun < IDLE_CPU_S


def storm(broker: AttackedBroker, use: Callable[[socket.socket], object]) -> int:
    """Connect, ``use`` and close, on four threads for a while; how often."""
    end, counts = time.monotonic() + ATTACK_S, [0] * 4

    def run(number: int) -> None:
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((HOST, broker.port), 10) as sock:
                use(sock)
            counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


@contextlib.contextmanager
def with_descriptors(count: int) -> Iterator[None]:
    """Raise the limits of open files for this process and its children."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def connections(broker: AttackedBroker, count: int) -> Iterator[list[socket.socket]]:
    """So many at a time; those that the system does not refuse."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((HOST, broker.port), 10)) for _ in range(count)]


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.send(b"\0\0")


def say(data: bytes) -> Callable[[socket.socket], object]:
    def use(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.recv(100)

    return use


@pytest.mark.parametrize(
    "use",
    [
        lambda sock: None,
        reset,
        say(b"GET / HTTP/1.1\r\n\r\n"),
        say(TLS_HELLO),
        say(frame_of(requests.metadata("steady"))),
    ],
    ids=["closed", "reset", "http", "tls", "answered"],
)
def test_connections_that_come_and_go_by_the_thousand_stop_nobody(
    broker: AttackedBroker, use: Callable[[socket.socket], object]
) -> None:
    before = descriptors(broker)
    with Others(broker):
        assert storm(broker, use) > 100
    check_at_rest(broker, before)


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8_000, reason="needs thousands of descriptors"
)
@with_descriptors(8_000)
def test_five_thousand_idle_connections_cost_next_to_nothing(tmp_path: Path) -> None:
    with AttackedBroker(tmp_path / "data") as broker:
        broker.create_topic("steady", 1, retention_ms="-1")
        before = descriptors(broker)
        with Others(broker), connections(broker, 5_000):
            wait_until(lambda: descriptors(broker) > before + 5_000)
        check_at_rest(broker, before)


@pytest.mark.parametrize("announced", [10_000, 100 << 20])
def test_frames_that_come_byte_by_byte_stop_nobody(broker: AttackedBroker, announced: int) -> None:
    before = descriptors(broker)
    with Others(broker), connections(broker, 300) as socks:
        for sock in socks:
            sock.sendall(struct.pack(">i", announced))
        end = time.monotonic() + ATTACK_S
        while time.monotonic() < end:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(b"\0")
    check_at_rest(broker, before)


FETCHING = 500


def fetch_again_and_again(socks: list[socket.socket], ended: threading.Event) -> int:
    """On each connection ask for what comes behind what was answered last; how many messages came."""
    offsets, frames = dict.fromkeys(socks, 0), dict.fromkeys(socks, b"")
    came = 0

    def ask(sock: socket.socket) -> None:
        sock.sendall(frame_of(requests.fetch("steady", offsets[sock], wait_ms=500, version=4)))

    with selectors.DefaultSelector() as ready:
        for sock in socks:
            ready.register(sock, selectors.EVENT_READ)
            ask(sock)
        while not ended.is_set():
            for key, _ in ready.select(0.1):
                sock = cast(socket.socket, key.fileobj)
                received = sock.recv(1 << 16)
                assert received, "the broker has closed the connection"
                frame = frames[sock] = frames[sock] + received
                if len(frame) < 4 + int.from_bytes(frame[:4], "big"):
                    continue
                frames[sock] = b""
                (part,) = response_of(frame[4:], ApiKey.FETCH, 4).topics[0].partitions
                assert part.error_code == 0
                for record in iterate(buffer_of(part.records)):
                    came += 1
                    assert record.offset == offsets[sock]
                    offsets[sock] += 1
                ask(sock)
    return came


def test_five_hundred_fetching_connections_stop_nobody(broker: AttackedBroker) -> None:
    before = descriptors(broker)
    with connections(broker, FETCHING) as socks, ThreadPoolExecutor(1) as fetching:
        ended = threading.Event()
        with Others(broker):
            fetched = fetching.submit(fetch_again_and_again, socks, ended)
            wait([fetched], 2 * ATTACK_S)
            ended.set()
            assert fetched.result() > FETCHING
    check_at_rest(broker, before)


LIMIT = 200
"""Descriptors of the broker below."""


def test_connections_beyond_all_descriptors_leave_the_logs_their_own(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with with_descriptors(LIMIT):
            broker = stack.enter_context(AttackedBroker(tmp_path / "data"))
        broker.create_topic("steady", 1, segment_bytes="1000000")
        large = build_message_set([Record(b"k", os.urandom(400_000), 1)], magic=2)
        before = descriptors(broker)
        with connections(broker, LIMIT + 100):
            wait_until(lambda: descriptors(broker) >= LIMIT // 2)
            begun = cpu_s(broker)
            time.sleep(1)
            assert cpu_s(broker) - begun < IDLE_CPU_S
            for _ in range(20):  # a new segment for every third
                (part,) = broker.call(requests.produce("steady", large, version=3)).topics[0].partitions
                assert part.error_code == 0
            broker.create_topic("new", 5)
        wait_until(lambda: descriptors(broker) < before + 60)
        with contextlib.closing(socket.create_connection((HOST, broker.port), 10)) as sock:
            sock.sendall(frame_of(requests.metadata("steady")))
            assert sock.recv(1)
