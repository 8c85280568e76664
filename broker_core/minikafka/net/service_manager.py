"""Tells systemd the state of a service with ``Type=notify``: one datagram a message, as by sd_notify(3).

The environment has the address of its socket. Brokers that are child processes do not get it
(``embedded.process``): systemd might take their messages for those of the service.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

VARIABLE = "NOTIFY_SOCKET"
_PATIENCE_S = 1.0


def notify(*assignments: str) -> None:
    """Send assignments such as ``READY=1``; nothing if nobody has asked for them. Never fails."""
    # A name that begins with @ has no file. Others, such as vsock:, are of virtual machines.
    address = os.environ.get(VARIABLE, "")
    if address.startswith(("/", "@")):
        address = "\0" + address[1:] if address.startswith("@") else address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_PATIENCE_S)
            sender.sendto("\n".join(assignments).encode(), address)


def notify_ready(addresses: str) -> None:
    """Report that the service serves clients at ``addresses``."""
    notify("READY=1", f"STATUS=serving {addresses}")


def notify_stopping() -> None:
    """Report that the service is stopping."""
    notify("STOPPING=1", "STATUS=stopping")


@contextlib.contextmanager
def serving(addresses: str) -> Iterator[None]:
    """Report that the service serves during the block, and that it is stopping after it."""
    notify_ready(addresses)
    try:
        yield
    finally:
        notify_stopping()
