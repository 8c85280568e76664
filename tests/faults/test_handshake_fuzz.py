"""A listener with TLS under random invalid handshakes, while a well-behaved client keeps working.

The server must refuse each connection or wait for its deadline, log no defect, and keep nothing of it.
``MINIKAFKA_FUZZ`` is how many inputs are tried (at least 400). One input again, by itself::

    python -m tests.faults.test_handshake_fuzz SEED NUMBER

OpenSSL's part of an input, such as the keys of a hello, is another one each time; what is damaged is not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from minikafka.net.connection import SocketConnection, SocketConnector
from minikafka.net.interfaces import Endpoint
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, client_context
from tests.support.network import HOST, Answering, eventually
from tests.support.plain_sockets import framed
from tests.support.tls import broker_tls, client_tls

INPUTS = max(400, int(os.environ.get("MINIKAFKA_FUZZ", "0")))
SEED = 20_261_126
BETWEEN_CHECKS = 100
"""Inputs after which the well-behaved client has its turn."""

Change = Callable[[bytes, random.Random], bytes]
ALERT, HANDSHAKE, APPLICATION_DATA = 0x15, 0x16, 0x17


def record(kind: int, body: bytes, version: int = 0x0303) -> bytes:
    return struct.pack(">BHH", kind, version, len(body)) + body


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 50])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def lengthened(data: bytes, chance: random.Random) -> bytes:
    """Put a wrong number where two bytes may be a length."""
    changed = bytearray(data)
    at = chance.choice([3, 7, chance.randrange(len(changed) - 1)])
    length = chance.choice([0, 1, 0x4000, 0x4001, 0xFFFF, chance.randrange(1 << 16)])
    struct.pack_into(">H", changed, at, length)
    return bytes(changed)


def inserted(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.randbytes(chance.choice([1, 2, 100, 20_000])) + data[at:]


def twice(data: bytes, chance: random.Random) -> bytes:
    return data + data


def split(data: bytes, chance: random.Random) -> bytes:
    """Spread the content over many records."""
    body, pieces = data[5:], b""
    while body:
        size = chance.choice([1, 3, 50, 200])
        pieces += record(HANDSHAKE, body[:size])
        body = body[size:]
    return pieces


def flooded(data: bytes, chance: random.Random) -> bytes:
    """Put records without a use before it."""
    useless = [record(HANDSHAKE, b""), record(ALERT, b"\1\0"), record(20, b"\1"), record(99, b"x")]
    return chance.choice(useless) * chance.choice([1, 40, 5_000]) + data


def replaced(data: bytes, chance: random.Random) -> bytes:
    """Send something else in a record, or outside of one."""
    noise = chance.randbytes(chance.choice([1, 5, 500, 40_000]))
    kind = chance.choice([ALERT, HANDSHAKE, APPLICATION_DATA, chance.randrange(256)])
    version = chance.choice([0x0300, 0x0301, 0x0303, 0x0304, chance.randrange(1 << 16)])
    in_record = record(kind, noise[:16_000], version)
    return chance.choice([noise, in_record, b"\x16\x03" + noise, b"\0\0\0\x10" + noise])


CHANGES: tuple[Change, ...] = (flipped, cut, lengthened, inserted, twice, split, flooded, replaced)


class FuzzedClient:
    """A client that damages one of its flights, and then goes on or leaves."""

    def __init__(self, port: int, contexts: list[ssl.SSLContext], seed: int, number: int) -> None:
        self._chance = random.Random(f"{seed}:{number}")
        self._port = port
        self._context = self._chance.choice(contexts)
        self._damaged_flight = self._chance.choice([0, 0, 0, 1, 1, 2])
        self._change = self._chance.choice(CHANGES)
        self._flights = 0

    def __str__(self) -> str:
        return f"{self._change.__name__} in flight {self._damaged_flight}"

    def run(self) -> None:
        """Connect, and do what is wrong."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        with socket.create_connection((HOST, self._port), 10) as sock, contextlib.suppress(OSError):
            while not tls.version() or self._flights < 2:
                try:
                    tls.do_handshake()
                    self._send(sock, outgoing.read())
                    tls.write(framed(b"hello"))
                    self._send(sock, outgoing.read())
                    break
                except ssl.SSLWantReadError:
                    self._send(sock, outgoing.read())
                if self._flights > self._damaged_flight:
                    break
                incoming.write(sock.recv(65_536))
            self._leave(sock)

    def _send(self, sock: socket.socket, data: bytes) -> None:
        if data and self._flights == self._damaged_flight:
            data = self._change(data, self._chance)
        self._flights += 1
        pieces = self._chance.choice([1, 1, 1, 2, 5])
        for start in range(0, len(data), max(1, len(data) // pieces)):
            sock.sendall(data[start : start + max(1, len(data) // pieces)])

    def _leave(self, sock: socket.socket) -> None:
        way = self._chance.randrange(4)
        if way == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.recv(100)


@contextlib.contextmanager
def fuzzed_server() -> Iterator[SocketServer]:
    """A server with one processor and a short deadline."""
    endpoint = Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls(client_auth="requested")))
    server = SocketServer([endpoint], Answering(), processors=1, authentication_timeout_ms=500)
    server.start()
    try:
        yield server
    finally:
        server.stop(drain_ms=0)


def contexts() -> list[ssl.SSLContext]:
    """Return contexts of both versions, with and without a certificate."""
    return [
        client_context(client_tls(name, enabled_protocols=version))
        for version in ("TLSv1.2", "TLSv1.3")
        for name in (None, "alice")
    ]


@contextlib.contextmanager
def connected(server: SocketServer) -> Iterator[SocketConnection]:
    """Give a connection of a client that behaves well."""
    connection = SocketConnector(tls=partial(client_context, client_tls())).connect(HOST, server.port)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.timeout(60 + INPUTS // 50)
def test_invalid_handshakes_do_not_disturb_other_connections(caplog: pytest.LogCaptureFixture) -> None:
    of_clients = contexts()
    with fuzzed_server() as server, connected(server) as good:
        for number in range(INPUTS):
            client = FuzzedClient(server.port, of_clients, SEED, number)
            client.run()
            if number % BETWEEN_CHECKS == 0 or number == INPUTS - 1:
                text = f"seed {SEED}, to {number}: {client}\n{caplog.text}"
                assert bytes(good.request([b"fine"]).result()) == b"fine", text
                assert all(line.levelno < logging.ERROR for line in caplog.records), text
                caplog.clear()
        eventually(lambda: len(server._processors[0]._channels) == 1, "all others are closed")
        with connected(server) as new:
            assert bytes(new.request([b"new"]).result()) == b"new"


def main(seed: int, number: int) -> None:
    """Try one input, and print what the server says."""
    logging.basicConfig(level=logging.DEBUG)
    with fuzzed_server() as server:
        client = FuzzedClient(server.port, contexts(), seed, number)
        sys.stdout.write(f"{client}\n")
        client.run()
        eventually(lambda: not server._processors[0]._channels, "it is closed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
