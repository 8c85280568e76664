"""Access rules obeyed and administered across releases: their tools and our broker, and the other way."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.base.acls import (
    ANONYMOUS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.cli.commands import run
from minikafka.clients.admin.acls import AclBinding
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.acls import EXTENDED_ACL_CHANGES, AclChange, ResourceAcls, acl_path, read_acls
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, KAFKA_4, Release
from tests.support.kafka_broker import KafkaBroker, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""What no rule is about everybody may use: the brokers each other, too."""
DENY_WRITE = ("--deny-principal", ANONYMOUS, "--operation", "Write", "--topic")
PATIENCE_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config=AUTHORIZER) as cluster:
        yield cluster


def new_topic(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Client(bootstrap) as client:
        Admin(client).create_topic(NewTopic(name))
    return name


def writable(bootstrap: str, topic: str) -> bool:
    """Return True if an anonymous producer may write. Raise AssertionError for any other error."""
    with Client(bootstrap) as client, BatchingProducer(client, BatchingConfig(idempotence=False)) as producer:
        code = ErrorCode.NONE
        try:
            producer.send(topic, b"x", partition=0).result(PATIENCE_S * 1000)
        except BrokerError as error:
            code = error.code
    if code not in {ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
        raise AssertionError(code)
    return code is ErrorCode.NONE


def obeyed(bootstrap: str, topic: str, deny: Callable[[], object], allow: Callable[[], object]) -> None:
    """A rule that denies holds within moments, and its removal too."""
    assert writable(bootstrap, topic)
    deny()
    assert wait_until(lambda: not writable(bootstrap, topic), PATIENCE_S)
    allow()
    assert wait_until(lambda: writable(bootstrap, topic), PATIENCE_S)


def test_our_broker_obeys_what_the_tool_of_0_10_writes_into_zookeeper(cluster: Cluster) -> None:
    def tool(*options: str) -> str:
        connect = f"zookeeper.connect={cluster.zookeeper_connect}"
        return KAFKA_0_10.run("kafka.admin.AclCommand", "--authorizer-properties", connect, *options).out

    KAFKA_0_10.libs()
    topic = new_topic(cluster.bootstrap_servers)
    obeyed(
        cluster.bootstrap_servers,
        topic,
        lambda: tool("--add", *DENY_WRITE, topic),
        lambda: tool("--remove", "--force", "--topic", topic),
    )


@pytest.mark.parametrize(
    ("release", "tool"),
    [
        (KAFKA_3_9, "kafka.admin.AclCommand"),
        pytest.param(KAFKA_4, "org.apache.kafka.tools.AclCommand", marks=pytest.mark.long),
    ],
    ids=str,
)
def test_java_admin_client_changes_rules_on_our_broker(cluster: Cluster, release: Release, tool: str) -> None:
    bootstrap = cluster.bootstrap_servers

    def admin(*options: str) -> str:
        return release.run(tool, "--bootstrap-server", bootstrap, *options).out

    release.libs()
    topic = new_topic(bootstrap)
    listed = admin("--add", *DENY_WRITE, topic, "--deny-host", "127.0.0.1")
    assert "principal=User:ANONYMOUS, host=127.0.0.1, operation=WRITE, permissionType=DENY" in listed
    assert not writable(bootstrap, topic)
    with Client(bootstrap) as client:
        rule = Acl(ANONYMOUS, Permission.DENY, "127.0.0.1", Operation.WRITE)
        about = Resource(ResourceType.TOPIC, topic)
        assert Admin(client).describe_acls(AclFilter(resource_name=topic)) == [AclBinding(about, rule)]
    admin("--remove", "--force", "--topic", topic)
    assert writable(bootstrap, topic)


def test_a_broker_of_0_10_obeys_the_rules_that_our_command_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    KAFKA_0_10.libs()
    with EmbeddedZooKeeper(str(tmp_path / "zookeeper")) as zookeeper:
        connect = f"{zookeeper.connect}/kafka"
        broker = KafkaBroker(KAFKA_0_10, tmp_path / "kafka", connect, config=AUTHORIZER)
        try:
            broker.start()
            topic = new_topic(broker.bootstrap)
            at = ("--zookeeper", connect)
            capfd.readouterr()
            assert run(["acl", "list", "--bootstrap", broker.bootstrap]) == 1
            assert "--zookeeper" in capfd.readouterr().err, "it has no API for rules"

            def deny() -> None:
                # Who may not see a topic is told by this release that it is not there.
                seen = ("--allow-principal", ANONYMOUS, "--operation", "Describe", "--topic", topic)
                assert run(["acl", "add", *seen, *at]) == 0
                assert run(["acl", "add", *DENY_WRITE, topic, *at]) == 0

            obeyed(broker.bootstrap, topic, deny, lambda: run(["acl", "remove", "--topic", topic, *at]))
        finally:
            broker.kill()


@pytest.mark.long
@pytest.mark.parametrize(
    ("release", "authorizer"),
    [
        (KAFKA_3_9, "kafka.security.authorizer.AclAuthorizer"),
        (KAFKA_4, "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
    ids=str,
)
def test_our_admin_client_changes_rules_on_kafka_brokers(
    tmp_path: Path, release: Release, authorizer: str
) -> None:
    config = {"authorizer.class.name": authorizer, "super.users": ANONYMOUS}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(release, tmp_path, config=config))
        admin = Admin(stack.enter_context(Client(broker.bootstrap)))
        topic = Resource(ResourceType.TOPIC, "t")
        read = AclBinding(topic, Acl("User:alice", Permission.ALLOW, "*", Operation.READ))
        write = AclBinding(
            Resource(ResourceType.TOPIC, "t", PatternType.PREFIXED),
            Acl("User:bob", Permission.DENY, "10.0.0.1", Operation.WRITE),
        )
        assert admin.create_acls([read, write]) == {read: None, write: None}
        assert wait_until(lambda: admin.describe_acls() == [read, write], PATIENCE_S)
        assert admin.describe_acls(AclFilter.of(topic)) == [read]
        assert admin.describe_acls(AclFilter(resource_name="tt", match=True)) == [write]
        assert admin.delete_acls([read.filter]) == {read.filter: [read]}
        assert wait_until(lambda: admin.describe_acls() == [write], PATIENCE_S)
        if release.has_zookeeper:
            store = ZooKeeperStore(broker.zookeeper)
            stack.callback(store.close)
            stored_as_here(store, write)


def stored_as_here(store: ZooKeeperStore, binding: AclBinding) -> None:
    """Check that a broker of Kafka stored the rule of a prefix as we do, and notified of it so."""
    acls = frozenset({binding.acl})
    assert read_acls(store).acls == {binding.resource: acls}
    data, _ = store.read(acl_path(binding.resource))
    assert json.loads(data) == json.loads(ResourceAcls(acls).to_json())
    (change,) = store.children(EXTENDED_ACL_CHANGES)
    data, _ = store.read(f"{EXTENDED_ACL_CHANGES}/{change}")
    assert json.loads(data) == json.loads(AclChange(binding.resource).to_json())
