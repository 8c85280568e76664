"""Settings of TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.security.ssl_config import ClientAuth, SslConfig
from tests.support.tls import broker_properties, client_properties

STORES = Path(__file__).parents[2] / "data" / "key_stores"


def read(location: str) -> bytes:
    return (STORES / location).read_bytes()


def faults(**properties: str) -> dict[str, str]:
    """Return the faults of settings by name; ``_`` stands for a dot."""
    with pytest.raises(ConfigErrors) as refused:
        SslConfig.from_properties(
            {f"ssl.{name.replace('_', '.')}": value for name, value in properties.items()}
        )
    return {fault.name: fault.allowed for fault in refused.value.faults}


def test_defaults_are_those_of_kafka() -> None:
    config = SslConfig()
    assert config.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert config.endpoint_identification_algorithm == "https"
    assert config.client_auth is ClientAuth.NONE
    assert config.principal_mapping_rules.text == "DEFAULT"
    assert config.key_material(read) is None
    assert config.trusted(read) is None


def test_all_faults_are_in_one_error() -> None:
    found = faults(
        keystore_type="PEM",
        keystore_location="a",
        keystore_password="b",
        enabled_protocols="TLSv1.1",
        cipher_suites="TLS_X",
        client_auth="maybe",
        principal_mapping_rules="RULE",
    )
    assert list(found) == [
        "ssl.keystore.password",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
    ]


PEM_KEY = {"keystore_type": "PEM", "keystore_key": "k", "keystore_certificate_chain": "c"}
CHAIN_ALONE = {"keystore_type": "PEM", "keystore_certificate_chain": "c"}
PEM_TRUST = {"truststore_type": "PEM", "truststore_certificates": "c"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"keystore_type": "PEM", "keystore_key": "k"}, {"keystore.certificate.chain": "must be given with"}),
        (CHAIN_ALONE, {"keystore.key": "must be given with ssl.keystore.certificate.chain"}),
        (
            PEM_KEY | {"keystore_location": "f"},
            {"keystore.location": "must not be given with ssl.keystore.key"},
        ),
        (PEM_KEY | {"keystore_type": "JKS"}, {"keystore.type": "must be PEM with ssl.keystore.key"}),
        (PEM_KEY | {"keystore_password": "p"}, {"keystore.password": "PEM has no password; that of its key"}),
        ({"keystore_password": "p"}, {"keystore.location": "must be given with ssl.keystore.password"}),
        (
            {"keystore_type": "PEM", "keystore_location": "f", "keystore_password": "p"},
            {"keystore.password": "PEM has no password"},
        ),
        (PEM_TRUST | {"truststore_location": "f"}, {"truststore.location": "must not be given with"}),
        (PEM_TRUST | {"truststore_type": "PKCS12"}, {"truststore.type": "must be PEM"}),
        (PEM_TRUST | {"truststore_password": "p"}, {"truststore.password": "PEM has no password"}),
        ({"truststore_password": "p"}, {"truststore.location": "must be given with ssl.truststore.password"}),
        ({"keystore_type": "BCFKS"}, {"keystore.type": "one of JKS, PKCS12, PEM"}),
        ({"keystore_location": ""}, {"keystore.location": "must not be empty"}),
        (
            {"endpoint_identification_algorithm": "ldaps"},
            {"endpoint.identification.algorithm": "https, or empty"},
        ),
        ({"protocol": "TLSv1"}, {"protocol": "TLSv1 is not secure any more"}),
        ({"enabled_protocols": "TLSv1.2,SSLv3"}, {"enabled.protocols": "SSLv3 is not secure any more"}),
        ({"enabled_protocols": ""}, {"enabled.protocols": "a list of TLSv1.2 and TLSv1.3"}),
        ({"enabled_protocols": "TLSv1.4"}, {"enabled.protocols": "a list of TLSv1.2 and TLSv1.3"}),
        (
            {"cipher_suites": "TLS_AES_128_GCM_SHA265"},
            {"cipher.suites": "did you mean TLS_AES_128_GCM_SHA256?"},
        ),
        ({"cipher_suites": "SSL_RSA_WITH_RC4_128_MD5"}, {"cipher.suites": "not one of the cipher suites"}),
        ({"client_auth": "want"}, {"client.auth": "one of none, requested, required"}),
    ],
)
def test_wrong_setting_is_refused_with_what_is_allowed(
    properties: dict[str, str], expected: dict[str, str]
) -> None:
    found = faults(**properties)
    assert list(found) == [f"ssl.{name}" for name in expected]
    for name, says in expected.items():
        assert says in found[f"ssl.{name}"]


def test_setting_of_java_alone_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    SslConfig.from_properties({"ssl.provider": "SunJSSE", "ssl.protocol": "TLS"})
    assert "ssl.provider" in caplog.text
    assert "has no effect" in caplog.text


def test_words_are_read_in_any_case() -> None:
    config = SslConfig.from_properties(
        {"ssl.enabled.protocols": "tlsv1.3", "ssl.client.auth": "REQUIRED", "ssl.keystore.type": "pem"}
    )
    assert config.enabled_protocols == ("TLSv1.3",)
    assert config.client_auth is ClientAuth.REQUIRED
    assert config.keystore_type == "PEM"


def test_keys_in_properties_may_be_in_one_line() -> None:
    properties = broker_properties("localhost")
    in_one_line = {name: " ".join(value.split("\n")) for name, value in properties.items()}
    config, same = SslConfig.from_properties(properties), SslConfig.from_properties(in_one_line)
    assert config.key_material(read) == same.key_material(read)
    assert config.trusted(read) == same.trusted(read)


def test_no_secret_is_shown() -> None:
    secrets = {"key.password": "s3cr3t", "keystore.password": "s3cr3t", "truststore.password": "s3cr3t"}
    config = SslConfig.from_properties(
        {"ssl.keystore.location": "chain.p12", "ssl.truststore.location": "trust.jks"}
        | {f"ssl.{name}": value for name, value in secrets.items()}
    )
    shown = repr(config)
    for load in (config.key_material, config.trusted):
        with pytest.raises(ConfigError) as refused:
            load(read)
        shown += repr(refused.value) + str(refused.value)
    inline = SslConfig.from_properties(client_properties("alice"))
    shown += repr(inline) + repr(inline.key_material(read))
    with pytest.raises(ConfigErrors) as rejected:
        SslConfig.from_properties(client_properties("alice", keystore_password="s3cr3t"))
    shown += repr(rejected.value) + str(rejected.value)
    assert "s3cr3t" not in shown
    assert "PRIVATE KEY" not in shown


def test_wrong_password_names_the_file_and_the_settings() -> None:
    config = SslConfig.from_properties(
        {"ssl.keystore.location": "chain.p12", "ssl.keystore.password": "wrong"}
    )
    with pytest.raises(ConfigError) as refused:
        config.key_material(read)
    assert refused.value.name == "ssl.keystore.location"
    assert "chain.p12" in str(refused.value)
    assert "check ssl.keystore.password and ssl.key.password" in str(refused.value)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_password_that_is_missing_is_named(store: str) -> None:
    config = SslConfig.from_properties({f"ssl.{store}.location": "chain.p12"})
    with pytest.raises(ConfigError, match=rf"PKCS12 store.*; set ssl\.{store}\.password$"):
        (config.key_material if store == "keystore" else config.trusted)(read)


def test_file_that_is_not_there_is_named() -> None:
    config = SslConfig(keystore_type="PEM", keystore_location="none.pem")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location='none\.pem': cannot be read: No such"):
        config.key_material(read)


def test_trust_stores_of_any_format_are_read() -> None:
    certificate = read("broker.der")
    for location in ("trust.jks", "named.jks"):
        config = SslConfig(truststore_location=location, truststore_password="changeit")  # type: ignore[arg-type]
        assert config.trusted(read) == (certificate,)
    assert SslConfig(truststore_type="PEM", truststore_location="broker.pem").trusted(read) == (certificate,)
