"""Connections that log in before their first request, with a broker in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from minikafka.base.errors import (
    AuthenticationFailed,
    ErrorCode,
    IdentityProviderUnreachable,
    NetworkError,
    PeerClosed,
)
from minikafka.base.secrets import Password
from minikafka.net.authentication import SecureConnector
from minikafka.net.interfaces import Connection, Exchange
from minikafka.net.memory import Fault, MemoryNetwork
from minikafka.security.sasl.login import ClientLogin
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.plain import PlainSaslClient
from minikafka.security.sasl.scram import ScramSaslClient
from minikafka.wire.framing import RequestHeader
from tests.support.sasl_broker import HOST, NEW, OLD, PASSWORD, PORT, SCRAM, TABLES, SaslBroker


@dataclass
class Alice:
    """The credentials of a client."""

    mechanism: str = SCRAM.value
    password: Password = PASSWORD
    hosts: list[str] = field(default_factory=list)

    def create_client(self, host: str, limit_ms: int) -> SaslClient:
        self.hosts.append(host)
        if self.mechanism == "PLAIN":
            return PlainSaslClient("alice", self.password)
        return ScramSaslClient(SCRAM, "alice", self.password, "client")


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


def connector(network: MemoryNetwork, alice: Alice | None = None, **others: object) -> SecureConnector:
    options = {"is_encrypted": False, "client_id": "c-1", "clock": network.clock, **others}
    alice = alice or Alice()
    login = ClientLogin(alice.mechanism, alice.create_client)
    return SecureConnector(network, login, **options)  # type: ignore[arg-type]


def echo(connection: Connection) -> bytes:
    return bytes(connection.request([b"hello"]).result())


def failure_of(call: Callable[[], object]) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as raised:
        call()
    assert "pencil" not in repr(raised.value)
    assert "lion-king" not in repr(raised.value)
    return raised.value


@TABLES
@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM.value])
def test_connection_is_authenticated_before_its_first_request(
    network: MemoryNetwork, table: dict[int, tuple[int, int]], mechanism: str
) -> None:
    broker, login = SaslBroker(network, table), Alice(mechanism)
    connection = connector(network, login).connect(HOST, PORT)
    assert echo(connection) == b"hello"
    assert login.hosts == [HOST]
    requests = [(header.api_key, header.api_version) for header in broker.seen]
    assert requests[:2] == [(18, 0), (17, table[17][1])]
    assert bool(requests[2:]) == (36 in table)
    assert all(request == (36, table[36][1]) for request in requests[2:])
    assert {header.client_id for header in broker.seen} == {"c-1"}


def test_wrong_password_is_an_error_with_the_address_and_the_setting(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)
    login = Alice("PLAIN", Password("lion-king"))
    error = failure_of(lambda: connector(network, login).connect(HOST, PORT))
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not error.is_retriable
    assert str(error).startswith(
        "SASL_AUTHENTICATION_FAILED: broker:9092: PLAIN: the broker refuses the login"
    )
    assert "sasl.jaas.config" in str(error)


def test_old_broker_that_closes_twice_has_refused_the_login(network: MemoryNetwork) -> None:
    broker = SaslBroker(network, OLD)
    login = Alice("PLAIN", Password("lion-king"))
    error = failure_of(lambda: connector(network, login).connect(HOST, PORT))
    assert "during the login" in str(error)
    assert "sasl.jaas.config" in str(error)
    assert len(login.hosts) == 2
    assert broker.logins == 0


def test_old_broker_that_stops_during_the_login_has_refused_nothing(network: MemoryNetwork) -> None:
    SaslBroker(network, OLD)

    class Stopping(Alice):
        def create_client(self, host: str, limit_ms: int) -> SaslClient:
            network.inject(HOST, PORT, Fault.CUT_REQUEST)
            network.inject(HOST, PORT, Fault.REFUSE)
            return super().create_client(host, limit_ms)

    with pytest.raises(NetworkError, match="Connection refused"):
        connector(network, Stopping("PLAIN")).connect(HOST, PORT)


def test_new_broker_that_closes_during_the_login_has_refused_nothing(network: MemoryNetwork) -> None:
    broker = SaslBroker(network, NEW)
    login = Alice()

    def cut(exchange: Exchange, frame: memoryview) -> None:
        if RequestHeader.decode(frame)[0].api_key == 36:
            exchange.close("too many connections")
        else:
            SaslBroker.on_request(broker, exchange, frame)

    broker.on_request = cut  # type: ignore[method-assign]
    with pytest.raises(PeerClosed, match="during the login, without a verdict; see the broker's log"):
        connector(network, login).connect(HOST, PORT)
    assert len(login.hosts) == 1  # the next attempt is for later


def test_mechanism_that_is_not_enabled_names_those_that_are(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)
    error = failure_of(lambda: connector(network, Alice("GSSAPI")).connect(HOST, PORT))
    assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "PLAIN, SCRAM-SHA-256" in str(error)
    assert "sasl.mechanism" in str(error)


@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.CUT_RESPONSE])
def test_connection_that_breaks_before_the_login_may_be_retried(network: MemoryNetwork, fault: Fault) -> None:
    SaslBroker(network, NEW)
    network.inject(HOST, PORT, fault)
    with pytest.raises(NetworkError, match=r"security\.protocol=SASL_SSL") as raised:
        connector(network, is_encrypted=True).connect(HOST, PORT)
    assert raised.value.peer == "broker:9092"
    assert echo(connector(network).connect(HOST, PORT)) == b"hello"


def test_silent_broker_ends_the_login_with_the_time_out(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)
    network.inject(HOST, PORT, Fault.DROP_RESPONSE)
    began_ms = network.clock.monotonic_ms()
    with pytest.raises(NetworkError, match="not complete within 700 ms"):
        connector(network, connect_timeout_ms=700).connect(HOST, PORT)
    assert network.clock.monotonic_ms() - began_ms == 700


def test_failed_login_leaves_no_connection(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)
    failure_of(lambda: connector(network, Alice(password=Password("lion-king"))).connect(HOST, PORT))
    network.run()
    assert not network._connections


def test_error_of_a_login_that_makes_no_client_is_passed_on(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)

    class WithoutToken(Alice):
        def create_client(self, host: str, limit_ms: int) -> SaslClient:
            assert limit_ms == 10_000  # the time-out of the connection
            raise NetworkError("no token", "https://idp", "check the address")

    with pytest.raises(IdentityProviderUnreachable) as failed:
        connector(network, WithoutToken()).connect(HOST, PORT)
    assert str(failed.value) == f"{HOST}:{PORT}: https://idp: no token; check the address"
    network.run()
    assert not network._connections


@pytest.mark.parametrize("part", [0.85, 0.95])
def test_session_that_ends_soon_counts_as_closed(network: MemoryNetwork, part: float) -> None:
    SaslBroker(network, NEW, lifetime_ms=10_000)
    connection = connector(network, uniform=lambda low, high: part).connect(HOST, PORT)
    assert connection.session_end_ms == network.clock.monotonic_ms() + int(10_000 * part)
    pending = connection.request([b"slow"])
    network.clock.advance(int(10_000 * part))
    assert not connection.closed, "a response is in flight"
    assert bytes(pending.result()) == b"slow"
    assert connection.closed


def test_session_without_end_has_none(network: MemoryNetwork) -> None:
    SaslBroker(network, NEW)
    assert connector(network).connect(HOST, PORT).session_end_ms is None
