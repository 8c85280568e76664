"""Peers of a server that send bytes by hand."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator

from minikafka.net.server import SocketServer
from tests.support.network import HOST, PATIENCE_SECONDS


@contextlib.contextmanager
def plain(server: SocketServer, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A plain socket that is connected to ``server``."""
    with socket.socket() as sock:
        sock.settimeout(PATIENCE_SECONDS)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect((HOST, server.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


@contextlib.contextmanager
def encrypted(server: SocketServer, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """A blocking socket with TLS that is connected to ``server``."""
    with plain(server) as sock, context.wrap_socket(sock, server_hostname=HOST) as wrapped:
        yield wrapped


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = sock.recv_into(view)
        assert count, f"the stream ended {len(view)} bytes early"
        view = view[count:]
    return bytes(data)


def read_frame(sock: socket.socket) -> bytes:
    return exactly(sock, struct.unpack(">i", exactly(sock, 4))[0])


def is_closed(sock: socket.socket) -> bool:
    """Return True if the server has closed the connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True
