"""The security of a client of ZooKeeper, from its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.net.tls import CurrentTls
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.registry.zookeeper_security import AclPolicy
from minikafka.security.zookeeper_config import ZooKeeperClientConfig
from tests.support.tls import authority, ca_text


def test_settings_become_credentials_a_policy_and_a_context(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text(ca_text(authority()))
    config = ZooKeeperClientConfig.among(
        {
            "zookeeper.digest.credentials": "broker:tiger",
            "zookeeper.set.acl": "private",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(trusted),
            "zookeeper.ssl.truststore.type": "PEM",
        }
    )
    security = zookeeper_security(config)
    assert security.auth_data == [("digest", "broker:tiger")]
    assert security.acl is AclPolicy.PRIVATE
    assert security.tls is not None
    assert zookeeper_security(ZooKeeperClientConfig()).tls is None


def test_a_store_that_cannot_be_read_is_named_with_its_property() -> None:
    properties = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/no/ca.pem",
        "zookeeper.ssl.truststore.type": "PEM",
    }
    with pytest.raises(
        ConfigErrors, match=r"zookeeper\.ssl\.truststore\.location='/no/ca\.pem'.*No such file"
    ):
        zookeeper_security(ZooKeeperClientConfig.among(properties))


def test_trust_store_that_is_written_anew_holds_for_the_next_connection(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    properties = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(trusted),
        "zookeeper.ssl.truststore.type": "PEM",
    }

    trusted.write_text(ca_text(authority()))
    tls = zookeeper_security(ZooKeeperClientConfig.among(properties)).tls
    assert isinstance(tls, CurrentTls)
    before = tls.context().get_ca_certs()
    trusted.write_text(ca_text(authority("another")) + "\n" * 100)
    assert tls.context().get_ca_certs() != before
