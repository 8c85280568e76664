"""The messages to systemd, as they arrive at a socket."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.net import service_manager


@pytest.fixture(params=["file", "abstract"])
def receiver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """A socket at the address that systemd would give."""
    name = str(tmp_path / "notify") if request.param == "file" else f"@minikafka-{os.getpid()}"
    if name.startswith("@") and sys.platform != "linux":
        pytest.skip("needs Linux")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(name.replace("@", "\0"))
        bound.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield bound


def test_service_is_ready_for_the_time_of_the_block(receiver: socket.socket) -> None:
    with service_manager.serving("127.0.0.1:9092"):
        assert receiver.recv(1000) == b"READY=1\nSTATUS=serving 127.0.0.1:9092"
    assert receiver.recv(1000) == b"STOPPING=1\nSTATUS=stopping"


@pytest.mark.parametrize("address", ["", "/no/such/socket", "vsock:2:1"])
def test_nobody_who_listens_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    service_manager.notify("READY=1")
