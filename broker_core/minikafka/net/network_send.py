"""Sending the parts of a frame to a non-blocking socket.

Memory is sent with ``sendmsg``, many pieces in a call. A file slice is sent with ``os.sendfile``, from the
page cache to the socket without a copy to user space. Where ``sendfile`` is missing, or does not support the
file or socket, the slice is read and sent in pieces. A lazy part is sent as it is produced; when it is not
ready, the call ends.

For an encrypted connection, pieces are copied together, files and lazy parts included, in a buffer of the
thread. What waits for a slow peer takes no memory here, and is copied again for the next attempt.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from minikafka.base.errors import NetworkError, StorageError
from minikafka.base.files import FileSlice
from minikafka.base.ids import host_port
from minikafka.net.request_limiter import FREE_BYTES
from minikafka.wire.frame_parts import LazyPart, Part, part_size

if TYPE_CHECKING:
    from minikafka.net.interfaces import RequestMeter

HAS_SENDFILE = hasattr(os, "sendfile")
_HAS_PREADV = hasattr(os, "preadv")

TURN_BYTES = 1 << 20
"""The approximate maximum that one ``NetworkSend.write`` sends: a fast reader must not delay the others."""

_PIECES = 64
"""Pieces of memory in one ``sendmsg``; systems take at least 16, Linux and macOS 1024."""
_COPY_BYTES = 256 * 1024
"""Bytes that are read from a file and sent in one call without ``sendfile``."""
_MORE = getattr(socket, "MSG_MORE", 0)
"""Linux: more data follows, so that the few bytes before a slice get no packet of their own."""
_ENCRYPTED_BYTES = 256 * 1024
"""The size of a piece for an encrypted connection."""
_NO_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTSOCK, errno.EOVERFLOW}


class TlsFailed(ConnectionError):
    """TLS has failed, on this side or, by an alert, on the peer's: the text says why and what to set."""


class EncryptedTransport(Protocol):
    """A connection that encrypts: ``net.ssl_transport``."""

    def send(self, data: memoryview) -> int:
        """Send the beginning of ``data``. Return its size. Raises BlockingIOError for 0.

        The next data must begin with what was not sent, as it may be encrypted already.
        """


class _Scratch(threading.local):
    """The buffer of a thread in which pieces are copied together, once there is an encrypted connection."""

    buffer: bytearray | None = None

    def view(self, size: int) -> memoryview:
        if self.buffer is None:
            self.buffer = bytearray(_ENCRYPTED_BYTES)
        return memoryview(self.buffer)[:size]


_scratch = _Scratch()


class NetworkSend:
    """The parts of one or more frames that are not sent yet."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: deque[memoryview | FileSlice | LazyPart] = deque()
        self.memory_bytes = 0
        """The initial memory of all parts."""
        self.total_bytes = 0
        """The size of all parts."""
        shared: dict[int, bytes] = {}
        for part in parts:
            # Empty parts are left out: data must follow after MSG_MORE.
            size = part_size(part)
            if not size:
                continue
            self.total_bytes += size
            if isinstance(part, (bytes, bytearray, memoryview)):
                self.memory_bytes += size
                if isinstance(part, bytes) and size > FREE_BYTES:
                    shared[id(part)] = part
                part = memoryview(part).cast("B")
            self._parts.append(part)
        self.shared = tuple(shared.values())
        """Large immutable parts, without duplicates, which other responses may share."""
        self._sendfile = HAS_SENDFILE
        self.waits_for: LazyPart | None = None
        """The lazy part that must produce its next bytes before anything more can be sent."""

    @property
    def done(self) -> bool:
        """True when everything was sent."""
        return not self._parts

    def write(self, sock: socket.socket | EncryptedTransport) -> int:
        """Send what the socket accepts now, up to ``TURN_BYTES``. Return the number of bytes.

        Raises OSError when the connection is broken, StorageError when a file has become shorter than its
        slice.
        """
        if type(sock) is not socket.socket:
            assert not isinstance(sock, socket.socket), "plain IO would pass by an SSLSocket's encryption"
            return self._write_encrypted(sock)
        total = 0
        self.waits_for = None
        try:
            while self._parts and total < TURN_BYTES and self.waits_for is None:
                first = self._parts[0]
                if isinstance(first, memoryview):
                    total += self._write_memory(sock)
                elif isinstance(first, FileSlice):
                    total += self._write_slice(sock, first)
                else:
                    total += self._write_lazy(sock, first)
        except BlockingIOError:
            pass
        return total

    def _write_encrypted(self, transport: EncryptedTransport) -> int:
        total = 0
        self.waits_for = None
        try:
            while self._parts and total < TURN_BYTES and self.waits_for is None:
                piece = self._gather(_ENCRYPTED_BYTES)
                if piece:
                    sent = transport.send(piece)
                    self._remove(sent)
                    total += sent
                    if sent < len(piece):
                        break
        except BlockingIOError:
            pass
        return total

    def _gather(self, size: int) -> memoryview:
        """Return the next bytes, at most ``size``: empty when a lazy part is not ready."""
        first = self._parts[0]
        if isinstance(first, memoryview) and len(first) >= size:
            return first[:size]
        space, filled = _scratch.view(size), 0
        for part in self._parts:
            room = space[filled:]
            if not room:
                break
            if isinstance(part, memoryview):
                count = min(len(part), len(room))
                room[:count] = part[:count]
            elif isinstance(part, FileSlice):
                count = _read_into(part, room)
            else:
                data = part.ready()
                if data is None:
                    self.waits_for = None if filled else part
                    break
                count = min(len(data), len(room))
                room[:count] = data[:count]
            filled += count
            if count < part_size(part):
                break
        return space[:filled]

    def _remove(self, count: int) -> None:
        """Remove the first ``count`` bytes, which are sent."""
        while count:
            part = self._parts[0]
            removed = min(count, part_size(part))
            count -= removed
            if isinstance(part, LazyPart):
                part.sent(removed)
                if not part.length:
                    part.close()
                    self._parts.popleft()
            elif removed == part_size(part):
                self._parts.popleft()
            elif isinstance(part, memoryview):
                self._parts[0] = part[removed:]
            else:
                self._parts[0] = part.part(removed, part.length - removed)

    def close(self) -> None:
        """Release all parts. A second call does nothing."""
        for part in self._parts:
            if isinstance(part, LazyPart):
                part.close()
        self._parts.clear()
        self.waits_for = None

    def _write_memory(self, sock: socket.socket) -> int:
        pieces: list[memoryview] = []
        flags = 0
        for part in self._parts:
            if not isinstance(part, memoryview):
                flags = _MORE
                break
            if len(pieces) == _PIECES:
                break
            pieces.append(part)
        sent = left = sock.sendmsg(pieces, (), flags)
        for piece in pieces:
            if left < len(piece):
                self._parts[0] = piece[left:]
                break
            left -= len(piece)
            self._parts.popleft()
        return sent

    def _write_slice(self, sock: socket.socket, piece: FileSlice) -> int:
        sent = self._send_file(sock, piece) if self._sendfile else None
        if sent is None:
            self._sendfile = False
            sent = sock.send(_read(piece))
        if sent == 0:
            raise _shorter(piece)
        if sent < piece.length:
            self._parts[0] = piece.part(sent, piece.length - sent)
        else:
            self._parts.popleft()
        return sent

    def _write_lazy(self, sock: socket.socket, part: LazyPart) -> int:
        data = part.ready()
        if data is None:
            self.waits_for = part
            return 0
        sent = sock.send(data[:TURN_BYTES])
        part.sent(sent)
        if not part.length:
            part.close()
            self._parts.popleft()
        return sent

    def _send_file(self, sock: socket.socket, piece: FileSlice) -> int | None:
        """Call ``os.sendfile``, which Linux and macOS have in this form. Return None if unsupported."""
        descriptor = _descriptor(piece)
        if descriptor is None:
            return None
        try:
            return os.sendfile(sock.fileno(), descriptor, piece.position, min(piece.length, TURN_BYTES))
        except OSError as error:
            if error.errno in _NO_SENDFILE:
                return None
            raise


class MeteredSend(NetworkSend):
    """A send whose processor time counts for the client."""

    def __init__(self, parts: Iterable[Part], meter: RequestMeter) -> None:
        super().__init__(parts)
        self._meter = meter
        self._used_ns = 0

    def write(self, sock: socket.socket | EncryptedTransport) -> int:
        began_ns = time.thread_time_ns()
        try:
            return super().write(sock)
        finally:
            self._used_ns += time.thread_time_ns() - began_ns

    def close(self) -> None:
        super().close()
        used_ns, self._used_ns = self._used_ns, 0
        if used_ns:
            self._meter.sent(used_ns)


def _descriptor(piece: FileSlice) -> int | None:
    descriptor = piece.file.descriptor()
    if descriptor is not None and descriptor < 0:
        raise StorageError(f"{piece.file.path} was closed while a slice of it was sent")
    return descriptor


def _read_into(piece: FileSlice, room: memoryview) -> int:
    """Read the beginning of a slice into ``room``. Return the number of bytes, which is positive."""
    room = room[: piece.length]
    descriptor = _descriptor(piece)
    if descriptor is None or not _HAS_PREADV:
        data = piece.file.read_at(piece.position, len(room))
        count = len(data)
        room[:count] = data
    else:
        try:
            count = os.preadv(descriptor, [room], piece.position)
        except OSError as error:
            raise StorageError(f"cannot read {piece.file.path}: {error_reason(error)}") from None
    if not count:
        raise _shorter(piece)
    return count


def _read(piece: FileSlice) -> bytes:
    data = piece.file.read_at(piece.position, min(piece.length, _COPY_BYTES))
    if not data:
        raise _shorter(piece)
    return data


def _shorter(piece: FileSlice) -> StorageError:
    return StorageError(
        f"{piece.file.path} ends too early: expected {piece.length} bytes at position {piece.position}"
    )


def peer_name(address: object) -> tuple[str, str]:
    """Return the host and ``host:port`` of an address from ``accept`` or ``getpeername``."""
    if isinstance(address, tuple) and len(address) >= 2:
        # A dual-stack socket reports IPv4 addresses in this form.
        host, port = str(address[0]).removeprefix("::ffff:"), address[1]
        return host, host_port(host, port)
    return "local", "local"


def error_reason(error: BaseException) -> str:
    """Return a short text of ``error`` for logs and messages."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


def connection_error(peer: str, doing: str, error: BaseException) -> NetworkError:
    """Return the NetworkError for a broken connection."""
    return NetworkError(f"{doing}: {error_reason(error)}", peer)
