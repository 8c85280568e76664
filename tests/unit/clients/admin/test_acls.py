"""``clients/admin/acls``: ACLs by the protocol, against scripted responses."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.acls import Acl, AclFilter, Operation, PatternType, Permission, Resource, ResourceType
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.admin.acls import AclBinding, BrokerAcls
from minikafka.clients.admin.admin import Admin
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_acls import AclCreation, AclCreationResult, CreateAclsResponse
from minikafka.wire.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from minikafka.wire.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.support.broker_harness import BrokerHarness

TOPIC = Resource(ResourceType.TOPIC, "t")
READ = AclBinding(TOPIC, Acl("User:alice", Permission.ALLOW, "*", Operation.READ))
WRITE = AclBinding(TOPIC, Acl("User:bob", Permission.DENY, "10.0.0.1", Operation.WRITE))


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(1, {"t": 1})


@pytest.fixture
def admin(brokers: BrokerHarness) -> Admin:
    return Admin(brokers.client())


def asked(brokers: BrokerHarness, key: ApiKey, response: Any) -> list[Any]:
    """Answer ``key`` with ``response``; the requests that come."""
    requests: list[Any] = []

    def answer(_: int, request: Any) -> Any:
        requests.append(request)
        return response

    brokers.script(key, answer)
    return requests


def matching(binding: AclBinding, code: ErrorCode = ErrorCode.NONE) -> DeleteAclsMatchingAcl:
    resource, acl = binding.resource, binding.acl
    about = (code, None, resource.type, resource.name, 3)
    return DeleteAclsMatchingAcl(*about, acl.principal, acl.host, acl.operation, acl.permission)


def test_rules_come_in_order_and_newer_kinds_are_left_out(brokers: BrokerHarness, admin: Admin) -> None:
    acls = (
        AclDescription("User:bob", "10.0.0.1", 4, 2),
        AclDescription("User:alice", "*", 3, 3),
        AclDescription("User:carol", "*", 99, 3),
    )
    rows = (DescribeAclsResource(2, "t", 3, acls), DescribeAclsResource(2, "t", 4, acls[1:2]))
    requests = asked(brokers, ApiKey.DESCRIBE_ACLS, DescribeAclsResponse(0, 0, None, rows))
    prefixed = AclBinding(Resource(ResourceType.TOPIC, "t", PatternType.PREFIXED), READ.acl)
    assert admin.describe_acls() == [READ, WRITE, prefixed]
    assert requests == [DescribeAclsRequest(1, None, 1, None, None, 1, 1)]


@pytest.mark.parametrize(
    ("meant", "pattern"),
    [
        ({}, 1),
        ({"match": True}, 2),
        ({"pattern": PatternType.LITERAL}, 3),
        ({"pattern": PatternType.PREFIXED}, 4),
    ],
)
def test_a_filter_says_how_its_name_is_meant(
    brokers: BrokerHarness, admin: Admin, meant: dict[str, Any], pattern: int
) -> None:
    requests = asked(brokers, ApiKey.DESCRIBE_ACLS, DescribeAclsResponse(0, 0, None, ()))
    wanted = AclFilter(ResourceType.TOPIC, "t", "User:a", "*", Operation.READ, Permission.DENY, **meant)
    assert admin.describe_acls(wanted) == []
    assert requests == [DescribeAclsRequest(2, "t", pattern, "User:a", "*", 3, 2)]


def test_a_broker_without_an_authorizer_says_so(admin: Admin) -> None:
    with pytest.raises(BrokerError, match="SECURITY_DISABLED: no authorizer is configured on this broker"):
        admin.describe_acls()


@pytest.mark.parametrize(
    ("code", "enforced"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
        (ErrorCode.SECURITY_DISABLED, False),
    ],
)
def test_health_says_whether_rules_may_hide_topics(
    brokers: BrokerHarness, admin: Admin, code: ErrorCode, enforced: bool
) -> None:
    asked(brokers, ApiKey.DESCRIBE_ACLS, DescribeAclsResponse(0, code, None, ()))
    assert admin.health().access_rules is enforced


def test_brokers_without_describe_acls_count_as_without_acls(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.unknown.add(ApiKey.DESCRIBE_ACLS)
    assert not admin.health().access_rules


def test_each_rule_that_is_made_has_its_outcome(brokers: BrokerHarness, admin: Admin) -> None:
    results = (AclCreationResult(0), AclCreationResult(ErrorCode.INVALID_REQUEST, "not so"))
    requests = asked(brokers, ApiKey.CREATE_ACLS, CreateAclsResponse(0, results))
    outcomes = admin.create_acls([READ, WRITE])
    assert outcomes[READ] is None
    assert str(outcomes[WRITE]) == "INVALID_REQUEST: not so"
    assert requests[0].creations == (
        AclCreation(2, "t", 3, "User:alice", "*", 3, 3),
        AclCreation(2, "t", 3, "User:bob", "10.0.0.1", 4, 2),
    )
    asked(brokers, ApiKey.CREATE_ACLS, CreateAclsResponse(0, results))
    with pytest.raises(BrokerError, match="not so"):
        BrokerAcls(brokers.client()).add([READ, WRITE])


def test_each_filter_that_removes_has_its_outcome(brokers: BrokerHarness, admin: Admin) -> None:
    results = (
        DeleteAclsFilterResult(0, None, (matching(WRITE), matching(READ))),
        DeleteAclsFilterResult(0, None, (matching(READ, ErrorCode.REQUEST_TIMED_OUT),)),
        DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, "not so", ()),
    )
    asked(brokers, ApiKey.DELETE_ACLS, DeleteAclsResponse(0, results))
    filters = [AclFilter(), READ.filter, WRITE.filter]
    outcomes = admin.delete_acls(filters)
    assert outcomes[filters[0]] == [READ, WRITE]
    assert [str(outcomes[filter_]) for filter_ in filters[1:]] == [
        "REQUEST_TIMED_OUT",
        "INVALID_REQUEST: not so",
    ]
    asked(brokers, ApiKey.DELETE_ACLS, DeleteAclsResponse(0, results))
    with pytest.raises(BrokerError, match="REQUEST_TIMED_OUT"):
        BrokerAcls(brokers.client()).remove([READ, WRITE])
