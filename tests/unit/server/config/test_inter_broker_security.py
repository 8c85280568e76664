"""The security of connections between brokers, from a broker's properties."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.security.sasl.sasl_config import LoginKind
from minikafka.server.config.inter_broker_security import InterBrokerSecurity
from minikafka.server.config.properties import BrokerConfig

MECHANISM = "sasl.mechanism.inter.broker.protocol"
SCRAM = "listener.name.in.scram-sha-512.sasl.jaas.config"
PLAIN = "listener.name.in.plain.sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = f'{PLAIN_MODULE} user_broker="tiger";'
OWN_PLAIN = f'{PLAIN_MODULE} username="broker" password="tiger" user_broker="tiger";'
OWN_SCRAM = f'{SCRAM_MODULE} username="broker" password="tiger";'


def of(protocol: str, **properties: str) -> InterBrokerSecurity:
    given = {
        "zookeeper.connect": "h:1",
        "listeners": "IN://:9092,OUT://:9093",
        "listener.security.protocol.map": f"IN:{protocol},OUT:PLAINTEXT",
        "inter.broker.listener.name": "IN",
        **properties,
    }
    return BrokerConfig.from_properties(given).inter_broker


def sasl(mechanisms: str, **properties: str) -> InterBrokerSecurity:
    return of("SASL_PLAINTEXT", **{"sasl.enabled.mechanisms": mechanisms, **properties})


def test_plaintext_needs_nothing() -> None:
    assert of("PLAINTEXT") == InterBrokerSecurity("IN")


def test_tls_has_the_settings_of_the_inter_broker_listener() -> None:
    found = of(
        "SSL",
        **{
            "ssl.keystore.location": "/all.p12",
            "listener.name.in.ssl.keystore.location": "/in.p12",
            "listener.name.out.ssl.keystore.location": "/out.p12",
        },
    )
    assert found.protocol is SecurityProtocol.SSL
    assert found.ssl is not None
    assert found.ssl.keystore_location == "/in.p12"


@pytest.mark.parametrize(
    ("mechanism", "jaas"), [("PLAIN", {PLAIN: OWN_PLAIN}), ("SCRAM-SHA-512", {SCRAM: OWN_SCRAM})]
)
def test_broker_logs_in_with_the_listeners_jaas(mechanism: str, jaas: dict[str, str]) -> None:
    found = sasl(mechanism, **{MECHANISM: mechanism, **jaas})
    assert found.sasl is not None
    assert found.sasl.mechanism == mechanism
    assert found.login_property == next(iter(jaas))
    assert found.sasl.jaas.required("username").value == "broker"
    assert "tiger" not in repr(found)


def test_first_mechanism_with_credentials_is_the_default() -> None:
    found = sasl("PLAIN,SCRAM-SHA-512", **{PLAIN: USERS, SCRAM: OWN_SCRAM})
    assert found.sasl is not None
    assert found.sasl.mechanism == "SCRAM-SHA-512"


def test_broker_without_credentials_starts_with_advice() -> None:
    found = sasl("PLAIN,SCRAM-SHA-512", **{PLAIN: USERS})
    assert found.sasl is None
    assert found.advice == f"set {MECHANISM}, and username and password in {PLAIN} or {SCRAM}"


@pytest.mark.parametrize(
    ("mechanism", "properties", "key", "complaint"),
    [
        ("GSSAPI", {}, MECHANISM, "must be included in sasl.enabled.mechanisms (PLAIN)"),
        ("PLAIN", {}, PLAIN, "requires the option 'password'"),
        ("PLAIN", {PLAIN: f'{USERS[:-1]} password="tiger";'}, PLAIN, "requires the option 'username'"),
    ],
)
def test_invalid_mechanism_between_brokers_is_rejected(
    mechanism: str, properties: dict[str, str], key: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        sasl("PLAIN", **{PLAIN: USERS, MECHANISM: mechanism, **properties})
    assert refused.value.name == key
    assert complaint in str(refused.value)
    assert "tiger" not in str(refused.value)


OAUTH = "org.apache.kafka.common.security.oauthbearer"
OWN = "listener.name.in.oauthbearer."
MODULE = f"{OAUTH}.OAuthBearerLoginModule required"
TOKENS = {
    f"{OWN}sasl.jaas.config": f'{MODULE} clientId="broker" clientSecret="tiger" scope="kafka";',
    f"{OWN}sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{OWN}sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.jwks.endpoint.url": "https://example.com/keys",
    f"{OWN}sasl.oauthbearer.token.endpoint.url": "https://example.com/token",
    f"{OWN}sasl.login.read.timeout.ms": "5000",
}


@pytest.mark.parametrize("chosen", [{MECHANISM: "OAUTHBEARER"}, {}])
def test_broker_logs_in_with_tokens_of_a_provider(chosen: dict[str, str]) -> None:
    found = sasl("OAUTHBEARER", **TOKENS, **chosen).sasl
    assert found is not None
    assert (found.mechanism, found.kind) == ("OAUTHBEARER", LoginKind.OIDC_TOKEN)
    assert found.token_endpoint_url == "https://example.com/token"
    assert (found.read_timeout_ms, found.connect_timeout_ms) == (5_000, None)
    assert "tiger" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (f"{OWN}sasl.oauthbearer.token.endpoint.url", None, "must be given: the identity provider's address"),
        (f"{OWN}sasl.oauthbearer.token.endpoint.url", "http://example.com/token", "allowHttp"),
        (f"{OWN}sasl.login.callback.handler.class", "com.example.Login", "that minikafka does not have"),
        (f"{OWN}sasl.login.read.timeout.ms", "soon", "must be a whole number from 1"),
        (
            f"{OWN}sasl.jaas.config",
            f'{OAUTH}.OAuthBearerLoginModule required clientId="b";',
            "'clientSecret'",
        ),
    ],
)
def test_incomplete_login_with_tokens_is_named(name: str, value: str | None, complaint: str) -> None:
    given = {key: text for key, text in {**TOKENS, name: value}.items() if text is not None}
    with pytest.raises(ConfigError) as refused:
        sasl("OAUTHBEARER", **given, **{MECHANISM: "OAUTHBEARER"})
    assert refused.value.name == name
    assert complaint in str(refused.value)


def test_wrong_setting_of_the_login_is_a_fault_without_the_mechanism() -> None:
    with pytest.raises(ConfigError) as refused:
        sasl("SCRAM-SHA-512", **{SCRAM: OWN_SCRAM, "sasl.login.retry.backoff.ms": "soon"})
    assert refused.value.name == "sasl.login.retry.backoff.ms"


def test_settings_of_the_guide_are_valid() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "listeners.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:properties)?\n(listeners=.*?)```", guide, re.DOTALL)
    made = []
    for block in blocks:
        given = dict(line.split("=", 1) for line in block.splitlines())
        config = BrokerConfig.from_properties({"zookeeper.connect": "h:1", **given})
        made.append((config.inter_broker.listener, config.inter_broker.sasl is not None, config.unused()))
    assert made == [("INTERNAL", False, ""), ("SASL_SSL", False, ""), *[("SASL_SSL", True, "")] * 2]
