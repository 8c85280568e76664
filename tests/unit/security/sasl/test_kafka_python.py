"""Our SASL servers with the clients of kafka-python, which are theirs alone: no line is shared."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslServer
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism, ScramSaslServer, UnknownUsers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its files in a deprecated way
    from kafka.net.sasl.plain import SaslMechanismPlain
    from kafka.net.sasl.scram import SaslMechanismScram

if TYPE_CHECKING:
    from kafka.net.sasl.abc import SaslMechanism

PASSWORD = Password("tiger")


def exchange(client: SaslMechanism, server: SaslServer) -> None:
    """Pass messages as kafka-python's connections do."""
    while not client.is_done():
        client.receive(server.evaluate_response(client.auth_bytes()))
    assert client.is_authenticated()


def test_plain_client_is_authenticated() -> None:
    server = PlainSaslServer({"alice": PASSWORD}.get)
    exchange(SaslMechanismPlain(sasl_plain_username="alice", sasl_plain_password="tiger"), server)
    assert server.authorization_id == "alice"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_client_is_authenticated(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.create(mechanism, PASSWORD, b"salt", 8192)
    server = ScramSaslServer(mechanism, {"alice": credential}.get, UnknownUsers(b"secret"), "nonce")
    exchange(
        SaslMechanismScram(
            sasl_plain_username="alice", sasl_plain_password="tiger", sasl_mechanism=mechanism.value
        ),
        server,
    )
    assert server.authorization_id == "alice"
