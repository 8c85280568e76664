"""``net/datagrams``: they arrive on loopback, and what cannot be sent is dropped."""

from __future__ import annotations

import queue

import pytest

from minikafka.base.errors import NetworkError
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


def test_an_address_that_cannot_be_used_is_named() -> None:
    with pytest.raises(NetworkError, match=r"192\.0\.2\.1:0"):
        DatagramReceiver("192.0.2.1", 0, lambda datagram: None)
