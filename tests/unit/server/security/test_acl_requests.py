"""Access rules made, found and removed over the protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.acls import (
    ANONYMOUS,
    CLUSTER,
    Acl,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import ErrorCode
from minikafka.registry.acls import acl_path, read_acls
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_acls import AclCreation, CreateAclsRequest
from minikafka.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.describe_acls import ANY, MATCH, DescribeAclsRequest
from tests.support.requests import Request
from tests.support.simulation import Simulation

AUTHORIZER = {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer", "super.users": ANONYMOUS}
TOPIC = Resource(ResourceType.TOPIC, "t")
EVERY = Resource(ResourceType.TOPIC, "*")
PREFIX = Resource(ResourceType.TOPIC, "t", PatternType.PREFIXED)
READ = Acl("User:alice", Permission.ALLOW, "*", Operation.READ)
WRITE = Acl("User:bob", Permission.DENY, "10.0.0.1", Operation.WRITE)
EVERYTHING = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving(properties=AUTHORIZER)


def creation(resource: Resource, acl: Acl) -> AclCreation:
    about = (resource.type, resource.name, resource.pattern)
    return AclCreation(*about, acl.principal, acl.host, acl.operation, acl.permission)


def create(world: Simulation, *creations: AclCreation) -> list[tuple[ErrorCode, str | None]]:
    answer = world.call(Request(ApiKey.CREATE_ACLS, 1, CreateAclsRequest(creations)))
    return [(ErrorCode(result.error_code), result.error_message) for result in answer.results]


def described(world: Simulation, wanted: DescribeAclsRequest = EVERYTHING) -> set[tuple[Resource, Acl]]:
    answer = world.call(Request(ApiKey.DESCRIBE_ACLS, 1, wanted))
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        (
            Resource(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
            ),
            Acl(acl.principal, Permission(acl.permission_type), acl.host, Operation(acl.operation)),
        )
        for resource in answer.resources
        for acl in resource.acls
    }


def delete(world: Simulation, *filters: DeleteAclsFilter) -> Any:
    return world.call(Request(ApiKey.DELETE_ACLS, 1, DeleteAclsRequest(filters))).filter_results


def test_rules_that_are_made_are_found_and_stand_in_zookeeper(world: Simulation) -> None:
    fine = (ErrorCode.NONE, None)
    assert create(world, creation(TOPIC, READ), creation(TOPIC, WRITE), creation(CLUSTER, READ)) == [fine] * 3
    wanted = {(TOPIC, READ), (TOPIC, WRITE), (CLUSTER, READ)}
    assert described(world) == wanted
    stored = read_acls(world.zookeeper.connect()).acls
    assert stored == {TOPIC: {READ, WRITE}, CLUSTER: {READ}}


def test_other_brokers_are_told(world: Simulation) -> None:
    world.machine_of(1).start(AUTHORIZER)
    create(world, creation(TOPIC, READ))
    world.settle()
    world.move_to("machine-1")
    assert described(world) == {(TOPIC, READ)}


def test_a_rule_that_is_there_is_made_again_without_an_error(world: Simulation) -> None:
    create(world, creation(TOPIC, READ))
    assert create(world, creation(TOPIC, READ)) == [(ErrorCode.NONE, None)]
    assert described(world) == {(TOPIC, READ)}


GOOD = creation(TOPIC, READ)


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (replace(GOOD, resource_type=1), ErrorCode.INVALID_REQUEST, "invalid resource type 1"),
        (replace(GOOD, resource_type=9), ErrorCode.INVALID_REQUEST, "invalid resource type 9"),
        (replace(GOOD, resource_name=""), ErrorCode.INVALID_REQUEST, "name is empty"),
        (replace(GOOD, resource_name="a/b"), ErrorCode.INVALID_REQUEST, "a/b"),
        (replace(GOOD, resource_type=4), ErrorCode.INVALID_REQUEST, "kafka-cluster"),
        (replace(GOOD, resource_pattern_type=ANY), ErrorCode.INVALID_REQUEST, "LITERAL"),
        (replace(GOOD, principal="alice"), ErrorCode.INVALID_REQUEST, "alice"),
        (replace(GOOD, principal="User:"), ErrorCode.INVALID_REQUEST, "User:"),
        (replace(GOOD, host=""), ErrorCode.INVALID_REQUEST, "host"),
        (replace(GOOD, operation=1), ErrorCode.INVALID_REQUEST, "invalid operation 1"),
        (replace(GOOD, permission_type=1), ErrorCode.INVALID_REQUEST, "invalid permission 1"),
    ],
    ids=str,
)
def test_a_bad_rule_fails_for_itself(
    world: Simulation, bad: AclCreation, code: ErrorCode, words: str
) -> None:
    (failed, message), fine = create(world, bad, creation(CLUSTER, READ))
    assert failed is code
    assert message is not None
    assert words in message
    assert fine == (ErrorCode.NONE, None)
    assert described(world) == {(CLUSTER, READ)}


def test_filters_find_by_name_and_match_what_is_about_all(world: Simulation) -> None:
    create(world, creation(TOPIC, READ), creation(EVERY, WRITE), creation(CLUSTER, READ))
    named = replace(EVERYTHING, resource_type_filter=2, resource_name_filter="t")
    assert described(world, replace(named, pattern_type_filter=PatternType.LITERAL)) == {(TOPIC, READ)}
    assert described(world, replace(named, pattern_type_filter=MATCH)) == {(TOPIC, READ), (EVERY, WRITE)}
    assert described(world, replace(named, pattern_type_filter=PatternType.PREFIXED)) == set()
    assert described(world, replace(EVERYTHING, operation=4)) == {(EVERY, WRITE)}
    assert described(world, replace(EVERYTHING, principal_filter="User:alice")) == {
        (TOPIC, READ),
        (CLUSTER, READ),
    }


def test_rules_of_prefixes_are_created_found_and_deleted(world: Simulation) -> None:
    assert create(world, creation(TOPIC, READ), creation(PREFIX, WRITE)) == [(ErrorCode.NONE, None)] * 2
    assert read_acls(world.zookeeper.connect()).acls == {TOPIC: {READ}, PREFIX: {WRITE}}
    assert described(world) == {(TOPIC, READ), (PREFIX, WRITE)}
    named = replace(EVERYTHING, resource_type_filter=2, resource_name_filter="t")
    assert described(world, named) == {(TOPIC, READ), (PREFIX, WRITE)}
    assert described(world, replace(named, pattern_type_filter=PatternType.PREFIXED)) == {(PREFIX, WRITE)}
    longer = replace(named, resource_name_filter="tt", pattern_type_filter=MATCH)
    assert described(world, longer) == {(PREFIX, WRITE)}
    (result,) = delete(world, DeleteAclsFilter(ANY, None, PatternType.PREFIXED, None, None, ANY, ANY))
    assert [(acl.resource_name, acl.pattern_type) for acl in result.matching_acls] == [
        ("t", PatternType.PREFIXED)
    ]
    assert described(world) == {(TOPIC, READ)}


def test_old_versions_see_only_rules_of_names(world: Simulation) -> None:
    create(world, creation(TOPIC, READ), creation(PREFIX, WRITE))
    answer = world.call(
        Request(ApiKey.DESCRIBE_ACLS, 0, replace(EVERYTHING, pattern_type_filter=PatternType.LITERAL))
    )
    assert [len(resource.acls) for resource in answer.resources] == [1]


@pytest.mark.parametrize(
    ("release", "code"), [("1.1", ErrorCode.UNSUPPORTED_VERSION), ("2.0", ErrorCode.NONE)]
)
def test_rules_of_prefixes_are_refused_beside_old_brokers(release: str, code: ErrorCode) -> None:
    world = Simulation.serving(properties={**AUTHORIZER, "inter.broker.protocol.version": release})
    ((found, message),) = create(world, creation(PREFIX, READ))
    assert found is code
    assert (message is None) == (code is ErrorCode.NONE)


def test_a_filter_of_nonsense_is_refused(world: Simulation) -> None:
    answer = world.call(Request(ApiKey.DESCRIBE_ACLS, 0, replace(EVERYTHING, operation=77)))
    assert (answer.error_code, answer.resources) == (ErrorCode.INVALID_REQUEST, ())


def test_rules_are_removed_and_each_filter_is_answered_for_itself(world: Simulation) -> None:
    create(world, creation(TOPIC, READ), creation(TOPIC, WRITE), creation(CLUSTER, READ))
    alices = DeleteAclsFilter(ANY, None, ANY, "User:alice", None, ANY, ANY)
    nobodys = replace(alices, principal_filter="User:nobody")
    first, second, third = delete(world, alices, nobodys, replace(alices, operation=77))
    assert sorted(request.resource_name for request in first.matching_acls) == ["kafka-cluster", "t"]
    assert (second.error_code, second.matching_acls) == (ErrorCode.NONE, ())
    assert third.error_code == ErrorCode.INVALID_REQUEST
    assert described(world) == {(TOPIC, WRITE)}
    assert world.zookeeper.connect().exists(acl_path(CLUSTER)) is None


def test_a_rule_that_somebody_else_made_meanwhile_stays(world: Simulation) -> None:
    create(world, creation(TOPIC, READ))
    world.watches_are_held = True  # this broker does not hear of it
    other = world.machine_of(1)
    other.start(AUTHORIZER)
    client = world.another_client()
    client.move_to("machine-1")
    client.call(Request(ApiKey.CREATE_ACLS, 1, CreateAclsRequest((creation(TOPIC, WRITE),))))
    delete(world, DeleteAclsFilter(ANY, None, ANY, "User:alice", None, ANY, ANY))
    assert read_acls(world.zookeeper.connect()).acls == {TOPIC: {WRITE}}


def test_a_resource_whose_rules_cannot_be_read_gets_no_others(world: Simulation) -> None:
    world.zookeeper.connect().create(acl_path(TOPIC), b"{nonsense", make_parents=True)
    ((code, message),) = create(world, creation(TOPIC, READ))
    assert code is ErrorCode.INVALID_REQUEST
    assert message is not None
    assert acl_path(TOPIC) in message


def test_without_an_authorizer_there_are_no_rules() -> None:
    world = Simulation.serving()
    ((code, message),) = create(world, creation(TOPIC, READ))
    assert code is ErrorCode.SECURITY_DISABLED
    assert message is not None
    assert "authorizer.class.name" in message
    (removed,) = delete(world, DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY))
    found = world.call(Request(ApiKey.DESCRIBE_ACLS, 1, EVERYTHING))
    assert {removed.error_code, found.error_code} == {ErrorCode.SECURITY_DISABLED}


def test_acl_is_created_after_a_time_out_without_zookeeper(world: Simulation) -> None:
    world.zookeeper.suspend(world.machine.store)
    ((code, message),) = create(world, creation(TOPIC, READ))
    assert code is ErrorCode.REQUEST_TIMED_OUT
    assert message is not None
    world.zookeeper.resume(world.machine.store)
    world.settle()
    assert described(world) == {(TOPIC, READ)}
