"""Our SASL servers with the clients of kafka-python, which are theirs alone: no line is shared."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from minikafka.base.errors import AuthenticationFailed
from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslServer
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism, ScramSaslServer, UnknownUsers
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin, UnsecuredValidator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its files in a deprecated way
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
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


class TokenProvider(AbstractTokenProvider):
    """Gives one token, with an extension."""

    def __init__(self, token: Password) -> None:
        self._token = token

    def token(self) -> str:
        return self._token.value

    def extensions(self) -> dict[str, str]:
        return {"traceId": "123"}


def oauth_client(made_ms: int) -> SaslMechanismOAuth:
    login = UnsecuredLogin("alice", {"sub": "alice"}, {}, 60)
    return SaslMechanismOAuth(sasl_oauth_token_provider=TokenProvider(login.token(made_ms).value))


def test_oauthbearer_client_is_authenticated() -> None:
    server = OAuthBearerSaslServer(lambda text: UnsecuredValidator().validate(text, 1_000))
    exchange(oauth_client(made_ms=0), server)
    assert server.authorization_id == "alice"
    assert server.extensions == {"traceId": "123"}


def test_oauthbearer_client_takes_the_refusal_of_its_token() -> None:
    server = OAuthBearerSaslServer(lambda text: UnsecuredValidator().validate(text, 60_000))
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        exchange(oauth_client(made_ms=0), server)
