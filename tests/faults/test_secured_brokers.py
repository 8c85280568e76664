"""Three brokers that connect to each other by TLS and SASL, and a cluster that changes to that under load.

All messages are acknowledged by the in-sync replicas, at least two, while brokers are restarted one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.embedded.broker import BrokerFailed, BrokerProcess
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.registry import paths
from minikafka.registry.topics import TopicAssignment
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.faults import roles
from tests.support.identity_provider import IdentityProvider
from tests.support.load import Load
from tests.support.secured_kafka import jaas
from tests.support.tls import authority, broker_properties, ca_text, key_and_chain, key_text
from tests.unit.security.sasl.test_signed_tokens import jwk, jwks, private_key, signed

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

BROKERS = (0, 1, 2)
HOST = "127.0.0.1"
NAMES = ("PLAINTEXT", "SSL", "SASL_SSL")
PARTITIONS = 3
BETWEEN_RESTARTS = 300
USER, SECRET = "broker", "t;i=g er"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
COMMON = {
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "200",
}
SUPER_USER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": f"User:{USER}",
}


def listeners(*names: str, between: str) -> dict[str, str]:
    """Return which listeners a broker has, the first being that of its ready line."""
    return {"listeners": ",".join(names), "security.inter.broker.protocol": between}


def sasl_ssl(mechanism: str) -> dict[str, str]:
    """Return the settings of a listener SASL_SSL on which brokers log in as ``USER``."""
    users = f'user_{USER}="{SECRET}"' if mechanism == "PLAIN" else ""
    own = {
        "sasl.enabled.mechanisms": mechanism,
        f"{mechanism.lower()}.sasl.jaas.config": jaas(
            mechanism, f'username="{USER}" password="{SECRET}" {users}'
        ),
        **broker_properties(HOST),
    }
    prefixed = {f"listener.name.sasl_ssl.{name}": value for name, value in own.items()}
    return {**prefixed, "sasl.mechanism.inter.broker.protocol": mechanism}


class SecuredCluster:
    """Three broker processes with a port for each listener, and a ZooKeeper."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.ports = {(number, name): free_port() for number in BROKERS for name in NAMES}
        self._running: dict[int, BrokerProcess] = {}
        self.store = ZooKeeperStore(zookeeper)

    def addresses(self, listener: str) -> str:
        """Return the brokers' addresses on a listener."""
        return ",".join(f"{HOST}:{self.ports[number, listener]}" for number in BROKERS)

    def start(self, number: int, properties: Mapping[str, str]) -> None:
        """Start a broker, and wait until it serves."""
        names = properties["listeners"].split(",")
        own = {
            "listeners": ",".join(f"{name}://{HOST}:{self.ports[number, name]}" for name in names),
            "log.dirs": str(self.directory / f"data-{number}"),
            "zookeeper.connect": self.zookeeper,
        }
        process = BrokerProcess(number, str(self.directory), {**COMMON, **properties, **own})
        self._running[number] = process
        process.wait_ready()

    def start_all(self, properties: Mapping[str, str]) -> None:
        for number in BROKERS:
            self.start(number, properties)

    def restart_all(self, properties: Mapping[str, str], between: Callable[[], None]) -> None:
        """Restart one broker after the other; ``between`` runs while one is away, and after each."""
        for number in BROKERS:
            self._running.pop(number).stop()
            between()
            self.start(number, properties)
            between()

    def registered(self, number: int) -> dict[str, object]:
        """Return a broker's registration."""
        found: dict[str, object] = json.loads(self.store.read(paths.broker_path(number))[0])
        return found

    def log_of(self, number: int) -> str:
        """Return what a broker has logged."""
        return (self.directory / "logs" / f"broker-{number}.log").read_text(encoding="utf-8")

    def create_topic(self) -> None:
        replicas = {n: tuple((n + i) % len(BROKERS) for i in BROKERS) for n in range(PARTITIONS)}
        self.store.create(paths.topic_path("t"), TopicAssignment(replicas).to_json())

    def client(self, mechanism: str) -> dict[str, str]:
        """Return librdkafka's settings of a client of SASL_SSL."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": SECRET,
            "ssl.ca.pem": ca_text(authority()),
        }

    def close(self) -> None:
        self.store.close()
        for process in self._running.values():
            process.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with (
        EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper,
        contextlib.closing(SecuredCluster(tmp_path, f"{zookeeper.connect}/kafka")) as cluster,
    ):
        yield cluster


def run_in_sync(load: Load, cluster: SecuredCluster) -> None:
    load.run(BETWEEN_RESTARTS)
    roles.run_until_in_sync(load, cluster.store, len(BROKERS))


def run_in_sync_for(seconds: float, load: Load, cluster: SecuredCluster) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run_in_sync(load, cluster)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_brokers_replicate_over_tls_and_sasl_without_a_plain_listener(
    cluster: SecuredCluster, mechanism: str
) -> None:
    add_user(ZooKeeperUsers(cluster.store), USER, NewPassword(Password(SECRET)), os.urandom)
    settings = {
        **listeners("SASL_SSL", between="SASL_SSL"),
        **sasl_ssl(mechanism),
        **SUPER_USER,
        # Sessions end all the time.
        "listener.name.sasl_ssl.connections.max.reauth.ms": "1500",
    }
    cluster.start_all(settings)
    cluster.create_topic()
    load = Load(cluster.addresses("SASL_SSL"), security=cluster.client(mechanism))
    run_in_sync_for(5, load, cluster)  # several sessions
    assert not any("failed, retrying" in cluster.log_of(number) for number in BROKERS)
    # The controller's channels, and controlled shutdowns, use the listener as well.
    cluster.restart_all(settings, lambda: load.run(100))
    run_in_sync(load, cluster)
    load.finish()
    load.check_everything_came_once()
    assert cluster.registered(0)["host"] is None
    logs = "".join(map(cluster.log_of, BROKERS))
    assert logs.count("controlled shutdown succeeded") == len(BROKERS)
    assert SECRET not in logs


def test_brokers_replicate_with_certificates_of_both_sides(cluster: SecuredCluster) -> None:
    own = broker_properties(HOST, client_auth="required")
    settings = {f"listener.name.ssl.{name}": value for name, value in own.items()}
    cluster.start_all({**listeners("SSL", between="SSL"), **settings})
    cluster.create_topic()
    leaf = authority().issue_cert(HOST)
    client = {
        "security.protocol": "SSL",
        "ssl.ca.pem": ca_text(authority()),
        "ssl.key.pem": key_text(leaf),
        "ssl.certificate.pem": key_and_chain(leaf),
    }
    load = Load(cluster.addresses("SSL"), security=client)
    run_in_sync(load, cluster)
    load.finish()
    load.check_everything_came_once()


def test_broker_with_a_wrong_password_logs_it_once(cluster: SecuredCluster) -> None:
    settings = {**listeners("SASL_SSL", between="SASL_SSL"), **sasl_ssl("PLAIN")}
    cluster.start(0, settings)
    wrong = {
        name: value.replace(f' password="{SECRET}"', ' password="x"') for name, value in settings.items()
    }
    address = f"{HOST}:{cluster.ports[0, 'SASL_SSL']}"
    with pytest.raises(BrokerFailed, match=f"broker 1: cannot log in to broker 0 at {address}: "):
        cluster.start(1, wrong)
    cluster.create_topic()  # it runs all the same
    complaint = f"request to broker 0 at {address} failed, retrying: {address}: "
    assert wait_until(lambda: complaint in cluster.log_of(1), 30)
    refusals = ": PLAIN: wrong password of user 'broker'"
    assert wait_until(lambda: refusals in cluster.log_of(0), 30)
    assert cluster.log_of(1).count(complaint) == 1
    assert "check username and password in sasl.jaas.config" in cluster.log_of(1)


def test_switch_from_plaintext_to_sasl_ssl_under_load_loses_nothing(cluster: SecuredCluster) -> None:
    secured = sasl_ssl("PLAIN")
    cluster.start_all(listeners("PLAINTEXT", between="PLAINTEXT"))
    cluster.create_topic()
    load = Load(cluster.addresses("PLAINTEXT"))
    run_in_sync(load, cluster)

    def loaded() -> None:
        load.run(BETWEEN_RESTARTS)

    for names, between in ((("PLAINTEXT", "SASL_SSL"), "PLAINTEXT"), (("PLAINTEXT", "SASL_SSL"), "SASL_SSL")):
        cluster.restart_all({**listeners(*names, between=between), **secured}, loaded)
        run_in_sync(load, cluster)
    load.finish()
    load.check_everything_came_once()

    # The clients have changed to SASL_SSL: nothing needs the plain listener.
    load = Load(cluster.addresses("SASL_SSL"), security=cluster.client("PLAIN"))
    run_in_sync(load, cluster)
    cluster.restart_all({**listeners("SASL_SSL", between="SASL_SSL"), **secured}, loaded)
    run_in_sync(load, cluster)
    load.finish()
    assert load.failed == load.changed == []
    assert load.acknowledged.items() <= load.consumed.items()
    assert [cluster.registered(number)["endpoints"] for number in BROKERS] == [
        [f"SASL_SSL://{HOST}:{cluster.ports[number, 'SASL_SSL']}"] for number in BROKERS
    ]


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """An identity provider whose tokens live for ten seconds."""

    def token() -> tuple[int, bytes]:
        now_s = int(time.time())
        return 200, json.dumps({"access_token": signed(sub=USER, iat=now_s, exp=now_s + 10)}).encode()

    provider = IdentityProvider()
    provider.answers |= {"/token": token, "/keys": (200, jwks(jwk(private_key())))}
    yield provider
    provider.close()


def test_brokers_log_in_to_each_other_with_tokens_of_a_provider(
    cluster: SecuredCluster, provider: IdentityProvider
) -> None:
    add_user(ZooKeeperUsers(cluster.store), USER, NewPassword(Password(SECRET)), os.urandom)
    own = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        "oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER", f'clientId="kafka" clientSecret="{SECRET}"'),
        "oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "oauthbearer.sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        # A token is renewed while the old one is still good for a session.
        "oauthbearer.sasl.login.refresh.window.factor": "0.5",
        "oauthbearer.sasl.login.refresh.window.jitter": "0",
        "oauthbearer.sasl.login.refresh.min.period.seconds": "0",
        "oauthbearer.sasl.login.refresh.buffer.seconds": "0",
        "connections.max.reauth.ms": "1500",
        **broker_properties(HOST),
    }
    cluster.start_all(
        {
            **listeners("SASL_SSL", between="SASL_SSL"),
            **{f"listener.name.sasl_ssl.{name}": value for name, value in own.items()},
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            **SUPER_USER,
        }
    )
    cluster.create_topic()
    load = Load(cluster.addresses("SASL_SSL"), security=cluster.client("SCRAM-SHA-512"))
    run_in_sync_for(8, load, cluster)  # several tokens
    assert [path for _, path, _, _ in provider.received].count("/token") > len(BROKERS)
    for number in BROKERS:
        assert "failed, retrying" not in cluster.log_of(number)
        assert SECRET not in cluster.log_of(number)
