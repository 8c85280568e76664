"""A broker of Apache Kafka with a listener for each security protocol, and a client's properties for each.

Names of listeners beside those of the protocols: MTLS demands a certificate of clients, OTHER_HOST, EXPIRED
and NOT_YET have bad ones themselves, REAUTH ends the sessions of SASL_PLAINTEXT after two seconds and has
SCRAM-SHA-256 alone.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.config.property_files import write_properties
from minikafka.base.errors import AuthenticationFailed
from minikafka.base.ids import TopicPartition
from minikafka.base.secrets import Password
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.clients.common_client_configs import ClientSecurity
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.clients.simple_consumer import FetchRequest, SimpleConsumer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10, Release
from tests.support.command_line import CommandLine
from tests.support.kafka_broker import KafkaBroker
from tests.support.tls import (
    HOSTS,
    authority,
    client_properties,
    inline_keys,
    inline_trust,
    key_text,
    pkcs12_store,
)

USER, PASSWORD = "alice", 'won;der="land\\'
PACKAGE = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ACCESSES: tuple[tuple[str, str | None], ...] = (
    ("SSL", None),
    ("MTLS", None),
    *itertools.product(("SASL_PLAINTEXT", "SASL_SSL"), MECHANISMS),
)
"""The listeners on which clients write and read, and how these log in."""
SESSION_MS = 2_000

_NUMBERS = itertools.count()
Properties = dict[str, str]
_PROTOCOLS = {
    **dict.fromkeys(("MTLS", "OTHER_HOST", "EXPIRED", "NOT_YET"), "SSL"),
    "REAUTH": "SASL_PLAINTEXT",
}
"""The protocols of listeners that are not named after theirs."""
_LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}


def quoted(text: str) -> str:
    """Return a value of a JAAS text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(mechanism: str, options: str) -> str:
    """Return the JAAS text of a mechanism."""
    module = _LOGIN_MODULES.get(mechanism, "scram.ScramLoginModule")
    return f"{PACKAGE}.{module} required {options};"


def login_of(mechanism: str, user: str = USER, password: str = PASSWORD) -> Properties:
    """Return the settings of a client that logs in."""
    options = f"username={quoted(user)} password={quoted(password)}"
    if mechanism == "OAUTHBEARER":
        options = f"unsecuredLoginStringClaim_sub={quoted(user)}"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, options)}


def as_options(properties: Properties) -> Properties:
    """Return a client's properties as options of Spark."""
    return {f"kafka.{name}": value for name, value in properties.items()}


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """The addresses of the listeners, by their names, and of ZooKeeper, where there is one."""

    addresses: dict[str, str]
    zookeeper: str = ""
    release: Release | None = None
    """None: it is a broker of ours."""

    def client(self, listener: str, mechanism: str | None = None, **others: str) -> Properties:
        """Return what a client of a listener sets; ``others`` with ``_`` for ``.``."""
        protocol = _PROTOCOLS.get(listener, listener)
        found = {"bootstrap.servers": self.addresses[listener], "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= client_properties("carol" if listener == "MTLS" else None)
        if mechanism is not None:
            found |= login_of(mechanism)
        return {**found, **{name.replace("_", "."): value for name, value in others.items()}}


@contextlib.contextmanager
def secured_kafka(release: Release, directory: Path) -> Iterator[SecuredKafka]:
    """Run a broker of 3.9.1 or later with the user alice, who has the same password for every mechanism."""
    config = _config() | {"group.initial.rebalance.delay.ms": "0"}
    names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", *_PROTOCOLS)
    with contextlib.ExitStack() as stack:
        zookeeper = ""
        if release.has_zookeeper:
            zookeeper = f"{stack.enter_context(EmbeddedZooKeeper(str(directory))).connect}/kafka"
            with contextlib.closing(ZooKeeperStore(zookeeper)) as store:
                add_user(ZooKeeperUsers(store), USER, NewPassword(Password(PASSWORD)), os.urandom)
        else:
            config["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        scram = [
            f"{name}=[name={USER},password={PASSWORD}]" for name in MECHANISMS if name.startswith("SCRAM")
        ]
        yield stack.enter_context(started(release, directory, names, config, zookeeper, scram=scram))


@contextlib.contextmanager
def secured_kafka_0_10(directory: Path) -> Iterator[SecuredKafka]:
    """Run a broker of 0.10.1.1, which has PLAIN, no SaslAuthenticate, and key stores in files only."""
    with EmbeddedZooKeeper(str(directory)) as zookeeper:
        login = directory / "jaas.conf"
        module = jaas("PLAIN", f"user_{USER}={quoted(PASSWORD)}")
        login.write_text(f"KafkaServer {{\n{module}\n}};\n")
        keys = directory / "keys.p12"
        keys.write_bytes(pkcs12_store(authority().issue_cert(*HOSTS, common_name="broker"), b"tiger"))
        config = {
            "sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(keys),
            "ssl.keystore.password": "tiger",
            "ssl.key.password": "tiger",
        }
        names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
        jvm = (f"-Djava.security.auth.login.config={login}",)
        connect = f"{zookeeper.connect}/kafka"
        with started(KAFKA_0_10, directory, names, config, connect, jvm=jvm) as kafka:
            yield kafka


@contextlib.contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredKafka]:
    """Run a broker of ours with the listeners and the user of ``secured_kafka``."""
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", *_PROTOCOLS)
    addresses = {name: f"127.0.0.1:{free_port()}" for name in names}
    handler = f"{PACKAGE}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    config = _config() | {
        f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": handler
        for listener in ("sasl_plaintext", "sasl_ssl")
    }
    config["listeners"] = ",".join(f"{name}://{address}" for name, address in addresses.items())
    with Cluster(data_dir=directory, config=config) as cluster:
        with contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
            add_user(ZooKeeperUsers(store), USER, NewPassword(Password(PASSWORD)), os.urandom)
        kafka = SecuredKafka(addresses, cluster.zookeeper_connect)
        assert wait_until(lambda: _logs_in(kafka), 10), "the broker does not know the user"
        yield kafka


def _logs_in(kafka: SecuredKafka) -> bool:
    try:
        with client_of(kafka.client("SASL_PLAINTEXT", "SCRAM-SHA-512")) as cluster:
            cluster.metadata()
    except AuthenticationFailed:
        return False
    return True


@contextlib.contextmanager
def started(
    release: Release,
    directory: Path,
    names: tuple[str, ...],
    config: Properties,
    zookeeper: str = "",
    **others: Sequence[str],
) -> Iterator[SecuredKafka]:
    """Run a broker with a listener of each name beside PLAINTEXT; ``others``: see ``KafkaBroker``."""
    release.libs()
    addresses = {name: f"127.0.0.1:{free_port()}" for name in names}
    listeners = [f"{name}://{address}" for name, address in addresses.items()]
    broker = KafkaBroker(
        release, directory / "broker", zookeeper, config=config, listeners=listeners, **others
    )
    try:
        broker.start()
        yield SecuredKafka({"PLAINTEXT": broker.bootstrap, **addresses}, zookeeper, release)
    finally:
        broker.kill()


def _config() -> Properties:
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    protocols = {name: name for name in names} | _PROTOCOLS
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    config = {
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "100",
        **inline_keys(authority().issue_cert(*HOSTS, common_name="broker")),
        **inline_trust(authority()),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.reauth.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.reauth.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
    }
    bad = {
        "other_host": authority().issue_cert("other.example"),
        "expired": authority().issue_cert(*HOSTS, not_before=now - 9 * day, not_after=now - day),
        "not_yet": authority().issue_cert(*HOSTS, not_before=now + day, not_after=now + 9 * day),
    }
    for listener, leaf in bad.items():
        for name, value in inline_keys(leaf).items():
            config[f"listener.name.{listener}.{name}"] = value
    mechanisms = {"sasl_plaintext": MECHANISMS, "sasl_ssl": MECHANISMS, "reauth": ("SCRAM-SHA-256",)}
    for listener, enabled in mechanisms.items():
        for mechanism in enabled:
            options = {
                "PLAIN": f"user_{USER}={quoted(PASSWORD)}",
                "OAUTHBEARER": 'unsecuredLoginStringClaim_sub="broker"',
            }.get(mechanism, "")
            text = jaas(mechanism, options)
            config[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = text
    return config


def connect_by(listener: str, mechanism: str | None) -> str:
    """Return the feature that a client shows on a listener, for docs/reference/compatibility.md."""
    if listener == "MTLS":
        return "connect by SSL, with a certificate"
    return f"connect by {listener}" + (f", {mechanism}" if mechanism else "")


def client_of(properties: Properties, **options: Any) -> ClusterClient:
    security = ClientSecurity.from_properties(properties)
    return ClusterClient(properties["bootstrap.servers"], security=security, **options)


def create_topic(cluster: ClusterClient) -> str:
    name = f"secured-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=2))
    return name


def write_and_read(properties: Properties) -> None:
    """Create a topic, write with both producers' engine, and read it in a group."""
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        config = BatchingConfig.from_properties({**properties, "acks": "all"})
        with BatchingProducer(cluster, config) as producer:
            for number in range(100):
                producer.send(topic, b"%d" % number)
        settings = {**properties, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
        found: set[bytes | None] = set()
        with GroupConsumer(cluster, settings) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 30
            while len(found) < 100 and time.monotonic() < deadline:
                found |= {record.value for record in consumer.poll_records(500)}
        assert found == {b"%d" % number for number in range(100)}


def write_and_read_by_the_texts(properties: Properties) -> None:
    """Write with the texts' producer, and read with their simple consumer."""
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        ends = {TopicPartition(topic, 0): None, TopicPartition(topic, 1): None}
        settings = {
            **properties,
            "metadata.broker.list": properties["bootstrap.servers"],
            "request.required.acks": "-1",
        }
        with Producer(settings) as producer:
            producer.send([KeyedMessage(topic, b"%d" % number, b"%d" % number) for number in range(20)])
        assert sum(Admin(cluster).offsets(dict.fromkeys(ends, -1)).values()) == 20  # type: ignore[arg-type]
    host, _, port = properties["bootstrap.servers"].rpartition(":")
    security = ClientSecurity.from_properties(properties)
    with SimpleConsumer(host, int(port), security=security) as simple:
        found = [
            message.value
            for partition in range(2)
            for message in simple.iterator(FetchRequest(topic, partition, 0, 65536))
        ]
    assert sorted(found) == sorted(b"%d" % number for number in range(20))


def run_commands(cli: CommandLine, directory: Path, properties: Properties, topic: str) -> None:
    """Create a topic, write and read it, by commands with a file of these properties."""
    file = str(directory / "client.properties")
    write_properties(file, properties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIKAFKA_CONFIG", file)
        patch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
        for words in (
            ("topic", "create", topic, "--partitions", "1"),
            ("produce", topic),
            ("consume", topic, "--max", "2"),
            ("consume", topic, "--group", topic, "--max", "2"),
            ("group", "describe", topic),
        ):
            assert cli.run(*words) == 0, cli.err
            if words[0] == "consume":
                assert [line.split()[-1] for line in cli.lines] == ["a", "b"]


def produce_over_sessions(properties: Properties) -> None:
    """Write without a break while sessions end: nothing fails, is sent again, or changes its place."""
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        with BatchingProducer(cluster, BatchingConfig(acks=1, linger_ms=1)) as producer:
            end = time.monotonic() + 2.5 * SESSION_MS / 1000
            futures: list[SendFuture] = []
            while time.monotonic() < end:
                futures.append(producer.send(topic, b"%d" % len(futures), partition=0))
                producer.wait(futures[-200:-100])
            producer.flush()
            assert [future.error for future in futures if future.error] == []
            assert producer.resends == 0
            assert [future.offset for future in futures] == list(range(len(futures)))


def wrong_ones(kafka: SecuredKafka) -> dict[str, tuple[Properties, str]]:
    """Return the properties of each mistake, and words of the line that a command prints for it."""
    login, plain = kafka.client("SASL_SSL", "SCRAM-SHA-256"), kafka.client("SASL_PLAINTEXT", "PLAIN")
    mutual = kafka.client("MTLS")
    other_key = key_text(authority().issue_cert(common_name="carol"))
    tls, nothing = kafka.client("SSL"), {"security.protocol": "PLAINTEXT"}
    address = {name: {"bootstrap.servers": value} for name, value in kafka.addresses.items()}
    foreign = inline_keys(authority("foreign").issue_cert(common_name="mallory"))
    return {
        "password": (login | login_of("SCRAM-SHA-256", password="no"), "check username and password"),
        "plain password": (plain | login_of("PLAIN", password="no"), "check username and password"),
        "user": (login | login_of("SCRAM-SHA-256", "bob"), "check username and password"),
        "mechanism": (
            plain | {"sasl.mechanism": "GSSAPI"},
            "sasl.jaas.config: has the login module of PLAIN",
        ),
        "mechanism that is not enabled": (kafka.client("REAUTH", "PLAIN"), "SCRAM-SHA-256"),
        "CA": (
            tls | client_properties(ca=authority("foreign")),
            "that is not trusted; set ssl.truststore.location",
        ),
        "host name": (kafka.client("OTHER_HOST"), "not for the host 127.0.0.1"),
        "expired": (kafka.client("EXPIRED"), "expired"),
        "not yet valid": (kafka.client("NOT_YET"), "is not valid yet"),
        "no certificate": (tls | address["MTLS"], "set ssl.keystore.location or ssl.keystore.key"),
        "foreign certificate": (
            tls | address["MTLS"] | foreign,
            "to a certificate of a CA in the broker's ssl.truststore",
        ),
        "key that does not fit": (mutual | {"ssl.keystore.key": other_key}, "does not fit the certificate"),
        "PLAINTEXT on TLS": (nothing | address["SSL"], "set security.protocol to SSL or SASL_SSL"),
        "TLS on PLAINTEXT": (tls | address["PLAINTEXT"], "does not speak TLS on this port"),
        "SASL without TLS on TLS": (plain | address["SASL_SSL"], "set security.protocol to SSL or SASL_SSL"),
        "SASL with TLS on PLAINTEXT": (login | address["PLAINTEXT"], "does not speak TLS on this port"),
        "SASL on PLAINTEXT": (plain | address["PLAINTEXT"], "the listener has no SASL"),
        "SASL on SSL": (login | address["SSL"], "the listener has no SASL"),
        "PLAINTEXT on SASL": (nothing | address["SASL_PLAINTEXT"], "security.protocol=SASL_PLAINTEXT"),
        "SSL on SASL": (tls | address["SASL_SSL"], "security.protocol=SASL_SSL"),
    }


LISTENER_NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", *_PROTOCOLS)
MISTAKES = tuple(wrong_ones(SecuredKafka(dict.fromkeys(LISTENER_NAMES, ""))))


LIMIT_S = 20.0
"""Less than a command that tries again until its time is over takes, however slow the machine is."""


def check_mistake(cli: CommandLine, directory: Path, properties: Properties, words: str) -> None:
    """Run a command with a file of these properties: it says what is wrong, in time and in one line."""
    file = str(directory / "client.properties")
    write_properties(file, properties)
    began = time.monotonic()
    assert cli.run("topic", "list", "--command-config", file) in (1, 2)
    assert time.monotonic() - began < LIMIT_S
    assert cli.out == ""
    (line,) = [line for line in cli.err.splitlines() if "has no effect" not in line]
    assert words in line
    assert PASSWORD not in cli.err
