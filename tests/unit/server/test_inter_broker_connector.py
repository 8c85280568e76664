"""A broker's connections to other brokers: with its certificate, and with its credentials or advice."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import AuthenticationFailed
from minikafka.base.secrets import Password
from minikafka.net.interfaces import Connection, Endpoint
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls
from minikafka.security.sasl.sasl_config import SaslConfig
from minikafka.security.ssl_config import SslConfig
from minikafka.server.config.inter_broker_security import InterBrokerSecurity
from minikafka.server.inter_broker_connector import InterBrokerConnector
from tests.support.network import HOST, Answering
from tests.support.secured_kafka import jaas
from tests.support.tls import authority, broker_tls, ca_text


@pytest.fixture
def server() -> Iterator[SocketServer]:
    """A server with a certificate of the CA of the tests."""
    endpoint = Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls()))
    server = SocketServer([endpoint], Answering(), processors=1)
    server.start()
    yield server
    server.stop(drain_ms=0)


def connector(security: InterBrokerSecurity) -> InterBrokerConnector:
    return InterBrokerConnector(security, connect_timeout_ms=10_000, request_timeout_ms=10_000)


class Trust:
    """A trust store in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = 0
        self.write(ca_text(authority("another")))
        config = SslConfig.from_properties(
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
        )
        self.security = InterBrokerSecurity("SSL", SecurityProtocol.SSL, config)

    def write(self, text: str) -> None:
        self._path.write_text(text, encoding="utf-8")
        # The clock of a file system may be too coarse for two writes of one test.
        self._written += 1
        os.utime(self._path, ns=(self._written, self._written))


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    """Trust in another CA than that of the server."""
    return Trust(tmp_path / "ca.pem")


def connects(made: InterBrokerConnector, server: SocketServer) -> bool:
    try:
        with contextlib.closing(made.connect(HOST, server.port)) as connection:
            return bytes(connection.request([b"hello"]).result()) != b""
    except AuthenticationFailed:
        return False


def test_trust_store_that_is_written_anew_holds_at_once(server: SocketServer, trust: Trust) -> None:
    made = connector(trust.security)
    assert not connects(made, server)
    trust.write(ca_text(authority()))
    assert connects(made, server)


def test_trust_store_that_cannot_be_read_changes_nothing(
    server: SocketServer, trust: Trust, caplog: pytest.LogCaptureFixture
) -> None:
    trust.write(ca_text(authority()))
    made = connector(trust.security)
    trust.write("nonsense")
    with caplog.at_level(logging.WARNING, logger="minikafka.net.tls"):
        assert connects(made, server)
        assert connects(made, server)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "minikafka.net.tls"]
    assert "connections to other brokers keep their certificate: ssl.truststore" in warning


def test_broker_without_credentials_gets_advice_in_place_of_a_connection() -> None:
    advice = "set sasl.mechanism.inter.broker.protocol"
    made = connector(InterBrokerSecurity("IN", SecurityProtocol.SASL_PLAINTEXT, advice=advice))
    with pytest.raises(AuthenticationFailed) as refused:
        made.connect(HOST, 1)
    assert refused.value.reason == f"no credentials for listener IN of other brokers: {advice}"


def test_refused_login_names_the_brokers_own_property(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Connection:
        raise AuthenticationFailed("PLAIN: the broker refuses the login", "refused")

    login = SaslConfig(mechanism="PLAIN", jaas_config=Password(jaas("PLAIN", 'username="a" password="b"')))
    own = "listener.name.in.plain.sasl.jaas.config"
    protocol = SecurityProtocol.SASL_PLAINTEXT
    made = connector(InterBrokerSecurity("IN", protocol, sasl=login, login_property=own))
    monkeypatch.setattr(made._connector, "connect", refuse)
    with pytest.raises(AuthenticationFailed) as refused:
        made.connect(HOST, 1)
    assert refused.value.reason == f"PLAIN: the broker refuses the login (of this broker: {own})"
