"""The ACL znodes of 0.10.1's authorizer."""

from __future__ import annotations

import pytest

from minikafka.base.acls import CLUSTER, Acl, Operation, Permission, Resource, ResourceType
from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.registry.acl_paths import AclChange, ResourceAcls, acl_path, resource_type_of

ALICE = Acl("User:alice", Permission.ALLOW, "10.0.0.1", Operation.READ)
BOB = Acl("User:bob", Permission.DENY, "*", Operation.ALL)
# The form is that of kafka-acls of 0.10.1.1, down to the byte.
DATA = (
    b'{"version":1,"acls":['
    b'{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"10.0.0.1"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"All","host":"*"}]}'
)


def test_acls_are_read_and_written_as_by_0_10_1() -> None:
    acls = ResourceAcls(frozenset({ALICE, BOB}))
    assert acls.to_json() == DATA
    assert ResourceAcls.from_json(DATA, "/p") == acls


def test_znode_without_data_has_no_acls() -> None:
    assert ResourceAcls.from_json(b"", "/p") == ResourceAcls()


def test_labels_are_read_in_any_case() -> None:
    shouted = DATA.replace(b'"Allow"', b'"ALLOW"').replace(b'"Read"', b'"read"')
    assert ResourceAcls.from_json(shouted, "/p") == ResourceAcls.from_json(DATA, "/p")


def test_acls_are_stored_below_their_resource_type() -> None:
    assert acl_path(Resource(ResourceType.TOPIC, "orders")) == "/kafka-acl/Topic/orders"
    assert acl_path(Resource(ResourceType.GROUP, "*")) == "/kafka-acl/Group/*"
    assert acl_path(CLUSTER) == "/kafka-acl/Cluster/kafka-cluster"
    assert resource_type_of("Topic") is ResourceType.TOPIC


def test_unknown_resource_type_is_refused() -> None:
    with pytest.raises(
        CoordinationError, match=r"/kafka-acl/Planet: .*'Planet'; expected one of Topic, Group, Cluster"
    ):
        resource_type_of("Planet")


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\0b"])
def test_a_name_that_cannot_be_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        acl_path(Resource(ResourceType.GROUP, name))


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"[]",
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"acls":[]}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{}]}',
        DATA.replace(b'"User:bob"', b'"bob"'),
        DATA.replace(b'"User:bob"', b"7"),
        DATA.replace(b'"Deny"', b'"Perhaps"'),
        DATA.replace(b'"All"', b'"Dance"'),
        DATA.replace(b'"*"', b"null"),
        DATA.replace(b'"*"', b'""'),
    ],
    ids=lambda data: data[-60:].decode(),
)
def test_invalid_acls_are_refused_with_their_path(data: bytes) -> None:
    with pytest.raises(CoordinationError, match="/kafka-acl/Topic/orders"):
        ResourceAcls.from_json(data, "/kafka-acl/Topic/orders")


@pytest.mark.parametrize(
    ("data", "resource"),
    [
        (b"Topic:orders", Resource(ResourceType.TOPIC, "orders")),
        (b"Group:a:b", Resource(ResourceType.GROUP, "a:b")),
        (b"Cluster:kafka-cluster", CLUSTER),
        ("Group:größer".encode(), Resource(ResourceType.GROUP, "größer")),
    ],
    ids=["a topic", "a name with a colon", "the cluster", "a name outside ASCII"],
)
def test_acl_change_is_plain_text(data: bytes, resource: Resource) -> None:
    assert AclChange.from_json(data, "/p") == AclChange(resource)
    assert AclChange(resource).to_json() == data


@pytest.mark.parametrize("data", [b"", b"orders", b"Topic:", b"Planet:x", b"\xff\xfe", b"{}"])
def test_invalid_acl_change_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(CoordinationError, match="/kafka-acl-changes/acl_changes_0000000007"):
        AclChange.from_json(data, "/kafka-acl-changes/acl_changes_0000000007")
