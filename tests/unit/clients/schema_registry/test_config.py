"""The settings of a schema registry's client."""

from __future__ import annotations

import pickle

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.clients.schema_registry.config import SchemaRegistryConfig, registry_config
from tests.support.tls import authority, inline_trust

URL = {"schema.registry.url": "http://registry:8081"}
USER = {
    **URL,
    "schema.registry.basic.auth.credentials.source": "USER_INFO",
    "schema.registry.basic.auth.user.info": "ada:tiger",
}
CHAIN = {
    "schema.registry.ssl.keystore.type": "PEM",
    "schema.registry.ssl.keystore.certificate.chain": "tiger",
}


def header(config: SchemaRegistryConfig) -> str | None:
    authorization = config.addresses[0].authorization
    return None if authorization is None else authorization.value


def faults_of(properties: dict[str, str], prefix: str = "") -> str:
    with pytest.raises(ConfigErrors) as refused:
        registry_config(properties, prefix)
    text = str(refused.value)
    assert "tiger" not in text
    assert "tiger" not in repr(refused.value.args) + repr(pickle.dumps(refused.value))
    return text


def test_several_addresses_are_of_one_registry() -> None:
    config = registry_config({"schema.registry.url": "http://a:8081, https://b/registry/ "})
    assert [address.url for address in config.addresses] == ["http://a:8081", "https://b/registry"]
    assert header(config) is None


def test_user_of_an_address_becomes_a_header() -> None:
    config = registry_config({"schema.registry.url": "http://ada:ti%2Fger@a:8081"})
    assert config.addresses[0].url == "http://a:8081"
    assert header(config) == "Basic YWRhOnRpL2dlcg=="


def test_user_info_becomes_a_header() -> None:
    assert header(registry_config(USER)) == "Basic YWRhOnRpZ2Vy"


def test_static_token_becomes_a_header() -> None:
    token = {"schema.registry.bearer.auth.credentials.source": "STATIC_TOKEN"}
    config = registry_config({**URL, **token, "schema.registry.bearer.auth.token": "tiger"})
    assert header(config) == "Bearer tiger"


def test_settings_show_no_secret() -> None:
    config = registry_config({**USER, "schema.registry.ssl.keystore.key": "tiger", **CHAIN})
    assert "tiger" not in repr(config)
    assert "YWRhOnRpZ2Vy" not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))


def test_settings_of_tls_are_those_of_all_clients() -> None:
    trust = {f"schema.registry.{name}": value for name, value in inline_trust(authority()).items()}
    assert {name for name, _ in registry_config({**URL, **trust}).ssl} == set(inline_trust(authority()))


def test_ipv6_address_is_kept() -> None:
    assert registry_config({"schema.registry.url": "http://[::1]:80"}).addresses[0].url == "http://[::1]:80"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"schema.registry.max.retries": "1"}, "schema.registry.url: must be given"),
        ({"schema.registry.url": "registry:8081"}, "must begin with http:// or https://"),
        ({"schema.registry.url": "//ada:tiger@a"}, "must begin with http:// or https://"),
        ({"schema.registry.url": "http://a:port"}, "is not a URL"),
        ({"schema.registry.url": "http://ada:tiger@a?x=1"}, "must not have a query"),
        ({**USER, "schema.registry.url": "http://ada:tiger@a"}, "has a user, and so has"),
        (
            {**URL, "schema.registry.basic.auth.user.info": "tiger:x"},
            "only if schema.registry.basic.auth.credentials.source is USER_INFO",
        ),
        ({**USER, "schema.registry.basic.auth.user.info": "tiger"}, "must be USER:PASSWORD"),
        ({**URL, "schema.registry.basic.auth.credentials.source": "SASL_INHERIT"}, "is not supported"),
        ({**URL, "schema.registry.bearer.auth.token": "tiger"}, "STATIC_TOKEN"),
        (
            {**URL, "schema.registry.ssl.keystore.typ": "PEM"},
            "did you mean schema.registry.ssl.keystore.type",
        ),
        ({**URL, "schema.registry.ssl.truststore.type": "other"}, "one of JKS, PKCS12, PEM"),
        ({**URL, "schema.registry.max.retry": "1"}, "schema.registry.max.retries"),
        ({**URL, "schema.registry.http.read.timeout.ms": "0"}, "a whole number from 1"),
    ],
)
def test_fault_is_named(properties: dict[str, str], expected: str) -> None:
    assert expected in faults_of(properties)


def test_other_settings_in_a_fault_have_the_prefix_too() -> None:
    assert "did you mean minikafka.schema.registry.url?" in faults_of(
        {"schema.registry.ulr": "http://a"}, "minikafka."
    )
    basic = {**URL, "schema.registry.basic.auth.credentials.source": "USER_INFO"}
    assert "as minikafka.schema.registry.basic.auth.credentials.source is" in faults_of(basic, "minikafka.")


def test_faults_are_named_together_with_the_prefix() -> None:
    text = faults_of({**URL, "schema.registry.max.retries": "x", "schema.registry.ssl.x": "y"}, "minikafka.")
    assert "minikafka.schema.registry.max.retries='x'" in text
    assert "minikafka.schema.registry.ssl.x" in text
