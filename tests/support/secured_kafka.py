"""A broker of Apache Kafka with a listener for each security protocol, and a client's properties for each.

Names of listeners beside those of the protocols: MTLS demands a certificate of clients, OTHER_HOST and
EXPIRED have bad ones themselves, REAUTH ends the sessions of SASL_PLAINTEXT after two seconds.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.config.property_files import properties_text
from minikafka.base.secrets import Password
from minikafka.clients.admin.zookeeper.users import NewPassword, add_user
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker
from tests.support.tls import HOSTS, authority, client_properties, inline_keys, inline_trust, pkcs12_store

USER, PASSWORD = "alice", 'won;der="land\\'
PACKAGE = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 2_000

Properties = dict[str, str]
_PROTOCOLS = {"MTLS": "SSL", "OTHER_HOST": "SSL", "EXPIRED": "SSL", "REAUTH": "SASL_PLAINTEXT"}
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


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """The addresses of the listeners, by their names, and of ZooKeeper."""

    addresses: dict[str, str]
    zookeeper: str

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
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    """Run a broker of 3.9.1 with the user alice, who has the same password for every mechanism."""
    names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", *_PROTOCOLS)
    with EmbeddedZooKeeper(str(directory)) as zookeeper:
        connect = f"{zookeeper.connect}/kafka"
        with contextlib.closing(ZooKeeperStore(connect)) as store:
            add_user(store, USER, NewPassword(Password(PASSWORD)), os.urandom)
        broker = KafkaBroker(KAFKA_3_9, directory / "broker", connect)
        with _started(broker, names, _config_of_3_9(), connect) as kafka:
            yield kafka


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
        connect = f"{zookeeper.connect}/kafka"
        jvm = (f"-Djava.security.auth.login.config={login}",)
        broker = KafkaBroker(KAFKA_0_10, directory / "broker", connect, jvm=jvm)
        with _started(broker, ("SSL", "SASL_PLAINTEXT", "SASL_SSL"), config, connect) as kafka:
            yield kafka


@contextlib.contextmanager
def _started(
    broker: KafkaBroker, names: tuple[str, ...], config: Properties, zookeeper: str
) -> Iterator[SecuredKafka]:
    broker.release.libs()
    addresses = {"PLAINTEXT": broker.bootstrap} | {name: f"127.0.0.1:{free_port()}" for name in names}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    with open(broker.log.parent / "server.properties", "a", encoding="utf-8") as file:
        file.write(properties_text({"listeners": listeners, **config}))
    try:
        broker.start()
        yield SecuredKafka(addresses, zookeeper)
    finally:
        broker.kill()


def _config_of_3_9() -> Properties:
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    protocols = {name: name for name in names} | _PROTOCOLS
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    config = {
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
        **inline_keys(authority().issue_cert(*HOSTS, common_name="broker")),
        **inline_trust(authority()),
        "listener.name.mtls.ssl.client.auth": "required",
    }
    bad = {
        "other_host": authority().issue_cert("other.example"),
        "expired": authority().issue_cert(*HOSTS, not_before=now - 9 * day, not_after=now - day),
    }
    for listener, leaf in bad.items():
        for name, value in inline_keys(leaf).items():
            config[f"listener.name.{listener}.{name}"] = value
    for listener in ("sasl_plaintext", "sasl_ssl", "reauth"):
        for mechanism in MECHANISMS:
            options = {
                "PLAIN": f"user_{USER}={quoted(PASSWORD)}",
                "OAUTHBEARER": 'unsecuredLoginStringClaim_sub="broker"',
            }.get(mechanism, "")
            text = jaas(mechanism, options)
            config[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = text
            if listener == "reauth":
                prefix = f"listener.name.{listener}.{mechanism.lower()}"
                config[f"{prefix}.connections.max.reauth.ms"] = str(SESSION_MS)
    return config
