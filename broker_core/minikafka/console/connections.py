"""The connections of browsers: each must send a request, and take its response, in time.

The server itself waits for ever for the first request of a connection, and for a reader. Connections that
nobody uses would add up to its limit, beyond which it refuses all. So at the limit a new connection takes the
place of the one that waits the longest for a whole request.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 30
"""The time for a whole request, from the connection or the end of the last response on."""
STALLED_S = 60
"""The time in which a reader must take something."""
OF_AN_ADDRESS_MAX = 64
"""Connections from one address other than loopback: those of a reverse proxy, or of many tabs."""


class Timer(Protocol):
    """A call that will be made unless it is cancelled."""

    def cancel(self) -> None: ...


class BrowserConnection(H11Protocol):
    """A connection that is closed if its browser neither sends nor reads."""

    _request_timer: Timer | None = None
    _waiting_since: float = 0.0
    """The time of the loop from which on a request is waited for, while its timer runs."""
    _write_timer: Timer | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        hosts = [
            other.client[0]
            for other in self.connections
            if isinstance(other, BrowserConnection) and other.client
        ]
        if hosts.count(host) > OF_AN_ADDRESS_MAX and not _is_loopback(host):
            transport.abort()
            return
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._replace_another()
        self._watch_request()

    def _replace_another(self) -> None:
        """Close the connection that waits the longest for a whole request; first one without a part of it."""
        waiting = [
            other
            for other in self.connections
            if isinstance(other, BrowserConnection) and other._request_timer is not None
        ]
        if waiting:
            oldest = min(waiting, key=lambda other: (other._has_begun, other._waiting_since))
            oldest._stop_watching_request()
            oldest.transport.abort()

    @property
    def _has_begun(self) -> bool:
        """True if a part of a request has come."""
        return self.conn.their_state is not h11.IDLE or bool(self.conn.trailing_data[0])

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or all of it."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch_request()

    def pause_writing(self) -> None:
        """Begin to watch a reader that is slow."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Go on with a reader that has taken something."""
        super().resume_writing()
        self._stop_watching_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        self._stop_watching_request()
        self._stop_watching_reader()

    def _watch_request(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_watching_request()
        elif self._request_timer is None:
            self._waiting_since = self.loop.time()
            self._request_timer = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_watching_request(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _watch_reader(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(STALLED_S, self._check_reader, size)

    def _check_reader(self, size_before: int) -> None:
        if self.transport.get_write_buffer_size() < size_before:
            self._watch_reader()
        else:
            self.transport.abort()

    def _stop_watching_reader(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
