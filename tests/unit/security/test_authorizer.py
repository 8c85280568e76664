"""The authorizer: the cases that Kafka's own tests of SimpleAclAuthorizer name, and those beside them."""

from __future__ import annotations

import pytest

from minikafka.base.acls import (
    CLUSTER,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    WILDCARD_RESOURCE,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import ConfigError
from minikafka.security.authorizer import DENY_ALL, Authorizer, normalize_host, parse_super_users

ALICE, BOB, ROOT = "User:alice", "User:bob", "User:root"
HERE, THERE = "192.168.1.1", "192.168.1.2"
ORDERS = Resource(ResourceType.TOPIC, "orders")
EVERY_TOPIC = Resource(ResourceType.TOPIC, WILDCARD_RESOURCE)
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.ALL,
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
DOABLE = [operation for operation in Operation if operation is not ALL]


def allow(principal: str, operation: Operation, host: str = WILDCARD_HOST) -> Acl:
    return Acl(principal, Permission.ALLOW, host, operation)


def deny(principal: str, operation: Operation, host: str = WILDCARD_HOST) -> Acl:
    return Acl(principal, Permission.DENY, host, operation)


def about(resource: Resource, *acls: Acl) -> Authorizer:
    return Authorizer(super_users=frozenset({ROOT})).with_acls(resource, frozenset(acls))


def test_nobody_may_where_there_is_no_rule() -> None:
    assert not Authorizer().allows(ALICE, HERE, READ, ORDERS)


def test_everybody_may_where_there_is_no_rule_if_so_configured() -> None:
    anybody = Authorizer(allow_everyone_if_no_acl_found=True)
    assert anybody.allows(ALICE, HERE, READ, ORDERS)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ({}, False),
        ({ORDERS: [allow(ALICE, WRITE)]}, True),
        ({ORDERS: [allow(ALICE, ALL, HERE)]}, True),
        ({ORDERS: [allow(ALICE, WRITE, THERE)]}, False),
        ({ORDERS: [allow(ALICE, READ)]}, False),
        ({ORDERS: [allow(BOB, WRITE)]}, False),
        ({ORDERS: [allow(WILDCARD_PRINCIPAL, WRITE), deny(ALICE, ALL)]}, False),
        ({EVERY_TOPIC: [allow(ALICE, WRITE)], ORDERS: [deny(ALICE, WRITE)]}, True),
        ({ORDERS: [allow(ALICE, WRITE)], EVERY_TOPIC: [deny(ALICE, WRITE)]}, False),
        ({Resource(ResourceType.GROUP, "g"): [allow(ALICE, WRITE)]}, False),
    ],
)
def test_one_resource_of_a_type_is_enough(acls: dict[Resource, list[Acl]], allowed: bool) -> None:
    authorizer = Authorizer(super_users=frozenset({ROOT}))
    for resource, rules in acls.items():
        authorizer = authorizer.with_acls(resource, frozenset(rules))
    assert authorizer.allows_on_any(ALICE, HERE, WRITE, ResourceType.TOPIC) == allowed
    assert authorizer.allows_on_any(ROOT, HERE, WRITE, ResourceType.TOPIC)


OR, ORD = (Resource(ResourceType.TOPIC, name, PatternType.PREFIXED) for name in ("or", "ord"))


def test_rule_of_a_prefix_holds_for_names_that_begin_with_it() -> None:
    rules = about(OR, allow(ALICE, READ))
    for name, allowed in (("orders", True), ("or", True), ("o", False), ("to", False), ("", False)):
        assert rules.allows(ALICE, HERE, READ, Resource(ResourceType.TOPIC, name)) == allowed
    assert not rules.allows(ALICE, HERE, READ, Resource(ResourceType.GROUP, "orders"))
    assert not rules.allows(ALICE, HERE, WRITE, ORDERS)


@pytest.mark.parametrize("denied", [OR, ORD, ORDERS, EVERY_TOPIC], ids=str)
@pytest.mark.parametrize("allowed", [OR, ORD, ORDERS, EVERY_TOPIC], ids=str)
def test_denial_wins_whatever_pattern_it_has(allowed: Resource, denied: Resource) -> None:
    both = {allowed: frozenset({allow(ALICE, READ)})}
    assert Authorizer().with_all_acls(both).allows(ALICE, HERE, READ, ORDERS)
    both[denied] = both.get(denied, frozenset()) | {deny(ALICE, READ)}
    assert not Authorizer().with_all_acls(both).allows(ALICE, HERE, READ, ORDERS)


def test_rule_of_a_prefix_ends_access_for_everyone() -> None:
    anybody = Authorizer(allow_everyone_if_no_acl_found=True)
    assert not anybody.with_acls(OR, frozenset({allow(BOB, READ)})).allows(ALICE, HERE, READ, ORDERS)
    assert anybody.with_acls(OR, frozenset({allow(BOB, READ)})).allows(
        ALICE, HERE, READ, Resource(ResourceType.TOPIC, "t")
    )


def test_rule_of_a_prefix_that_went_holds_no_more() -> None:
    rules = about(OR, allow(ALICE, READ)).with_acls(ORD, frozenset({allow(BOB, READ)}))
    rules = rules.with_acls(OR, frozenset())
    assert not rules.allows(ALICE, HERE, READ, ORDERS)
    assert rules.allows(BOB, HERE, READ, ORDERS)


@pytest.mark.parametrize(
    ("allowed", "denied", "any_of_them"),
    [
        (OR, None, True),
        (OR, ORDERS, True),
        (OR, ORD, True),
        (ORD, OR, False),
        (OR, OR, False),
        (OR, EVERY_TOPIC, False),
        (ORDERS, OR, False),
        (ORDERS, ORD, False),
    ],
    ids=str,
)
def test_a_prefix_is_one_resource_of_a_type(
    allowed: Resource, denied: Resource | None, any_of_them: bool
) -> None:
    acls = {allowed: frozenset({allow(ALICE, WRITE)})}
    if denied is not None:
        acls[denied] = acls.get(denied, frozenset()) | {deny(ALICE, WRITE)}
    rules = Authorizer().with_all_acls(acls)
    assert rules.allows_on_any(ALICE, HERE, WRITE, ResourceType.TOPIC) == any_of_them


def test_if_everybody_may_only_a_rule_about_all_resources_denies() -> None:
    anybody = Authorizer(allow_everyone_if_no_acl_found=True)
    assert anybody.allows_on_any(ALICE, HERE, WRITE, ResourceType.TOPIC)
    denied = frozenset({deny(ALICE, WRITE)})
    assert anybody.with_acls(ORDERS, denied).allows_on_any(ALICE, HERE, WRITE, ResourceType.TOPIC)
    assert not anybody.with_acls(EVERY_TOPIC, denied).allows_on_any(ALICE, HERE, WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize("resource", [ORDERS, EVERY_TOPIC], ids=["about it", "about every topic"])
def test_acl_for_another_principal_ends_access_for_everyone(resource: Resource) -> None:
    anybody = Authorizer(allow_everyone_if_no_acl_found=True)
    assert not anybody.with_acls(resource, frozenset({allow(BOB, READ)})).allows(ALICE, HERE, READ, ORDERS)


def test_a_rule_about_another_resource_says_nothing() -> None:
    same_name = Resource(ResourceType.GROUP, ORDERS.name)
    for other in (same_name, Resource(ResourceType.TOPIC, "order"), Resource(ResourceType.GROUP, "*")):
        assert not about(other, allow(ALICE, READ)).allows(ALICE, HERE, READ, ORDERS)


def test_a_rule_holds_for_its_principal_only() -> None:
    rules = about(ORDERS, allow(ALICE, READ))
    assert rules.allows(ALICE, HERE, READ, ORDERS)
    assert not rules.allows(BOB, HERE, READ, ORDERS)
    assert not rules.allows("Group:alice", HERE, READ, ORDERS)


def test_a_rule_holds_for_its_host_only() -> None:
    rules = about(ORDERS, allow(ALICE, READ, HERE))
    assert rules.allows(ALICE, HERE, READ, ORDERS)
    assert not rules.allows(ALICE, THERE, READ, ORDERS)


def test_a_rule_holds_for_its_operation_only() -> None:
    rules = about(ORDERS, allow(ALICE, READ))
    assert not rules.allows(ALICE, HERE, WRITE, ORDERS)


def test_the_rule_that_allows_all_to_anybody_anywhere_does() -> None:
    rules = about(ORDERS, allow(WILDCARD_PRINCIPAL, ALL))
    assert all(rules.allows("User:random", "192.0.4.4", operation, ORDERS) for operation in DOABLE)


def test_denying_goes_before_allowing() -> None:
    rules = about(ORDERS, allow(WILDCARD_PRINCIPAL, ALL), deny(ALICE, ALL, HERE))
    assert not rules.allows(ALICE, HERE, READ, ORDERS)
    assert rules.allows(ALICE, THERE, READ, ORDERS)
    assert rules.allows(BOB, HERE, READ, ORDERS)


def test_denying_one_operation_leaves_the_others() -> None:
    rules = about(ORDERS, allow(ALICE, ALL), deny(ALICE, WRITE))
    assert not rules.allows(ALICE, HERE, WRITE, ORDERS)
    assert rules.allows(ALICE, HERE, READ, ORDERS)


def test_denying_alone_allows_nothing_else() -> None:
    assert not about(ORDERS, deny(BOB, READ)).allows(ALICE, HERE, READ, ORDERS)


def test_rules_about_every_topic_hold_for_each() -> None:
    assert about(EVERY_TOPIC, allow(ALICE, READ, HERE)).allows(ALICE, HERE, READ, ORDERS)


def test_what_is_denied_for_every_topic_cannot_be_allowed_for_one() -> None:
    rules = about(EVERY_TOPIC, deny(ALICE, WRITE, HERE))
    rules = rules.with_acls(ORDERS, frozenset({allow(ALICE, WRITE, HERE)}))
    assert not rules.allows(ALICE, HERE, WRITE, ORDERS)


def test_the_cluster_may_be_named_by_its_wildcard() -> None:
    every = Resource(ResourceType.CLUSTER, WILDCARD_RESOURCE)
    assert about(every, allow(ALICE, CREATE)).allows(ALICE, HERE, CREATE, CLUSTER)


def test_a_super_user_may_whatever_the_rules_say() -> None:
    assert about(ORDERS, deny(WILDCARD_PRINCIPAL, ALL)).allows(ROOT, HERE, READ, ORDERS)
    assert about(ORDERS, deny(ROOT, ALL)).allows(ROOT, HERE, READ, ORDERS)


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        (READ, {DESCRIBE}),
        (WRITE, {DESCRIBE}),
        (DELETE, {DESCRIBE}),
        (ALTER, {DESCRIBE}),
        (DESCRIBE, set()),
        (CREATE, set()),
        (Operation.CLUSTER_ACTION, set()),
        (Operation.ALTER_CONFIGS, {Operation.DESCRIBE_CONFIGS}),
        (Operation.DESCRIBE_CONFIGS, set()),
        (Operation.IDEMPOTENT_WRITE, set()),
        (ALL, set(DOABLE)),
    ],
    ids=lambda value: value.label if isinstance(value, Operation) else "",
)
def test_what_is_allowed_implies_what_is_less(given: Operation, implied: set[Operation]) -> None:
    rules = about(ORDERS, allow(ALICE, given))
    allowed = {operation for operation in DOABLE if rules.allows(ALICE, HERE, operation, ORDERS)}
    assert allowed == (implied | {given}) - {ALL}


@pytest.mark.parametrize("denied", Operation, ids=lambda operation: operation.label)
def test_what_is_denied_implies_nothing_unless_it_is_all(denied: Operation) -> None:
    rules = about(ORDERS, allow(ALICE, ALL), deny(ALICE, denied))
    refused = {operation for operation in DOABLE if not rules.allows(ALICE, HERE, operation, ORDERS)}
    assert refused == (set(DOABLE) if denied is ALL else {denied})


def test_denied_describe_is_not_given_by_reading() -> None:
    rules = about(ORDERS, allow(ALICE, READ), deny(ALICE, DESCRIBE))
    assert rules.allows(ALICE, HERE, READ, ORDERS)
    assert not rules.allows(ALICE, HERE, DESCRIBE, ORDERS)


def test_unreadable_acls_deny_all_except_super_users() -> None:
    rules = about(EVERY_TOPIC, allow(WILDCARD_PRINCIPAL, ALL)).with_acls(ORDERS, DENY_ALL)
    assert not rules.allows(ALICE, HERE, READ, ORDERS)
    assert rules.allows(ROOT, HERE, READ, ORDERS)


def test_new_rules_replace_those_of_their_resource_and_no_others() -> None:
    before = about(ORDERS, allow(ALICE, READ)).with_acls(CLUSTER, frozenset({allow(BOB, CREATE)}))
    after = before.with_acls(ORDERS, frozenset({allow(BOB, READ)}))
    assert not after.allows(ALICE, HERE, READ, ORDERS)
    assert after.allows(BOB, HERE, READ, ORDERS)
    assert after.allows(BOB, HERE, CREATE, CLUSTER)
    assert before.allows(ALICE, HERE, READ, ORDERS), "a value does not change"


def test_a_resource_whose_last_rule_went_is_forgotten() -> None:
    assert about(ORDERS, allow(ALICE, READ)).with_acls(ORDERS, frozenset()).acls == {}


def test_a_rule_that_several_filters_find_is_found_once() -> None:
    rules = about(ORDERS, allow(ALICE, READ), deny(BOB, WRITE))
    filters = [AclFilter(principal=ALICE), AclFilter(operation=READ), AclFilter(host=HERE)]
    assert list(rules.matching_acls(filters)) == [(ORDERS, allow(ALICE, READ))]
    assert list(rules.matching_acls([])) == []


def test_super_users_stand_between_semicolons() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == {"User:a", "User:CN=b,O=c"}
    assert parse_super_users("") == frozenset()


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"super\.users='alice': must be principals as User:NAME"):
        parse_super_users("User:bob;alice")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:192.168.1.1", "192.168.1.1"),
        ("a-host", "a-host"),
    ],
)
def test_an_address_is_written_as_java_writes_it(address: str, host: str) -> None:
    assert normalize_host(address) == host
