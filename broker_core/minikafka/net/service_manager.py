"""Tells systemd the state of a service with ``Type=notify``: one datagram a message, as by sd_notify(3).

The address is taken from the environment when this module is imported, so that child processes do not have
it: systemd would take their messages for those of the service.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

VARIABLE = "NOTIFY_SOCKET"
_address = os.environ.pop(VARIABLE, "")


def notify(*assignments: str) -> None:
    """Send assignments such as ``READY=1``; nothing if nobody has asked for them. Never fails."""
    # A name that begins with @ has no file. Others, such as vsock:, are of virtual machines.
    if _address.startswith(("/", "@")):
        address = "\0" + _address[1:] if _address.startswith("@") else _address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
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
