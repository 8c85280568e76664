"""The security of a client of ZooKeeper, from its settings."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.registry.zookeeper_security import AclPolicy
from minikafka.security.zookeeper_config import ZooKeeperClientConfig
from tests.support.tls import authority, ca_text


def test_settings_become_credentials_a_policy_and_a_context() -> None:
    config = ZooKeeperClientConfig.among(
        {
            "zookeeper.digest.credentials": "broker:tiger",
            "zookeeper.set.acl": "private",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/ca.pem",
            "zookeeper.ssl.truststore.type": "PEM",
        }
    )
    security = zookeeper_security(config, {"/ca.pem": ca_text(authority()).encode()}.__getitem__)
    assert security.auth_data == [("digest", "broker:tiger")]
    assert security.acl is AclPolicy.PRIVATE
    assert security.tls is not None
    assert zookeeper_security(ZooKeeperClientConfig()).tls is None


def test_a_store_that_cannot_be_read_is_named_with_its_property() -> None:
    def read(location: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory")

    properties = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/ca.pem",
        "zookeeper.ssl.truststore.type": "PEM",
    }
    with pytest.raises(ConfigErrors, match=r"zookeeper\.ssl\.truststore\.location='/ca\.pem'.*No such file"):
        zookeeper_security(ZooKeeperClientConfig.among(properties), read)
