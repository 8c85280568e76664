"""DescribeClientQuotas and AlterClientQuotas: what is found, what is changed, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.registry.entity_configs import change_config, read_config
from minikafka.registry.users import QuotaType
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    QuotaOperation,
)
from minikafka.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    MatchType,
    QuotaEntityPart,
    QuotaFilterComponent,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

ALICE = (QuotaEntityPart("user", "alice"),)
APP = (QuotaEntityPart("client-id", "a/b"),)
ALICES_APP = (*ALICE, *APP)
EVERY_USER = (QuotaEntityPart("user", None),)
WRITE, READ = "producer_byte_rate", "consumer_byte_rate"


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving()


def alter(
    world: Simulation,
    *entities: tuple[QuotaEntityPart, ...],
    validate_only: bool = False,
    **quotas: float | None,
) -> list[tuple[int, str | None]]:
    ops = tuple(QuotaOperation(key, value or 0.0, value is None) for key, value in quotas.items())
    entries = tuple(AlterClientQuotasEntry(entity, ops) for entity in entities)
    body = AlterClientQuotasRequest(entries, validate_only)
    answer = world.call(Request(ApiKey.ALTER_CLIENT_QUOTAS, 1, body))
    assert [row.entity for row in answer.entries] == list(entities)
    return [(row.error_code, row.error_message) for row in answer.entries]


def describe(world: Simulation, *components: QuotaFilterComponent, strict: bool = False) -> Any:
    body = DescribeClientQuotasRequest(components, strict)
    return world.call(Request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, body))


def found(world: Simulation, *components: QuotaFilterComponent, strict: bool = False) -> dict[Any, Any]:
    answer = describe(world, *components, strict=strict)
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def test_a_quota_is_stored_as_by_kafka_and_holds_at_once(world: Simulation) -> None:
    assert alter(world, ALICES_APP, producer_byte_rate=1000.0) == [(0, None)]
    stored = read_config(world.zookeeper.connect(), "users", "alice/clients/a%2Fb")
    assert stored == {WRITE: "1000"}
    quotas = world.machine.broker.quotas
    assert quotas.record("alice", "a/b", QuotaType.PRODUCE, 1_000_000, world.clock.monotonic_ms()) > 0
    assert quotas.record("bob", "a/b", QuotaType.PRODUCE, 1_000_000, world.clock.monotonic_ms()) == 0


def test_other_configs_of_a_user_stay_and_are_not_shown(world: Simulation) -> None:
    store = world.zookeeper.connect()
    change_config(store, "users", "alice", lambda _: {"SCRAM-SHA-256": "secret", READ: "5"})
    assert alter(world, ALICE, producer_byte_rate=7.0, consumer_byte_rate=None) == [(0, None)]
    assert read_config(store, "users", "alice") == {"SCRAM-SHA-256": "secret", WRITE: "7"}
    assert found(world) == {(("user", "alice"),): {WRITE: 7.0}}


def test_filters_choose_entities_by_their_parts(world: Simulation) -> None:
    assert alter(world, ALICE, APP, ALICES_APP, EVERY_USER, producer_byte_rate=1.0) == [(0, None)] * 4
    alice, app = ("user", "alice"), ("client-id", "a/b")
    everyone = ("user", None)
    of_user = QuotaFilterComponent("user", MatchType.EXACT, "alice")
    any_user = QuotaFilterComponent("user", MatchType.ANY, None)
    default_user = QuotaFilterComponent("user", MatchType.DEFAULT, None)
    any_client = QuotaFilterComponent("client-id", MatchType.ANY, None)
    assert found(world).keys() == {(alice,), (app,), (alice, app), (everyone,)}
    assert found(world, strict=True).keys() == set()
    assert found(world, of_user).keys() == {(alice,), (alice, app)}
    assert found(world, of_user, strict=True).keys() == {(alice,)}
    assert found(world, any_user, any_client).keys() == {(alice, app)}
    assert found(world, any_user, strict=True).keys() == {(alice,), (everyone,)}
    assert found(world, default_user).keys() == {(everyone,)}
    assert found(world, QuotaFilterComponent("ip", MatchType.ANY, None)) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 2), ("user", 1)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2), ("client-id", 2)], ErrorCode.INVALID_REQUEST),
        ([("", 2)], ErrorCode.INVALID_REQUEST),
        ([("user", 3)], ErrorCode.INVALID_REQUEST),
        ([("planet", 2)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_invalid_filter_is_refused(world: Simulation, components: Any, code: ErrorCode) -> None:
    answer = describe(world, *(QuotaFilterComponent(kind, match, None) for kind, match in components))
    assert (answer.error_code, answer.entries) == (code, None)


@pytest.mark.parametrize(
    ("entity", "quotas", "words"),
    [
        (ALICE, {WRITE: 1.5}, "must be a LONG value"),
        (ALICE, {WRITE: 0.0}, "at least 1"),
        (ALICE, {WRITE: float("nan")}, "must be a LONG value"),
        (ALICE, {WRITE: 1e300}, WRITE),
        (ALICE, {"request_rate": 50.0}, "unsupported quota request_rate"),
        (ALICE, {"request_percentage": 0.0}, "above 0"),
        (ALICE, {"controller_mutation_rate": -1.0}, "above 0"),
        ((), {WRITE: 1.0}, "the entity is empty"),
        ((QuotaEntityPart("ip", "10.0.0.1"),), {WRITE: 1.0}, f"unsupported quota {WRITE}"),
        ((QuotaEntityPart("ip", "10.0.0.1"),), {"connection_creation_rate": 1.5}, "must be a INT value"),
        ((QuotaEntityPart("ip", "10.0.0.1"),), {"connection_creation_rate": -1.0}, "must be a INT"),
        ((QuotaEntityPart("ip", "a-host"),), {"connection_creation_rate": 1.0}, "is not an address"),
        ((QuotaEntityPart("ip", "10.0.0.1"), *ALICE), {WRITE: 1.0}, "together"),
        (ALICE, {"connection_creation_rate": 1.0}, "unsupported quota connection_creation_rate"),
        ((QuotaEntityPart("user", ""),), {WRITE: 1.0}, "cannot be the name of a user"),
        ((QuotaEntityPart("group", "g"),), {WRITE: 1.0}, "'group'"),
        ((*ALICE, *ALICE), {WRITE: 1.0}, "'user'"),
    ],
)
def test_an_invalid_change_is_refused_and_changes_nothing(
    world: Simulation, entity: tuple[QuotaEntityPart, ...], quotas: dict[str, float], words: str
) -> None:
    (code, message), other = alter(world, entity, APP, **quotas)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert words in message
    assert (("user", "alice"),) not in found(world)
    assert other[0] == (ErrorCode.NONE if quotas == {WRITE: 1.0} else ErrorCode.INVALID_REQUEST)


def test_quotas_of_time_and_partitions_are_stored_with_a_fraction(world: Simulation) -> None:
    quotas = {"request_percentage": 12.5, "controller_mutation_rate": 3.0}
    assert alter(world, ALICE, **quotas) == [(0, None)]
    stored = read_config(world.zookeeper.connect(), "users", "alice")
    assert stored == {"request_percentage": "12.5", "controller_mutation_rate": "3.0"}
    assert found(world) == {(("user", "alice"),): quotas}
    assert {quota.value for quota in world.machine.broker.quotas.limited} == quotas.keys()


def test_quotas_of_addresses_hold_at_once_and_are_found_apart(world: Simulation) -> None:
    every, one = (QuotaEntityPart("ip", None),), (QuotaEntityPart("ip", "0:0:0:0:0:0:0:1"),)
    assert alter(world, every, connection_creation_rate=10.0) == [(0, None)]
    assert alter(world, one, connection_creation_rate=5.0) == [(0, None)]
    assert alter(world, ALICE, producer_byte_rate=7.0) == [(0, None)]
    assert world.machine.broker.address_quotas.limits == {"": 10, "::1": 5}
    assert read_config(world.zookeeper.connect(), "ips", "::1") == {"connection_creation_rate": "5"}
    rate = {"connection_creation_rate": 5.0}
    assert found(world).keys() == {(("user", "alice"),), (("ip", None),), (("ip", "::1"),)}
    assert found(world, QuotaFilterComponent("ip", MatchType.EXACT, "::1")) == {(("ip", "::1"),): rate}
    assert found(world, QuotaFilterComponent("ip", MatchType.DEFAULT, None)).keys() == {(("ip", None),)}
    assert found(world, QuotaFilterComponent("user", MatchType.ANY, None)).keys() == {(("user", "alice"),)}
    assert alter(world, one, connection_creation_rate=None) == [(0, None)]
    assert world.machine.broker.address_quotas.limits == {"": 10}


def test_validation_alone_changes_nothing(world: Simulation) -> None:
    assert alter(world, ALICE, producer_byte_rate=7.0, validate_only=True) == [(0, None)]
    assert found(world) == {}
