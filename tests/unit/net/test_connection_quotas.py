"""Limits on connections: the counts, and real sockets."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections.abc import Callable

import pytest

from minikafka.base.clock import ManualClock
from minikafka.net.connection_quotas import (
    DEFAULT_IP,
    MIN_CONNECTIONS,
    PROTECTED_MS,
    REFUSAL_LOG_INTERVAL_MS,
    RESERVED_DESCRIPTORS,
    ConnectionLimits,
    ConnectionQuotas,
    IpRates,
    LogLimit,
    UnauthenticatedConnections,
    descriptors_for_connections,
)
from minikafka.net.server import SocketServer
from tests.support.network import HOST, Answering, eventually
from tests.support.plain_sockets import framed, is_closed, plain, read_frame

Serve = Callable[..., SocketServer]


def test_a_new_connection_goes_where_the_fewest_are() -> None:
    admission = ConnectionQuotas(ConnectionLimits(), 3, ManualClock())
    dealt = [admission.admit("a") for _ in range(7)]
    assert sorted(dealt.count(number) for number in range(3)) == [2, 2, 3]
    busiest = max(range(3), key=dealt.count)
    for _ in range(3):
        admission.release(busiest, "a")
    assert [admission.admit("a") for _ in range(2)] == [busiest] * 2


def test_no_processor_ever_has_more_than_its_share_of_the_total() -> None:
    admission = ConnectionQuotas(ConnectionLimits(total=10), 3, ManualClock())
    on = [0, 0, 0]
    for step in range(1000):
        number = admission.admit("a")
        if number is None:
            victim = step % 3 if on[step % 3] else max(range(3), key=on.__getitem__)
            on[victim] -= 1
            admission.release(victim, "a")
        else:
            on[number] += 1
        assert max(on) <= 4
    assert sum(on) >= 9


def test_an_address_has_the_limit_of_all_or_one_of_its_own() -> None:
    limits = ConnectionLimits(per_ip=1, per_ip_overrides={"b": 2, "c": 0})
    admission = ConnectionQuotas(limits, 1, ManualClock())
    assert [admission.admit(ip) for ip in "aabbbc"] == [0, None, 0, 0, None, None]
    admission.release(0, "a")
    assert admission.admit("a") == 0


def test_connections_leave_descriptors_to_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    admission = ConnectionQuotas(ConnectionLimits(), 1, ManualClock(), descriptors=500)
    assert [admission.admit("a", descriptor) for descriptor in range(400, 500)] == [0] * 100
    assert admission.admit("a", 500) is None
    assert "500 file descriptors are open, and the rest is reserved for logs" in caplog.text
    admission.release(0, "a")
    assert admission.admit("a", 499) == 0


def test_minimum_of_connections_is_served_without_free_descriptors() -> None:
    admission = ConnectionQuotas(ConnectionLimits(), 1, ManualClock(), descriptors=500)
    dealt = [admission.admit("a", 600 + number) for number in range(MIN_CONNECTIONS + 1)]
    assert dealt == [0] * MIN_CONNECTIONS + [None]


@pytest.mark.parametrize(
    ("limit", "for_connections"),
    [
        (256, 192),
        (1_024, 768),
        (1 << 20, (1 << 20) - RESERVED_DESCRIPTORS),
        (resource.RLIM_INFINITY, 0x7FFFFFFF),
    ],
)
def test_a_quarter_of_few_descriptors_is_kept_and_of_many_a_number(
    monkeypatch: pytest.MonkeyPatch, limit: int, for_connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert descriptors_for_connections() == for_connections


def test_connections_that_come_too_fast_are_accepted_slowly(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limits = ConnectionLimits(creation_rate=10, rate_windows=2)
    quotas = ConnectionQuotas(limits, 1, clock)
    assert [quotas.pause_ms("A") for _ in range(12)] == [0] * 10 + [100, 200]
    assert max(quotas.pause_ms("B") for _ in range(100)) == 1_000
    clock.advance(2_000)
    assert quotas.pause_ms("A") == 0
    assert [record.getMessage() for record in caplog.records] == [
        "connections to listener A come faster than max.connection.creation.rate: accepting slowly"
    ]


def test_a_listener_has_a_rate_of_its_own_beside_that_of_the_broker() -> None:
    limits = ConnectionLimits(
        creation_rate=10,
        creation_rates={"A": 2, "B": 10, "IN": 20},
        inter_broker_listener="IN",
        rate_windows=2,
    )
    quotas = ConnectionQuotas(limits, 1, ManualClock())
    assert [quotas.pause_ms("A") for _ in range(3)] == [0, 0, 500]
    assert [quotas.pause_ms("B") for _ in range(8)] == [0] * 7 + [100]
    assert [quotas.pause_ms("IN") for _ in range(21)] == [0] * 20 + [50]
    assert ConnectionQuotas(ConnectionLimits(), 1, ManualClock()).pause_ms("A") == 0


def test_an_address_above_its_rate_is_kept_and_then_closed(serve: Serve) -> None:
    server = serve(Answering(), limits=ConnectionLimits(rate_windows=2, rate_window_ms=60_000))
    assert answers(server)
    server.set_ip_rates({HOST: 0})
    with plain(server) as sock:
        sock.sendall(framed(b"?"))
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        server.set_ip_rates({})
        assert answers(server)
    server.stop(drain_ms=0)


def test_a_throttled_connection_is_closed_when_its_time_has_come(serve: Serve) -> None:
    server = serve(Answering(), limits=ConnectionLimits(rate_windows=2, rate_window_ms=50))
    server.set_ip_rates({DEFAULT_IP: 0})
    with plain(server) as sock:
        assert is_closed(sock)


def test_addresses_have_a_rate_each_or_that_of_all_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    quotas = ConnectionQuotas(ConnectionLimits(rate_windows=2), 1, clock)
    assert [quotas.throttle_ms("a") for _ in range(100)] == [0] * 100
    quotas.set_ip_rates({"a": 2, DEFAULT_IP: 1})
    # A connection above the rate does not count, as it is closed.
    assert [quotas.throttle_ms("a") for _ in range(4)] == [0, 0, 500, 500]
    assert [quotas.throttle_ms("b") for _ in range(3)] == [0, 1000, 1000]
    assert quotas.throttle_ms("c") == 0
    clock.advance(2_000)
    assert quotas.throttle_ms("a") == 0
    assert caplog.messages == [
        "refused a connection from a: this address is above its quota connection_creation_rate"
    ]


def test_rates_of_addresses_that_are_gone_are_forgotten() -> None:
    clock = ManualClock()
    rates = IpRates(2, 1000)
    rates.limits = {DEFAULT_IP: 1}
    for number in range(1000):
        assert rates.throttle_ms(str(number), clock.monotonic_ms()) == 0
        clock.advance(100)
    assert len(rates._rates) < 200


def test_a_listener_has_a_limit_of_its_own_beside_that_of_the_broker() -> None:
    limits = ConnectionLimits(total=3, totals={"A": 1}, inter_broker_listener="IN")
    quotas = ConnectionQuotas(limits, 1, ManualClock())
    assert [quotas.admit("a", listener="A") for _ in range(2)] == [0, None]
    assert [quotas.admit("a", listener="B") for _ in range(3)] == [0, 0, None]
    # Brokers are not kept out by clients.
    assert quotas.admit("a", listener="IN") == 0
    quotas.release(0, "a", "A")
    quotas.release(0, "a", "IN")
    assert quotas.admit("a", listener="A") == 0


def test_refusals_are_logged_once_in_a_while_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    admission = ConnectionQuotas(ConnectionLimits(total=1, per_ip=0, per_ip_overrides={"a": 1}), 1, clock)
    for ip in "abbb":
        admission.admit(ip)
    clock.advance(REFUSAL_LOG_INTERVAL_MS)
    admission.release(0, "a")
    admission.admit("b")
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "refused a connection from b: the limit of 1 connections is reached (max.connections)"
    assert second.startswith("refused a connection from b: the limit of 0 connections of this address")
    assert second.endswith("; 2 more since the last message")


@pytest.mark.parametrize(
    "limits",
    [ConnectionLimits(total=2), ConnectionLimits(per_ip=2), ConnectionLimits(per_ip_overrides={HOST: 2})],
    ids=["total", "per ip", "override"],
)
def test_connection_above_a_limit_is_closed_at_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, limits: ConnectionLimits
) -> None:
    caplog.set_level(logging.WARNING)
    server = serve(Answering(), processors=2, limits=limits)
    with plain(server) as one:
        with plain(server) as two:
            for sock in (one, two):
                sock.sendall(framed(b"?"))
                assert read_frame(sock) == b"?"
            with plain(server) as three:
                assert is_closed(three)
            assert f"refused a connection from {HOST}" in caplog.text
            two.sendall(framed(b"still"))
            assert read_frame(two) == b"still"
        # There is room as soon as the server has noticed that a peer disconnected.
        eventually(lambda: answers(server), "another one is taken")


def answers(server: SocketServer) -> bool:
    with plain(server) as sock, contextlib.suppress(OSError):
        sock.sendall(framed(b"new"))
        return sock.recv(1) != b""
    return False


def test_connection_above_the_rate_waits_to_be_accepted(serve: Serve) -> None:
    handler = Answering()
    server = serve(handler, limits=ConnectionLimits(creation_rate=0, rate_window_ms=3_600_000))
    with plain(server) as first, plain(server) as second:
        second.sendall(framed(b"second"))
        first.sendall(framed(b"first"))
        assert read_frame(first) == b"first"
        server.stop(drain_ms=0)
        assert handler.seen == [b"first"]


def test_connections_of_all_listeners_count_together(serve: Serve) -> None:
    server = serve(Answering(), listeners=("A", "B"), limits=ConnectionLimits(total=1))
    with socket.create_connection((HOST, server.ports["A"])) as sock:
        sock.sendall(framed(b"?"))
        assert read_frame(sock) == b"?"
        with socket.create_connection((HOST, server.ports["B"])) as other:
            assert is_closed(other)


def test_oldest_unauthenticated_connection_makes_room_unless_it_is_young() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections(2)
    assert connections.add("A", "h", "first", 0) is None
    assert connections.add("A", "h", "second", 1) is None
    assert connections.add("B", "h", "of another listener", 1) is None
    assert connections.add("A", "h", "in a storm", PROTECTED_MS - 1) == "in a storm"
    connections.remove("A", "h", "in a storm")
    assert connections.add("A", "h", "third", PROTECTED_MS) == "first"
    connections.remove("A", "h", "first")
    connections.remove("A", "h", "second")
    connections.remove("A", "h", "second")
    assert connections.add("A", "h", "fourth", 2 * PROTECTED_MS) is None


def test_host_with_the_most_unauthenticated_connections_makes_room() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections(4)
    for number in range(4):
        assert connections.add("A", "flood", f"flood-{number}", number) is None
    # Another host gets up to its share at once, however young the flood is.
    for number in range(2):
        assert connections.add("A", "client", f"client-{number}", 5) == f"flood-{number}"
        connections.remove("A", "flood", f"flood-{number}")
    # A connection of the flood displaces none of the others, however old they are.
    assert connections.add("A", "flood", "flood-4", 6) == "flood-4"
    connections.remove("A", "flood", "flood-4")
    assert connections.add("A", "flood", "flood-5", 2 * PROTECTED_MS) == "flood-2"
    connections.remove("A", "flood", "flood-2")
    # Of hosts with as many, the oldest makes room.
    assert connections.add("A", "late", "late-0", 2 * PROTECTED_MS) == "flood-3"


def test_hosts_with_one_unauthenticated_connection_each_are_equal() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections(2)
    assert connections.add("A", "first", "first", 0) is None
    assert connections.add("A", "second", "second", 1) is None
    assert connections.add("A", "third", "third", 2) == "third"
    connections.remove("A", "third", "third")
    assert connections.add("A", "fourth", "fourth", PROTECTED_MS) == "first"


def test_lines_about_peers_are_limited_by_reason_by_host_and_in_all() -> None:
    clock = ManualClock()
    limit = LogLimit(clock)
    assert [limit.admit("h", reason) for reason in "aab"] == ["", None, "; 1 more since the last message"]
    assert [limit.admit("h", reason) for reason in "cdefg"].count(None) == 2
    assert sum(limit.admit(f"host {number}", "a") is not None for number in range(100)) == 45
    clock.advance(REFUSAL_LOG_INTERVAL_MS)
    assert limit.admit("h", "a") == "; 55 more since the last message"
