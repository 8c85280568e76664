"""The text of ACLs, and filters of ACLs."""

from __future__ import annotations

import pytest

from minikafka.base.acls import (
    WILDCARD_RESOURCE,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

ORDERS = Resource(ResourceType.TOPIC, "orders")
EVERY_TOPIC = Resource(ResourceType.TOPIC, WILDCARD_RESOURCE)
OR = Resource(ResourceType.TOPIC, "or", PatternType.PREFIXED)
RULE = Acl("User:alice", Permission.ALLOW, "10.0.0.1", Operation.READ)


def test_labels_are_those_of_zookeeper() -> None:
    assert [operation.label for operation in Operation if operation <= Operation.CLUSTER_ACTION] == [
        "All",
        "Read",
        "Write",
        "Create",
        "Delete",
        "Alter",
        "Describe",
        "ClusterAction",
    ]
    assert ResourceType.TRANSACTIONAL_ID.label == "TransactionalId"


def test_rules_and_resources_are_shown_in_words() -> None:
    assert str(ORDERS) == "Topic:orders"
    assert str(OR) == "Topic:or (prefixed)"
    assert str(RULE) == "User:alice: allow Read from 10.0.0.1"


def test_an_empty_filter_finds_everything() -> None:
    assert AclFilter().matches(ORDERS, RULE)


@pytest.mark.parametrize(
    ("equal", "other"),
    [
        (AclFilter(resource_type=ResourceType.TOPIC), AclFilter(resource_type=ResourceType.GROUP)),
        (AclFilter(resource_name="orders"), AclFilter(resource_name="order")),
        (AclFilter(principal="User:alice"), AclFilter(principal="User:*")),
        (AclFilter(host="10.0.0.1"), AclFilter(host="*")),
        (AclFilter(operation=Operation.READ), AclFilter(operation=Operation.ALL)),
        (AclFilter(permission=Permission.ALLOW), AclFilter(permission=Permission.DENY)),
        (AclFilter(pattern=PatternType.LITERAL), AclFilter(pattern=PatternType.PREFIXED)),
        (AclFilter.of(ORDERS), AclFilter.of(Resource(ResourceType.TOPIC, "orders", PatternType.PREFIXED))),
    ],
    ids=["type", "name", "principal", "host", "operation", "permission", "pattern", "resource"],
)
def test_a_filter_finds_what_is_equal(equal: AclFilter, other: AclFilter) -> None:
    assert equal.matches(ORDERS, RULE)
    assert not other.matches(ORDERS, RULE)


def test_match_filter_finds_wildcard_rules() -> None:
    assert AclFilter(resource_name="orders", match=True).matches(EVERY_TOPIC, RULE)
    assert AclFilter(resource_name="orders", match=True).matches(ORDERS, RULE)
    assert not AclFilter(resource_name="orders").matches(EVERY_TOPIC, RULE)
    assert not AclFilter(resource_name=WILDCARD_RESOURCE, match=True).matches(ORDERS, RULE)


def test_match_filter_finds_rules_of_prefixes() -> None:
    assert AclFilter(resource_name="orders", match=True).matches(OR, RULE)
    assert not AclFilter(resource_name="o", match=True).matches(OR, RULE)
    assert not AclFilter(resource_name="orders").matches(OR, RULE)
    assert AclFilter(resource_name="or").matches(OR, RULE)
    assert AclFilter(match=True).matches(OR, RULE)
