"""Access rules in ZooKeeper, as ``kafka-acls`` of 0.10.1.1 writes and lists them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.acls import (
    CLUSTER,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.registry.acls import ACL_CHANGES, AclChange, ResourceAcls, acl_path
from minikafka.registry.zookeeper import ZooKeeperStore
from tests.interop.releases import KAFKA_0_10

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("kafka_libs"), pytest.mark.timeout(180)]

ALICE = "User:alice"
ORDERS = Resource(ResourceType.TOPIC, "orders")
READERS = Resource(ResourceType.GROUP, "readers")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with EmbeddedZooKeeper(str(directory)) as running:
        yield running.connect


class Rules:
    """The rules below one chroot."""

    def __init__(self, zookeeper: str) -> None:
        chroot = f"/{uuid.uuid4().hex}"
        self.connect = zookeeper + chroot
        self.store = ZooKeeperStore(self.connect)

    def tool(self, *options: str) -> str:
        """Run ``kafka-acls`` and return its output."""
        connect = f"zookeeper.connect={self.connect}"
        return KAFKA_0_10.run("kafka.admin.AclCommand", "--authorizer-properties", connect, *options).out


@pytest.fixture
def rules(zookeeper: str) -> Iterator[Rules]:
    made = Rules(zookeeper)
    yield made
    made.store.close()


def test_what_the_releases_tool_writes_is_read_and_written_alike(rules: Rules) -> None:
    rules.tool(
        *("--add", "--allow-principal", ALICE, "--allow-host", "10.0.0.1", "--operation", "Read"),
        *("--topic", ORDERS.name, "--group", READERS.name),
    )
    rules.tool("--add", "--deny-principal", ALICE, "--operation", "ClusterAction", "--cluster")
    allowed = frozenset({Acl(ALICE, Permission.ALLOW, "10.0.0.1", Operation.READ)})
    denied = frozenset({Acl(ALICE, Permission.DENY, WILDCARD_HOST, Operation.CLUSTER_ACTION)})
    for resource, acls in ((ORDERS, allowed), (READERS, allowed), (CLUSTER, denied)):
        data, _ = rules.store.read(acl_path(resource))
        assert ResourceAcls.from_json(data, acl_path(resource)) == ResourceAcls(acls)
        assert ResourceAcls(acls).to_json() == data
    told = [rules.store.read(f"{ACL_CHANGES}/{name}")[0] for name in rules.store.children(ACL_CHANGES)]
    assert [AclChange.from_text(data, "/p") for data in sorted(told)] == [
        AclChange(CLUSTER),
        AclChange(READERS),
        AclChange(ORDERS),
    ]
    assert sorted(told) == [AclChange(resource).to_text() for resource in (CLUSTER, READERS, ORDERS)]


def test_the_releases_tool_lists_what_we_write(rules: Rules) -> None:
    acls = frozenset(
        Acl(principal, permission, WILDCARD_HOST, operation)
        for principal in (ALICE, WILDCARD_PRINCIPAL)
        for permission in Permission
        for operation in Operation
        if operation <= Operation.CLUSTER_ACTION
    )
    rules.store.create(acl_path(ORDERS), ResourceAcls(acls).to_json(), make_parents=True)
    printed = rules.tool("--list", "--topic", ORDERS.name)
    listed = {line.strip() for line in printed.splitlines() if "permission for operations" in line}
    assert listed == {
        f"{acl.principal} has {acl.permission.label} permission for operations: {acl.operation.label} "
        f"from hosts: {acl.host}"
        for acl in acls
    }
