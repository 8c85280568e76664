"""``net/datagrams``: they arrive on loopback, and what cannot be sent is dropped."""

from __future__ import annotations

import queue
import socket
import threading
from typing import Any

import pytest

from minikafka.base.errors import NetworkError
from minikafka.net import datagrams
from minikafka.net.datagrams import DatagramReceiver, send_datagrams


def test_datagrams_arrive_until_the_receiver_is_closed() -> None:
    found: queue.Queue[bytes] = queue.Queue()
    receiver = DatagramReceiver("127.0.0.1", 0, found.put)
    send_datagrams("127.0.0.1", receiver.port, [b"one", b"two"])
    assert [found.get(timeout=10), found.get(timeout=10)] == [b"one", b"two"]
    receiver.close()
    receiver.close()
    send_datagrams("127.0.0.1", receiver.port, [b"late"])
    assert found.empty()


def test_what_cannot_be_sent_is_dropped() -> None:
    send_datagrams("127.0.0.1", 9, [b"x" * 70_000])
    send_datagrams("a..b", 9, [b"x"])


def test_a_name_that_is_not_known_is_looked_up_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def unknown(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for _ in range(3):
        send_datagrams("unknown.example", 9, [b"x"])
    assert asked == ["unknown.example"]
    monkeypatch.setattr(datagrams._LookUp, "AGAIN_S", 0)
    send_datagrams("unknown.example", 9, [b"x"])
    assert len(asked) == 2


def test_nobody_waits_for_a_slow_look_up_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, found, asked = threading.Event(), queue.Queue[bytes](), list[object]()
    look_up = socket.getaddrinfo

    def slow(host: str, *given: Any, **named: Any) -> Any:
        asked.append(host)
        assert answer.wait(10)
        return look_up("127.0.0.1", *given, **named)

    receiver = DatagramReceiver("127.0.0.1", 0, found.put)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(datagrams._LookUp, "WAIT_S", 0)
    for _ in range(3):
        send_datagrams("slow.example", receiver.port, [b"lost"])
    answer.set()
    assert datagrams._look_ups["slow.example", receiver.port].done.wait(10)
    send_datagrams("slow.example", receiver.port, [b"sent"])
    assert found.get(timeout=10) == b"sent"
    assert asked == ["slow.example"]
    receiver.close()


def test_an_address_that_cannot_be_used_is_named() -> None:
    with pytest.raises(NetworkError, match=r"192\.0\.2\.1:0"):
        DatagramReceiver("192.0.2.1", 0, lambda datagram: None)
