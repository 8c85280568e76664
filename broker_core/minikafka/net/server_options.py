"""Limits of a server, and of the inactivity of a connection in each of its states."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from minikafka.net.channel import (
    AWAITING_PART,
    DELAYED,
    HELD,
    IN_SERVICE,
    LINGERING,
    SENDING,
    ConnectionState,
)

AUTHENTICATION_TIMEOUT_MS = 10_000
"""The time that a client has to authenticate, as Kafka's clients have to connect
(``socket.connection.setup.timeout.ms``).
"""
UNAUTHENTICATED_CONNECTIONS = 1_000
"""The connections of a listener that may wait for that at a time.

A storm of as many clients passes in about two seconds of computing: above, it is longer than they would wait.
"""
UNSENT_BYTES = 128 << 20
"""The default limit on memory of large responses that peers have not read yet."""

STALL_MS = 1_000
"""While others wait for memory, a holder must transfer ``STALL_BYTES`` of request or response in this time.
"""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits of a server.

    Kafka's names: ``socket.request.max.bytes``, ``connections.max.idle.ms``, ``socket.send.buffer.bytes``,
    ``socket.receive.buffer.bytes`` (None: the system's adaptive default). Ours: ``write_timeout_ms``, after
    which a peer that reads nothing of its response is disconnected; ``linger_ms``, the time that a peer has
    before the end to close its side; ``authentication_timeout_ms`` and ``unauthenticated_request_bytes``, the
    limits of a connection whose listener demands authentication, until its client has authenticated;
    ``unauthenticated_connections``, the limit of these for each listener and processor.
    """

    max_request_bytes: int
    idle_ms: int
    write_timeout_ms: int
    linger_ms: int
    send_buffer_bytes: int | None
    receive_buffer_bytes: int | None
    authentication_timeout_ms: int
    unauthenticated_connections: int
    unauthenticated_request_bytes: int

    @property
    def stall_ms(self) -> int:
        """The interval of checks of a peer that holds scarce memory."""
        return min(STALL_MS, self.write_timeout_ms)


def idle_limit(state: ConnectionState, options: ServerOptions) -> tuple[int, str, int]:
    """Return the limit of inactivity in a state, the reason to log ('': none) and its level."""
    if state is SENDING:
        return options.write_timeout_ms, "it read nothing of its response for {} ms", logging.WARNING
    if state is LINGERING:
        return options.linger_ms, "the server is stopping", logging.DEBUG
    if state in (IN_SERVICE, DELAYED, HELD, AWAITING_PART):
        return options.idle_ms, "", logging.DEBUG
    return options.idle_ms, "idle for {} ms", logging.INFO
