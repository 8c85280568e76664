"""Settings of TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.security.ssl_config import ClientAuth, SslConfig

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
        keystore_type="PEM", keystore_location="a", keystore_password="b", enabled_protocols="TLSv1.1"
    )
    assert set(found) == {"ssl.keystore.password", "ssl.enabled.protocols"}
    assert "not secure" in found["ssl.enabled.protocols"]


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
