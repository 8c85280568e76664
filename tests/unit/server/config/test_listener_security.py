"""The settings of TLS and SASL of each listener: which one holds, and what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.security.ssl_config import ClientAuth
from minikafka.server.__main__ import tls_of
from minikafka.server.config.listener_security import ListenerSecurity
from minikafka.server.config.properties import BrokerConfig

MODULES = "org.apache.kafka.common.security"
USERS = f'{MODULES}.plain.PlainLoginModule required user_alice="wonder;land";'
UNSECURED = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SASL = {"listeners": "SASL_SSL://:1,PLAINTEXT://:2"}
PREFIX = "listener.name.sasl_ssl."


def config(given: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({"zookeeper.connect": "z:1", **given})


def security(given: dict[str, str], listener: str = "SASL_SSL") -> ListenerSecurity:
    return config(given).security[listener]


def faults(given: dict[str, str]) -> dict[str, str]:
    with pytest.raises(ConfigErrors) as refused:
        config(given)
    assert "wonder" not in str(refused.value)
    return {fault.name: str(fault) for fault in refused.value.faults}


def mechanisms(given: dict[str, str]) -> list[str]:
    sasl = security(given).sasl
    assert sasl is not None
    return [mechanism.name for mechanism in sasl.mechanisms]


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("PLAINTEXT", False, False)],
)
def test_protocol_says_what_a_listener_has(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    given = {
        "listeners": "A://:1",
        "listener.security.protocol.map": f"A:{protocol}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    found = security(given, "A")
    assert (found.ssl is not None, found.sasl is not None) == (has_tls, has_sasl)


def test_setting_with_the_prefix_of_a_listener_takes_precedence() -> None:
    given = {
        "listeners": "SSL://:1,Inner.A://:2",
        "listener.security.protocol.map": "INNER.A:SSL",
        "ssl.client.auth": "requested",
        "listener.name.inner.a.ssl.client.auth": "required",
    }
    found = {name: part.ssl for name, part in config(given).security.items()}
    assert found["SSL"] is not None
    assert found["INNER.A"] is not None
    assert found["SSL"].client_auth is ClientAuth.REQUESTED
    assert found["INNER.A"].client_auth is ClientAuth.REQUIRED
    assert config(given).unknown == ()


def test_mechanism_has_settings_of_its_own() -> None:
    given = {
        **SASL,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "plain.sasl.jaas.config": USERS.replace("alice", "of_all_listeners"),
        f"{PREFIX}plain.sasl.jaas.config": USERS,
        "connections.max.reauth.ms": "1",
        f"{PREFIX}connections.max.reauth.ms": "2",
        f"{PREFIX}plain.connections.max.reauth.ms": "3",
    }
    sasl = security(given).sasl
    assert sasl is not None
    plain, scram = sasl.mechanisms
    assert plain.jaas is not None
    assert set(plain.jaas.users) == {"alice"}
    assert (plain.max_reauth_ms, scram.max_reauth_ms) == (3, 2)
    assert "wonder" not in repr(config(given))


def test_jaas_configuration_without_a_mechanism_counts_where_it_fits() -> None:
    given = {**SASL, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "sasl.jaas.config": USERS}
    assert mechanisms(given) == ["PLAIN", "SCRAM-SHA-256"]


def test_listener_with_sasl_needs_a_mechanism_that_is_served() -> None:
    found = faults(SASL)
    assert found["sasl.enabled.mechanisms"].endswith(
        "GSSAPI is not supported: set listener.name.sasl_ssl.sasl.enabled.mechanisms to some of PLAIN, "
        "OAUTHBEARER, SCRAM-SHA-256, SCRAM-SHA-512"
    )
    own = f"{PREFIX}sasl.enabled.mechanisms"
    assert "FOO is not supported" in faults({**SASL, own: "SCRAM-SHA-256,FOO"})[own]
    assert "needs a mechanism" in faults({**SASL, own: ""})[own]


def test_plain_needs_users() -> None:
    found = faults({**SASL, "sasl.enabled.mechanisms": "PLAIN"})
    text = found[f"{PREFIX}plain.sasl.jaas.config"]
    assert "an option user_NAME" in text
    assert "java.security.auth.login.config is not read" in text


@pytest.mark.parametrize(
    "text", [USERS.replace("PlainLogin", "ScramLogin"), USERS[:-1], "wonder"], ids=["module", "end", "word"]
)
def test_wrong_jaas_configuration_is_not_shown(text: str) -> None:
    own = f"{PREFIX}plain.sasl.jaas.config"
    assert list(faults({**SASL, "sasl.enabled.mechanisms": "PLAIN", own: text})) == [own]


def test_tokens_without_a_signature_need_a_switch() -> None:
    given = {**SASL, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    switch = f"{PREFIX}oauthbearer.sasl.server.callback.handler.class"
    assert "OAuthBearerUnsecuredValidatorCallbackHandler" in faults(given)[switch]
    assert switch in faults({**given, switch: "com.example.Mine"})
    assert mechanisms({**given, switch: UNSECURED}) == ["OAUTHBEARER"]


def test_signed_tokens_need_the_keys_of_a_provider() -> None:
    given = {
        **SASL,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": (
            f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    name = "sasl.oauthbearer.jwks.endpoint.url"
    assert "must be given" in faults(given)[f"{PREFIX}oauthbearer.{name}"]
    assert name in faults({**given, name: "http://example.com/keys"}), "without TLS"
    sasl = security({**given, name: "https://example.com/keys"}).sasl
    assert sasl is not None
    assert sasl.mechanisms[0].signed_tokens is not None


def test_handler_of_another_class_is_refused() -> None:
    own = f"{PREFIX}scram-sha-256.sasl.server.callback.handler.class"
    given = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    assert "other classes are not supported" in faults({**given, own: "com.example.Mine"})[own]
    assert mechanisms({**given, own: f"{MODULES}.scram.internals.ScramServerCallbackHandler"})


@pytest.mark.parametrize(
    "name", ["ssl.keystore.location", "sasl.enabled.mechanisms", "plain.sasl.jaas.config"]
)
def test_classic_listener_refuses_settings_of_tls_and_sasl(name: str) -> None:
    own = f"listener.name.old.{name}"
    given = {"listeners": "PLAINTEXT://:1,OLD://:2", "listener.security.protocol.map": "OLD:CLASSIC"}
    assert "is CLASSIC, which has neither TLS nor SASL" in faults({**given, own: "x"})[own]


def test_setting_of_a_listener_without_use_for_it_is_warned_of() -> None:
    given = {
        **SASL,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.plaintext.ssl.client.auth": "none",
        "listener.name.nobody.ssl.client.auth": "none",
        f"{PREFIX}ssl.clinet.auth": "none",
    }
    assert set(config(given).unknown) == set(list(given)[2:])


def test_listener_with_tls_without_a_key_is_refused_by_its_own_setting() -> None:
    given = {"listeners": "SSL://:1,B://:2", "listener.security.protocol.map": "B:SSL"}
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: must be given"):
        tls_of(config(given))
    own = "listener.name.b.ssl.keystore.location"
    with pytest.raises(ConfigError, match=rf"{own}='/nowhere': cannot be read"):
        tls_of(config({**given, own: "/nowhere"}))


def test_delay_of_failures_ends_before_an_idle_connection() -> None:
    name = "connection.failed.authentication.delay.ms"
    given = {name: "5000", "connections.max.idle.ms": "5000"}
    assert "must be below connections.max.idle.ms, which is 5000" in faults(given)[name]


GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "listeners.md"


@pytest.mark.parametrize(
    "text", re.findall(r"```(?:properties)?\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
)
def test_properties_of_the_guide_are_valid(text: str) -> None:
    given = dict(line.split("=", 1) for line in text.splitlines())
    assert config(given).unknown == ()
