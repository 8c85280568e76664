"""The security of connections between brokers, from a broker's properties."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
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


def test_tokens_of_a_provider_between_brokers_are_refused_with_what_to_use() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    jaas = f'{package}.OAuthBearerLoginModule required clientId="broker" clientSecret="tiger";'
    unsecured = f"{package}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    own = {
        MECHANISM: "OAUTHBEARER",
        "listener.name.in.oauthbearer.sasl.jaas.config": jaas,
        "listener.name.in.oauthbearer.sasl.server.callback.handler.class": unsecured,
    }
    with pytest.raises(ConfigError, match="use SCRAM-SHA-512 or PLAIN between them") as refused:
        sasl("OAUTHBEARER", **own)
    assert refused.value.name == MECHANISM


def test_settings_of_the_guide_are_valid() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "listeners.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:properties)?\n(listeners=.*?)```", guide, re.DOTALL)
    made = []
    for block in blocks:
        given = dict(line.split("=", 1) for line in block.splitlines())
        config = BrokerConfig.from_properties({"zookeeper.connect": "h:1", **given})
        made.append((config.inter_broker.listener, config.inter_broker.sasl is not None, config.unused()))
    assert made == [("INTERNAL", False, ""), ("SASL_SSL", False, ""), ("SASL_SSL", True, "")]
