"""DescribeUserScramCredentials and AlterUserScramCredentials: users, their errors, and no secrets."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.secrets import Password
from minikafka.registry.entity_configs import change_config, read_config
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from minikafka.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b"salt"


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving()


def upsertion(
    user: str, password: str = "tiger", *, mechanism: int = 1, iterations: int = 4096
) -> ScramCredentialUpsertion:
    hashed = SHA_512 if mechanism == 2 else SHA_256
    salted = hashed.salted_password(password.encode(), SALT, max(iterations, 1))
    return ScramCredentialUpsertion(user, mechanism, iterations, SALT, salted)


def alter(
    world: Simulation, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> dict[str, tuple[int, str | None]]:
    body = AlterUserScramCredentialsRequest(
        tuple(change for change in changes if isinstance(change, ScramCredentialDeletion)),
        tuple(change for change in changes if isinstance(change, ScramCredentialUpsertion)),
    )
    answer = world.call(Request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body))
    return {row.user: (row.error_code, row.error_message) for row in answer.results}


def described(world: Simulation, *users: str) -> list[tuple[Any, ...]]:
    names = tuple(map(ScramUserName, users))
    answer = world.call(
        Request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(names or None))
    )
    assert answer.error_code == ErrorCode.NONE
    return [
        (row.user, row.error_code, [(info.mechanism, info.iterations) for info in row.credential_infos])
        for row in answer.results
    ]


def test_a_password_that_was_set_is_known_at_once(world: Simulation) -> None:
    assert alter(world, upsertion("al/ice"), upsertion("al/ice", mechanism=2)) == {"al/ice": (0, None)}
    for mechanism in ScramMechanism:
        known = world.machine.broker.scram_credentials.credential(mechanism, "al/ice")
        assert known == ScramCredential.create(mechanism, Password("tiger"), SALT, 4096)
    stored = read_config(world.zookeeper.connect(), "users", "al%2Fice")
    assert stored["SCRAM-SHA-256"].startswith("salt=")


def test_all_users_are_listed_by_name_and_others_are_not_found(world: Simulation) -> None:
    alter(world, upsertion("bob", iterations=8192), upsertion("alice", mechanism=2), upsertion("alice"))
    change_config(world.zookeeper.connect(), "users", "carl", lambda _: {"producer_byte_rate": "1"})
    alice, bob = ("alice", 0, [(1, 4096), (2, 4096)]), ("bob", 0, [(1, 8192)])
    assert described(world) == [alice, bob]
    absent = ErrorCode.RESOURCE_NOT_FOUND
    assert described(world, "bob", "carl", "") == [bob, ("carl", absent, []), ("", absent, [])]
    assert described(world, "bob", "bob") == [("bob", ErrorCode.DUPLICATE_RESOURCE, [])]


def test_a_damaged_credential_is_an_error_of_its_user(world: Simulation) -> None:
    change_config(world.zookeeper.connect(), "users", "alice", lambda _: {"SCRAM-SHA-256": "hunter2"})
    answer = world.call(
        Request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(()))
    )
    assert [(row.user, row.error_code) for row in answer.results] == [("alice", ErrorCode.UNKNOWN)]
    assert "hunter2" not in repr(answer)


def test_a_deleted_credential_is_gone_and_quotas_stay(world: Simulation) -> None:
    change_config(world.zookeeper.connect(), "users", "alice", lambda _: {"producer_byte_rate": "1"})
    alter(world, upsertion("alice"), upsertion("alice", mechanism=2))
    assert alter(world, ScramCredentialDeletion("alice", 1)) == {"alice": (0, None)}
    assert described(world) == [("alice", 0, [(2, 4096)])]
    assert alter(world, ScramCredentialDeletion("alice", 2), upsertion("alice")) == {"alice": (0, None)}
    assert described(world) == [("alice", 0, [(1, 4096)])]
    assert read_config(world.zookeeper.connect(), "users", "alice")["producer_byte_rate"] == "1"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("alice", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("", iterations=4096), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ANONYMOUS"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialUpsertion("alice", 1, 4096, SALT, b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("alice", 1, 4096, b"", b"x" * 32), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion("alice", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion("<default>", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_one_fault_of_a_user_drops_all_changes_of_the_user(
    world: Simulation, change: ScramCredentialDeletion | ScramCredentialUpsertion, code: ErrorCode
) -> None:
    results = alter(world, upsertion(change.name or "x", mechanism=2), change, upsertion("bob"))
    assert results[change.name][0] == code
    assert results["bob"] == (0, None)
    assert "alice" not in [user for user, *_ in described(world)]


def test_salted_password_may_have_any_length(world: Simulation) -> None:
    change = ScramCredentialUpsertion("alice", 2, 15_000, b"my-salt", b"my-salted-password")
    assert alter(world, change) == {"alice": (0, None)}
    assert described(world) == [("alice", 0, [(2, 15_000)])]


def test_a_credential_cannot_be_changed_twice_in_a_request(world: Simulation) -> None:
    assert alter(world, upsertion("alice"), upsertion("alice", "lion"))["alice"][0] == 92
    assert alter(world, upsertion("alice"), ScramCredentialDeletion("alice", 1))["alice"][0] == 92


def test_only_the_controller_changes_users() -> None:
    world = Simulation()
    machines = world.start_brokers(2, {})
    world.settle()
    (other,) = (machine for machine in machines if not machine.broker.controller.active)
    world.move_to(other.host)
    assert alter(world, upsertion("alice"))["alice"][0] == ErrorCode.NOT_CONTROLLER


def test_a_salted_password_is_in_no_repr() -> None:
    assert "salt" not in repr(upsertion("alice")).replace("alice", "")
