"""A way to end a ``select`` of another thread: a pair of sockets, one of which the selector watches."""

from __future__ import annotations

import socket


class Wakeup:
    """Thread-safe. ``wake`` any number of times makes ``reader`` readable until ``clear``."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the reader readable. After ``close`` nothing happens."""
        try:
            self._writer.send(b"\0")
        except OSError:
            # Full: the other thread has wakes enough. Closed: there is nobody to wake.
            return

    def clear(self) -> None:
        """Take back all wakes so far. For the selecting thread, before it looks at what it was woken for."""
        try:
            while len(self.reader.recv(4096)) == 4096:
                pass
        except OSError:
            return

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()
