"""The security settings of a client of ZooKeeper, as a broker's properties have them."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.security.zookeeper_config import ZooKeeperClientConfig, keys

KEY_STORE = {"zookeeper.ssl.keystore.location": "/k.pem", "zookeeper.ssl.keystore.type": "PEM"}


def faults_of(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        ZooKeeperClientConfig.among(properties)
    return [f"{fault.name}: {fault.allowed}" for fault in refused.value.faults]


def test_without_settings_there_is_no_security() -> None:
    config = ZooKeeperClientConfig.among({"zookeeper.connect": "localhost:2181", "ssl.client.auth": "x"})
    assert (config.set_acl, config.credentials, config.ssl) == ("false", None, None)


def test_settings_of_tls_are_those_of_kafka_with_their_prefix() -> None:
    config = ZooKeeperClientConfig.among(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
            "zookeeper.ssl.truststore.location": "/t.jks",
            "zookeeper.ssl.truststore.password": "tiger",
            "zookeeper.ssl.protocol": "TLSv1.2",
            "zookeeper.ssl.enabled.protocols": "TLSv1.3",
            "zookeeper.set.acl": "true",
            "ssl.truststore.location": "/of/listeners.jks",
            **KEY_STORE,
        }
    )
    assert config.ssl is not None
    assert config.ssl.truststore_location == "/t.jks"
    assert config.ssl.keystore_location == "/k.pem"
    assert config.ssl.enabled_protocols == ("TLSv1.3",)
    assert config.ssl.endpoint_identification_algorithm == "https"


def test_settings_of_tls_have_no_effect_until_it_is_enabled() -> None:
    assert ZooKeeperClientConfig.among(KEY_STORE).ssl is None


@pytest.mark.parametrize("more", [{}, KEY_STORE, {"zookeeper.ssl.client.enable": "true"}])
def test_acls_need_a_client_that_zookeeper_knows(more: dict[str, str]) -> None:
    (fault,) = faults_of({"zookeeper.set.acl": "true", **more})
    assert fault.startswith("zookeeper.set.acl: needs a client that ZooKeeper knows")


@pytest.mark.parametrize("credentials", ["tiger", ":tiger", "broker:"])
def test_credentials_have_a_user_and_a_password(credentials: str) -> None:
    (fault,) = faults_of({"zookeeper.digest.credentials": credentials, "zookeeper.set.acl": "true"})
    assert fault == "zookeeper.digest.credentials: must be USER:PASSWORD"


def test_every_fault_has_its_name_and_no_secret() -> None:
    properties = {
        "zookeeper.set.acl": "maybe",
        "zookeeper.digest.credentials": "tiger",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.type": "BKS",
        "zookeeper.ssl.crl.enable": "true",
        "zookeeper.ssl.protocol": "SSLv3",
    }
    faults = faults_of(properties)
    assert [fault.partition(":")[0] for fault in faults] == [
        "zookeeper.set.acl",
        "zookeeper.digest.credentials",
        "zookeeper.ssl.truststore.type",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.protocol",
    ]
    assert "tiger" not in "".join(faults)


def test_all_settings_have_names_of_zookeeper_and_secrets_are_marked() -> None:
    names = {key.name for key in keys()}
    assert all(name.startswith("zookeeper.") for name in names)
    assert {"zookeeper.ssl.keystore.location", "zookeeper.ssl.cipher.suites"} <= names
    assert "zookeeper.ssl.client.auth" not in names
