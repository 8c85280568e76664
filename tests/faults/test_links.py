"""The relays in front of the servers of a test: whom they take a connection for, and what a cut link does."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import pytest

from tests.faults import links as module
from tests.faults.links import Links, Way

PATIENCE_S = 20.0
SOURCE, SERVER = "0", "1"


def goes_through(pids: Mapping[str, int]) -> bool:
    """Return True if this process reaches the server, to which the link of ``SOURCE`` is cut."""
    with socket.create_server(("127.0.0.1", 0)) as server, Links(lambda: pids) as links:
        relay = links.add(SERVER, server.getsockname()[1])
        links.begin(SOURCE, SERVER, Way.CUT)
        with socket.create_connection(("127.0.0.1", relay), PATIENCE_S) as connection:
            connection.sendall(b"?")
            server.settimeout(PATIENCE_S)
            far, _ = server.accept()  # the relay connects before it looks whose connection it is
            with far:
                far.settimeout(PATIENCE_S)
                return far.recv(1) == b"?"


@pytest.mark.parametrize("has_proc", [True, False])
def test_a_connection_belongs_to_the_process_that_made_it(
    has_proc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_proc:
        monkeypatch.setattr(module, "_sockets_at", lambda port: None)
    assert not goes_through({SOURCE: os.getpid()})
    assert goes_through({SOURCE: os.getppid()})
    assert goes_through({})
