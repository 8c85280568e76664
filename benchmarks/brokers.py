"""The two brokers of a benchmark: ours and Apache Kafka, each with one listener or with a secured one too.

The secured listener is SASL_SSL with SCRAM-SHA-512 and PLAIN. Both brokers have the same key (ECDSA P-256),
which a CA of the benchmark has signed, and the same user. Topics are made and filled by the plain listener.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from minikafka.base.config.property_files import properties_text
from minikafka.base.errors import MinikafkaError
from minikafka.base.secrets import Password
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.jaas import LOGIN_MODULES

START_S = 60
STOP_S = 60
USER, PASSWORD = "alice", "alice-secret"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"


def jaas(mechanism: str, options: str) -> str:
    """Return the JAAS text of a mechanism."""
    return f"{LOGIN_MODULES[mechanism]} required {options};"


def login_by(mechanism: str) -> dict[str, str]:
    """Return the properties of a client that logs in."""
    options = f'username="{USER}" password="{PASSWORD}"'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, options)}


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    servers: str
    """The address of its plain listener."""
    client: Mapping[str, str]
    """The properties of the measured clients: the listener's address, and its security."""
    process: psutil.Process

    def cpu_s(self) -> float:
        """Return its processor time so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Security:
    """The keys and the user of both brokers."""

    authority: trustme.CA = field(default_factory=trustme.CA)

    def broker(self, plain: str, secured: str) -> dict[str, str]:
        """Return the settings of a broker with listeners at these addresses."""
        leaf = self.authority.issue_cert("127.0.0.1", "localhost", common_name="broker")
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
        return {
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{secured}",
            "sasl.enabled.mechanisms": f"{SCRAM},{PLAIN}",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas(SCRAM, ""),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(PLAIN, f'user_{USER}="{PASSWORD}"'),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "ssl.keystore.certificate.chain": chain,
        }

    def client(self, secured: str) -> dict[str, str]:
        """Return what a client of the secured listener sets, with SCRAM."""
        return {
            "bootstrap.servers": secured,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.cert_pem.bytes().decode(),
            **login_by(SCRAM),
        }


def client_of(properties: Mapping[str, str], **options: int) -> Client:
    """Return a client of ours with a broker's ``client``."""
    security = ClientSecurity.from_properties(properties)
    return Client(properties["bootstrap.servers"], security=security, **options)


@contextlib.contextmanager
def minikafka_broker(
    directory: Path, config: Mapping[str, str], security: Security | None = None
) -> Iterator[Broker]:
    """Run a broker of ours on a ZooKeeper of its own."""
    secured = f"127.0.0.1:{free_port()}"
    if security is not None:
        config = {**security.broker(f"127.0.0.1:{free_port()}", secured), **config}
    with Cluster(data_dir=directory / "ours", config=config) as cluster:
        (process,) = [
            child
            for child in psutil.Process().children(recursive=True)
            if child.cmdline()[1:3] == ["-m", "minikafka.server"]
        ]
        servers = cluster.bootstrap_servers
        client = {"bootstrap.servers": servers}
        if security is not None:
            _add_user(cluster.zookeeper_connect)
            client = security.client(secured)
            _await(client, process, directory / "ours" / "logs" / "broker-0.log")
        yield Broker(servers, client, process)


@contextlib.contextmanager
def apache_kafka(jars: str, directory: Path, security: Security | None = None) -> Iterator[Broker]:
    """Run an Apache Kafka broker on a ZooKeeper of its own."""
    plain, secured = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{plain}",
        "log.dirs": str(directory / "kafka"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    client = {"bootstrap.servers": plain}
    with contextlib.ExitStack() as stack:
        zookeeper = EmbeddedZooKeeper(str(directory / "peer"))
        config["zookeeper.connect"] = zookeeper.start()
        stack.callback(zookeeper.stop)
        if security is not None:
            _add_user(config["zookeeper.connect"])
            config |= security.broker(plain, secured)
            client = security.client(secured)
        properties, output = directory / "server.properties", directory / "kafka.txt"
        properties.write_text(properties_text(config))
        file = stack.enter_context(output.open("w"))
        command = [find_java().path, "-Xmx1g", "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        process = psutil.Popen(command, cwd=directory, stdout=file, stderr=file)
        stack.callback(_stop, process)
        _await({"bootstrap.servers": plain}, process, output)
        _await(client, process, output)
        yield Broker(plain, client, process)


def _stop(process: psutil.Popen) -> None:
    """Stop a broker; kill it if closing its logs takes too long."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def _add_user(zookeeper: str) -> None:
    with contextlib.closing(ZooKeeperStore(zookeeper)) as store:
        add_user(ZooKeeperUsers(store), USER, NewPassword(Password(PASSWORD)), os.urandom)


def _await(client: Mapping[str, str], process: psutil.Process, output: Path) -> None:
    """Wait until a broker answers a client with these properties."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with client_of(client, request_timeout_ms=1_000) as cluster:
                Admin(cluster).list_topics()
            return
        except MinikafkaError:
            ended = isinstance(process, subprocess.Popen) and process.poll() is not None
            if time.monotonic() > deadline or ended or not process.is_running():
                raise SystemExit(output.read_text()[-2_000:]) from None
