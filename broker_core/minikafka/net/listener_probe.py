"""Questions to the port of a broker that has closed a connection before its first answer.

That is all that a client sees if it uses TLS and the listener does not, or the reverse: a broker cannot
answer what it does not understand. Both are worth a second connection, as a retry would never help.
"""

from __future__ import annotations

import socket
import ssl
import struct

from minikafka.net.tls_failures import unverified_context
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import LENGTH_BYTES, RequestHeader, encode_frame

TIMEOUT_SECONDS = 1.0
_CORRELATION_ID = 0x4D4B
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of an alert and of a handshake."""

TLS_MISSING = (
    "the broker does not speak TLS on this port; use the port of a listener with TLS, or set "
    "security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
TLS_NEEDED = (
    "the broker speaks TLS on this port; set security.protocol to SSL or SASL_SSL, or use the port of a "
    "listener without TLS"
)


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return True if the listener answers the beginning of a handshake as one with TLS does."""
    hello = ssl.MemoryBIO()
    try:
        unverified_context().wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    except ssl.SSLWantReadError:
        return _answer(address, hello.read(), 2) in _TLS_RECORDS
    return False


def speaks_plainly(address: tuple[str, int]) -> bool:
    """Return True if the listener answers ApiVersions without TLS."""
    header = RequestHeader(ApiKey.API_VERSIONS, 0, _CORRELATION_ID, "")
    answer = _answer(address, join(encode_frame([header.encode()])), LENGTH_BYTES + 4)
    return answer[LENGTH_BYTES:] == struct.pack(">i", _CORRELATION_ID)


def _answer(address: tuple[str, int], question: bytes, size: int) -> bytes:
    """Return the first ``size`` bytes that come back; fewer if the connection ends, or after the time-out."""
    answer = b""
    try:
        with socket.create_connection(address, TIMEOUT_SECONDS) as sock:
            sock.sendall(question)
            while len(answer) < size:
                data = sock.recv(size - len(answer))
                if not data:
                    break
                answer += data
    except OSError:
        pass
    return answer
