"""A listener with TLS and SASL against that of Apache Kafka 3.9.1, with the same client and settings.

    KAFKA_JARS=DIR python benchmarks/secured_bench.py

DIR has the jars of Apache Kafka 3.9.1. Logins: one new connection after the other by our client, TLS 1.3 with
a certificate of ECDSA P-256, then SCRAM-SHA-512 or PLAIN; each figure is the median of 200. Messages:
librdkafka sends 500,000 of 100 B to four partitions (``acks=1``) and reads them, over SASL_SSL with PLAIN;
the best of three runs. The goals: a login takes at most 1.5 times as long, and messages are as fast.
"""

from __future__ import annotations

import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import trustme
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as ScramMechanismType
from cryptography.hazmat.primitives import serialization

from benchmarks.kafka_peer import apache_kafka
from minikafka.base.secrets import Password
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.zookeeper.users import NewPassword, add_user
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.net.authentication import SecureConnector
from minikafka.net.connection import SocketConnector
from minikafka.net.ports import free_port
from minikafka.registry.brokers import live_brokers
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.plain import PlainSaslClient
from minikafka.security.sasl.scram import ScramMechanism, ScramSaslClient, base36

LOGINS, RUNS, MESSAGES, PARTITIONS = 200, 3, 500_000, 4
USER, PASSWORD = "alice", "secret"
MODULES = "org.apache.kafka.common.security"
SCRAM_USER = f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
VALUE = os.urandom(100)


class Login:
    """The credentials of one mechanism."""

    def __init__(self, mechanism: str, create: Callable[[], SaslClient]) -> None:
        self.mechanism = mechanism
        self._create = create

    def create_client(self, host: str) -> SaslClient:
        """Return the client's side of one exchange."""
        return self._create()


def scram() -> SaslClient:
    nonce = base36(os.urandom(17))
    return ScramSaslClient(ScramMechanism.SCRAM_SHA_512, USER, Password(PASSWORD), nonce)


LOGIN_KINDS = (
    Login("SCRAM-SHA-512", scram),
    Login("PLAIN", lambda: PlainSaslClient(USER, Password(PASSWORD))),
)


def login_ms(port: int, login: Login, context: ssl.SSLContext) -> float:
    """The median time of a connection until it is authenticated."""
    connector = SecureConnector(SocketConnector(tls=context), login, is_encrypted=True, client_id="benchmark")
    times = []
    for _ in range(LOGINS):
        began = time.perf_counter()
        connection = connector.connect("localhost", port)
        times.append((time.perf_counter() - began) * 1000)
        connection.close()
    return statistics.median(times)


def messages_per_second(port: int, ca: str, topic: str) -> tuple[float, float]:
    """How fast librdkafka sends, and reads."""
    config: dict[str, Any] = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca,
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    producer = confluent_kafka.Producer(
        {**config, "acks": 1, "linger.ms": 5, "queue.buffering.max.messages": MESSAGES}
    )
    began = time.perf_counter()
    for number in range(MESSAGES):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    sent_s = time.perf_counter() - began
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": "b", "enable.auto.commit": False, "queued.min.messages": MESSAGES}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    began, count = time.perf_counter(), 0
    while count < MESSAGES:
        count += len(consumer.consume(10_000, 10))
    read_s = time.perf_counter() - began
    consumer.close()
    return MESSAGES / sent_s, MESSAGES / read_s


def show(what: str, ours: float, theirs: float, unit: str) -> None:
    print(f"{what}: {ours:,.2f} {unit} against {theirs:,.2f}: {ours / theirs:.2f} x", flush=True)


def settings(directory: Path, ca: trustme.CA) -> dict[str, str]:
    """The settings of the listener SASL_SSL, the same for both brokers."""
    issued = ca.issue_cert("localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(  # PKCS#8, as Java demands
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    store = directory / "broker.pem"
    store.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": SCRAM_USER,
    }


def add_user_here(cluster: Cluster) -> int:
    """Add the user to our cluster; return the port of SASL_SSL."""
    store = ZooKeeperStore(cluster.zookeeper_connect)
    try:
        add_user(store, USER, NewPassword(Password(PASSWORD)), os.urandom)
        (registration,) = live_brokers(store).values()
    finally:
        store.close()
    return {endpoint.listener: endpoint.port for endpoint in registration.broker.endpoints}["SASL_SSL"]


def add_user_there(bootstrap: str) -> None:
    """Add the user to Apache Kafka."""
    info = ScramCredentialInfo(ScramMechanismType.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(30)


def main() -> None:
    jars = os.environ.get("KAFKA_JARS")
    if not jars:
        raise SystemExit("set KAFKA_JARS: see the head of this file")
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ca_file = str(directory / "ca.pem")
        ca.cert_pem.write_to_path(ca_file)
        context = ssl.create_default_context(cafile=ca_file)
        config, port = settings(directory, ca), free_port()
        listeners = {"listeners": "PLAINTEXT://localhost:0,SASL_SSL://localhost:0"}
        with (
            apache_kafka(jars, directory, config, f",SASL_SSL://localhost:{port}") as bootstrap,
            Cluster(config={**config, **listeners}, data_dir=str(directory / "ours")) as cluster,
        ):
            add_user_there(bootstrap)
            own_port = add_user_here(cluster)
            time.sleep(1)
            for login in LOGIN_KINDS:
                for at in (own_port, port):
                    login_ms(at, login, context)  # warm
                ours, theirs = (login_ms(at, login, context) for at in (own_port, port))
                show(f"login by {login.mechanism}", ours, theirs, "ms")
            for address in (cluster.bootstrap_servers, bootstrap):
                with ClusterClient(address) as client:
                    for run in range(RUNS):
                        Admin(client).create_topic(NewTopic(f"t{run}", PARTITIONS))
            runs = [
                [messages_per_second(at, ca_file, f"t{run}") for at in (own_port, port)]
                for run in range(RUNS)
            ]
            for number, what in enumerate(("produce", "consume")):
                ours, theirs = (max(run[side][number] for run in runs) for side in (0, 1))
                show(f"{what} over SASL_SSL", ours / 1e6, theirs / 1e6, "M/s")


if __name__ == "__main__":
    main()
