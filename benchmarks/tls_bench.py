"""The cost of TLS in the network layer: memory, handshakes, large answers, and peers that never finish.

    python benchmarks/tls_bench.py [--json]

A server of one processor runs in a process of its own, with a certificate of ECDSA P-256 and a handler that
answers with what is in the page cache. Counted are

* its memory above what it had before, for each of 1,000 connections that were answered once (goal: 60 KB);
* its processor time for a connection with a handshake and one small request, and that of one without TLS;
* answers of 1 MiB with and without TLS, one after the other (Python's ``ssl`` reads them);
* the median latency of a small request, alone and while 2,000 others have sent half of a first message
  (goal: 2 x). A listener keeps 1,000 of these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import trustme

from minikafka.base.files import FileSlice, RealFiles
from minikafka.net.interfaces import Endpoint, Exchange
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls
from minikafka.security.ssl_config import SslConfig

HOST = "127.0.0.1"
CONNECTIONS, HANDSHAKES, ANSWERS, HALF_OPEN = 1_000, 1_000, 500, 2_000
LATENCY_SECONDS = 3.0
PAUSE_SECONDS = 0.0005
ANSWER_BYTES = 1 << 20
MEMORY_GOAL_KB, LATENCY_GOAL = 60.0, 2.0
SMALL, LARGE = b"s" * 60, b"l" * 60


class Handler:
    """Answers a small request with itself, and a large one from a file."""

    def __init__(self, directory: str) -> None:
        self._file = RealFiles().open(f"{directory}/segment", create=True)
        self._file.write_at(0, bytes(ANSWER_BYTES))

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Answer at once."""
        exchange.respond([FileSlice(self._file, 0, ANSWER_BYTES)] if frame[:1] == b"l" else [frame])


def serve() -> None:
    """Serve until standard input ends."""
    authority = trustme.CA()
    pem = authority.issue_cert(HOST).private_key_and_cert_chain_pem.bytes().decode()
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.key": pem, "ssl.keystore.certificate.chain": pem}
    tls = ServerTls(SslConfig.from_properties(keys))
    endpoints = [Endpoint("PLAINTEXT", HOST, 0), Endpoint("SSL", HOST, 0, tls=tls)]
    with tempfile.TemporaryDirectory() as directory:
        server = SocketServer(endpoints, Handler(directory), processors=1)
        server.start()
        known = {"ports": dict(server.ports), "ca": authority.cert_pem.bytes().decode()}
        sys.stdout.write(json.dumps(known) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.stop()


@dataclass
class Peer:
    """The server's process, and connections to it."""

    process: psutil.Popen
    ports: dict[str, int]
    context: ssl.SSLContext

    def connect(self, listener: str) -> socket.socket:
        """Return a connection that is ready for requests."""
        sock = socket.create_connection((HOST, self.ports[listener]))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(sock, server_hostname=HOST) if listener == "SSL" else sock

    def cpu_s(self) -> float:
        """The processor time of the server so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def peer() -> Iterator[Peer]:
    """A running server."""
    command = [sys.executable, __file__, "--server"]
    process = psutil.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        known = json.loads(process.stdout.readline())
        yield Peer(process, known["ports"], ssl.create_default_context(cadata=known["ca"]))
    finally:
        process.stdin.close()
        process.wait()


BUFFER = memoryview(bytearray(ANSWER_BYTES))


def ask(sock: socket.socket, request: bytes) -> None:
    """Send a request, and receive its answer."""
    sock.sendall(struct.pack(">i", len(request)) + request)
    left = 0
    for size in (4, None):
        left = struct.unpack(">i", BUFFER[:4])[0] if size is None else size
        received = 0
        while received < left:
            received += sock.recv_into(BUFFER[received:left])


def memory_kb(server: Peer) -> float:
    """KB of the server for each connection."""
    with contextlib.closing(server.connect("SSL")) as first:
        ask(first, SMALL)
    before = server.process.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            ask(stack.enter_context(contextlib.closing(server.connect("SSL"))), SMALL)
        return float(server.process.memory_info().rss - before) / CONNECTIONS / 1024


def measured(server: Peer, run: Callable[[], None], count: int) -> tuple[float, float]:
    """Microseconds of the server's processor, and of the clock, for each of ``count`` in ``run``."""
    cpu_s, began = server.cpu_s(), time.monotonic()
    run()
    elapsed_s = time.monotonic() - began
    return (server.cpu_s() - cpu_s) / count * 1e6, elapsed_s / count * 1e6


def handshakes(server: Peer, listener: str) -> tuple[float, float]:
    """Microseconds for a new connection and one small request."""

    def run() -> None:
        for _ in range(HANDSHAKES):
            with contextlib.closing(server.connect(listener)) as sock:
                ask(sock, SMALL)

    return measured(server, run, HANDSHAKES)


def large_answers(server: Peer, listener: str) -> tuple[float, float]:
    """Microseconds for an answer of 1 MiB."""
    with contextlib.closing(server.connect(listener)) as sock:
        ask(sock, LARGE)

        def run() -> None:
            for _ in range(ANSWERS):
                ask(sock, LARGE)

        return measured(server, run, ANSWERS)


def latency_us(sock: socket.socket) -> float:
    """The median of small requests at intervals."""
    found, end = [], time.monotonic() + LATENCY_SECONDS
    while time.monotonic() < end:
        began = time.perf_counter()
        ask(sock, SMALL)
        found.append(time.perf_counter() - began)
        time.sleep(PAUSE_SECONDS)
    return statistics.median(found) * 1e6


def latencies_us(server: Peer) -> tuple[float, float]:
    """The latency alone, and beside the connections that are half open."""
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        server.context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST).do_handshake()
    half = hello.read()[:100]
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(contextlib.closing(server.connect("SSL")))
        alone = latency_us(good)
        for _ in range(HALF_OPEN):
            sock = socket.create_connection((HOST, server.ports["SSL"]))
            stack.enter_context(contextlib.closing(sock)).sendall(half)
        return alone, latency_us(good)


def run() -> dict[str, float]:
    """All figures by their name."""
    with peer() as server:
        found = {"memory KB a connection": memory_kb(server)}
        for listener in ("PLAINTEXT", "SSL"):
            cpu_us, elapsed_us = handshakes(server, listener)
            found[f"{listener} connections, server's us"] = cpu_us
            found[f"{listener} connections/s"] = 1e6 / elapsed_us
            cpu_us, elapsed_us = large_answers(server, listener)
            found[f"{listener} 1 MiB answers, server's us"] = cpu_us
            found[f"{listener} MiB/s"] = 1e6 / elapsed_us
        found["latency alone us"], found[f"latency beside {HALF_OPEN} half-open us"] = latencies_us(server)
    return found


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if given.server:
        serve()
        return
    found = run()
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:45} {value:12.1f}")
    ratio = found[f"latency beside {HALF_OPEN} half-open us"] / found["latency alone us"]
    print(
        f"goals: {MEMORY_GOAL_KB:.0f} KB a connection; latency {ratio:.2f} x of {LATENCY_GOAL:.0f} x at most"
    )


if __name__ == "__main__":
    main()
