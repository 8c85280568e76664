"""``ClientSecurity``: the security settings that all clients share, and the connectors that they make."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import AuthenticationFailed, ConfigError, ConfigErrors, SslAuthenticationFailed
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.simple_consumer import SimpleConsumer
from minikafka.net.authentication import SecureConnector
from minikafka.net.connection import SocketConnector
from minikafka.net.interfaces import Endpoint
from minikafka.net.server import SocketServer
from minikafka.net.tls import ServerTls, shared_client_context
from tests.support.network import HOST, Answering
from tests.support.tls import authority, broker_tls, ca_text, client_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} required username="alice" password="wonder;land";',
}


def security(protocol: str, **others: str) -> ClientSecurity:
    return ClientSecurity.from_properties({"security.protocol": protocol, **others})


def test_nothing_set_is_plaintext() -> None:
    found = ClientSecurity.from_properties({"group.id": "g", "ssl.key.password": None})
    assert found == ClientSecurity()
    assert found.protocol is SecurityProtocol.PLAINTEXT
    assert isinstance(found.connector(client_id="c"), SocketConnector)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_ssl"])
def test_protocol_with_sasl_makes_connections_that_log_in(protocol: str) -> None:
    found = security(protocol, **LOGIN)
    assert found.protocol.name == protocol.upper()
    assert (found.ssl is not None) is (protocol == "sasl_ssl")
    assert isinstance(found.connector(client_id="c"), SecureConnector)


def test_settings_are_equal_and_can_be_sent_but_not_shown() -> None:
    found = security("SASL_SSL", **LOGIN, **client_properties())
    assert found == security("SASL_SSL", **LOGIN, **client_properties())
    assert pickle.loads(pickle.dumps(found)) == found
    assert "wonder" not in repr(found)
    assert "PRIVATE" not in repr(security("SSL", **client_properties("alice")))


def test_settings_that_the_protocol_does_not_use_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    security("SSL", **LOGIN, **{"ssl.trustore.location": "x", "acks": "all"})
    assert caplog.messages == [
        "property ssl.trustore.location is not valid; did you mean ssl.truststore.location?",
        "property sasl.mechanism has no effect with security.protocol=SSL",
        "property sasl.jaas.config has no effect with security.protocol=SSL",
    ]


def test_all_faults_are_in_one_error_without_secrets() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": LOGIN["sasl.jaas.config"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/keys.pem",
        "ssl.keystore.password": "tiger",
        "ssl.enabled.protocols": "SSLv3",
    }
    with pytest.raises(ConfigErrors) as refused:
        ClientSecurity.from_properties(given)
    names = [fault.name for fault in refused.value.faults]
    assert names == ["sasl.jaas.config", "ssl.keystore.password", "ssl.enabled.protocols"]
    assert "tiger" not in str(refused.value)
    assert "wonder" not in str(refused.value)


def test_login_without_its_secret_is_refused_with_the_form() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: must be given for sasl\.mechanism=PLAIN"):
        security("SASL_SSL", **{"sasl.mechanism": "PLAIN"})


def test_store_that_cannot_be_read_is_a_fault_of_the_host_that_connects(tmp_path: Path) -> None:
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    found = security("SSL", **given)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location.*cannot be read: No such file"):
        found.connector(client_id="c")
    (tmp_path / "ca.pem").write_text(ca_text(authority()))
    found.connector(client_id="c")


def test_clients_of_one_process_share_a_context_until_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(ca_text(authority()))
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(file)}
    config, same = security("SSL", **given).ssl, security("SSL", **given).ssl
    assert config is not None
    assert same is not None
    first = shared_client_context(config)
    assert shared_client_context(same) is first
    file.write_text(ca_text(authority("other")) + "\n")
    assert shared_client_context(config) is not first


# --- clients that are given a cluster


def test_settings_of_another_security_than_the_cluster_are_refused() -> None:
    properties = {"group.id": "g", "security.protocol": "SSL", **client_properties()}
    with ClusterClient("h:1") as cluster:
        with pytest.raises(ConfigError, match=r"security\.protocol.*ClusterClient, which has PLAINTEXT"):
            GroupConsumer(cluster, properties)
        with pytest.raises(ConfigError, match="ClusterClient, which has PLAINTEXT"):
            BatchingProducer(cluster, BatchingConfig.from_properties({"security.protocol": "SSL"}))


def test_settings_of_the_same_security_as_the_cluster_are_accepted() -> None:
    properties = {"group.id": "g", "security.protocol": "SSL", **client_properties()}
    with ClusterClient("h:1", security=ClientSecurity.from_properties(properties)) as cluster:
        GroupConsumer(cluster, properties, threads=False).close()
        GroupConsumer(cluster, GroupConsumerConfig(group_id="g"), threads=False).close()


def test_classic_protocol_has_no_security() -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol.*must be PLAINTEXT with classic=True"):
        SimpleConsumer("h", 1, classic=True, security=security("SSL"))


def test_refusal_of_tls_is_no_code_of_a_broker() -> None:
    error = SslAuthenticationFailed("h:1: no")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "h:1: no"
    assert not error.is_retriable


def test_renewed_trust_store_holds_for_the_next_connection_of_a_client(tmp_path: Path) -> None:
    store = tmp_path / "ca.pem"
    store.write_text(ca_text(authority("another")), encoding="utf-8")
    config = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(store)}
    server = SocketServer([Endpoint("SSL", HOST, 0, tls=ServerTls(broker_tls()))], Answering(), processors=1)
    server.start()
    try:
        connector = security("SSL", **config).connector(client_id="c")
        with pytest.raises(AuthenticationFailed):
            connector.connect(HOST, server.port)
        store.write_text(ca_text(authority()), encoding="utf-8")
        os.utime(store, ns=(1, 1))  # the clock of a file system may be too coarse for two writes of one test
        connector.connect(HOST, server.port).close()
    finally:
        server.stop(drain_ms=0)
