"""Requests to another broker: failed connections and logins are retried after a pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import AuthenticationFailed, MinikafkaError, NetworkError, SslAuthenticationFailed
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connection, PendingResponse
from minikafka.server import inter_broker_connection
from minikafka.server.control.protocol_compatibility import check_protocol_compatibility
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer, check_own_login
from minikafka.wire.frame_parts import Part

ADDRESS = BrokerAddress(2, "h", 9092)
PAUSE_MS = 300
REFUSED = AuthenticationFailed("h:9092: wrong password", "h:9092: wrong password")


class FailingConnector:
    """Fails each connection with the next of ``errors``."""

    def __init__(self, *errors: MinikafkaError) -> None:
        self.errors = list(errors)

    def connect(self, host: str, port: int) -> Connection:
        raise self.errors.pop(0)

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        raise AssertionError("nothing was sent")


class RefusedLater:
    """A connection whose peer refuses the certificate after the handshake, as with TLS 1.3."""

    closed = aborted = False

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> PendingResponse:
        raise REFUSED

    def close(self, drain_ms: int = 0) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Accepting:
    """Makes the connection ``made``."""

    def __init__(self, made: RefusedLater) -> None:
        self.made = made

    def connect(self, host: str, port: int) -> Connection:
        return cast(Connection, self.made)

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        raise AssertionError("nothing was sent")


class Asking(InterBrokerConnection):
    """Asks for the API versions again and again."""

    def ask(self) -> bool:
        self.peer.negotiate()
        return True

    def take(self, response: Any) -> None:
        raise AssertionError("nothing was answered")

    def failed(self, reason: str) -> int:
        return PAUSE_MS

    def next_ms(self) -> int:
        return 0


@pytest.mark.parametrize("error", [REFUSED, NetworkError("connection refused", "h:9092")])
def test_failed_connection_is_retried_after_a_pause(error: MinikafkaError) -> None:
    clock, connector = ManualClock(0), FailingConnector(error, error)
    asking = Asking(Peer(ADDRESS, connector, "test"), clock, 1_000)
    assert asking.step()
    assert not asking.step()
    clock.advance(PAUSE_MS)
    assert asking.step()
    assert connector.errors == []


def test_refused_login_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    asking = Asking(Peer(ADDRESS, FailingConnector(REFUSED, REFUSED), "test"), clock, 1_000)
    asking.step()
    clock.advance(PAUSE_MS)
    asking.step()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == "request to broker 2 at h:9092 failed, retrying: h:9092: wrong password"


@pytest.mark.parametrize("error", [NetworkError("connection refused"), SslAuthenticationFailed("unknown CA")])
def test_connection_without_a_verdict_on_the_login_is_a_warning(
    caplog: pytest.LogCaptureFixture, error: MinikafkaError
) -> None:
    Asking(Peer(ADDRESS, FailingConnector(error), "test"), ManualClock(0), 1_000).step()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_login_that_the_own_listener_refuses_is_an_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[str, object]] = []
    monkeypatch.setattr(
        inter_broker_connection, "report", lambda kind, message: reports.append((kind, message))
    )
    check_own_login(ADDRESS, FailingConnector(NetworkError("connection refused")))
    check_own_login(ADDRESS, FailingConnector(SslAuthenticationFailed("unknown CA")))
    assert reports == []
    check_own_login(ADDRESS, FailingConnector(REFUSED))
    problem = "cannot log in to its own inter-broker listener: h:9092: wrong password"
    assert reports == [("login_refused", problem)]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("ERROR", problem)]


def test_login_that_another_broker_refuses_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    check_protocol_compatibility([ADDRESS], FailingConnector(REFUSED))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("cannot log in to broker 2 at h:9092: ")


def test_login_refused_at_the_first_request_is_retried_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, made = ManualClock(0), RefusedLater()
    asking = Asking(Peer(ADDRESS, Accepting(made), "test"), clock, 1_000)
    assert asking.step()
    assert made.closed
    assert made.aborted
    assert not asking.step()
    assert caplog.messages == ["request to broker 2 at h:9092 failed, retrying: h:9092: wrong password"]
