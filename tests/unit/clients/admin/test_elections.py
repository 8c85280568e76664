"""``clients/admin/elections``: leaders are elected by the controller, with one result per partition."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.elect_leaders import (
    ElectionType,
    ElectLeadersPartitionResult,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from tests.support.broker_harness import BrokerHarness

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PREFERRED = ElectionType.PREFERRED


@pytest.fixture
def brokers() -> BrokerHarness:
    brokers = BrokerHarness(2, {"t": 2}, replicas=2)
    brokers.stop(1)  # broker 2 leads both now
    brokers.start(1)
    brokers.settle()
    return brokers


@pytest.fixture
def admin(brokers: BrokerHarness) -> Admin:
    return Admin(brokers.client(bootstrap="memory:9002"))


def codes(errors: dict[TopicPartition, BrokerError | None]) -> dict[TopicPartition, ErrorCode]:
    return {tp: ErrorCode.NONE if error is None else error.code for tp, error in errors.items()}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_replicas_become_leaders(brokers: BrokerHarness, admin: Admin, version: int) -> None:
    brokers.newest[ApiKey.ELECT_LEADERS] = version
    assert brokers.leaders == {T0: 2, T1: 2}
    found = admin.elect_leaders(PREFERRED, [T1, T0])
    assert codes(found) == {T0: ErrorCode.NONE, T1: ErrorCode.ELECTION_NOT_NEEDED}
    assert brokers.leaders == {T0: 1, T1: 2}


def test_election_of_all_partitions_names_those_that_needed_it(brokers: BrokerHarness, admin: Admin) -> None:
    assert admin.elect_leaders(PREFERRED) == {T0: None}
    assert admin.elect_leaders(PREFERRED) == {}


def test_unknown_partition_has_its_own_error(admin: Admin) -> None:
    unknown = TopicPartition("u", 0)
    found = admin.elect_leaders(PREFERRED, [T0, unknown])
    assert codes(found) == {T0: ErrorCode.NONE, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [0, 2])
def test_request_is_repeated_when_the_controller_moves(
    brokers: BrokerHarness, admin: Admin, version: int
) -> None:
    brokers.newest[ApiKey.ELECT_LEADERS] = version
    rows = (ElectLeadersPartitionResult(0, ErrorCode.NOT_CONTROLLER, None),)
    moved = ElectLeadersResponse(0, ErrorCode.NOT_CONTROLLER, (ElectLeadersTopicResult("t", rows),))
    brokers.script(ApiKey.ELECT_LEADERS, lambda *_: moved)
    assert admin.elect_leaders(PREFERRED, [T0]) == {T0: None}
    assert len(brokers.asked(ApiKey.ELECT_LEADERS)) == 2


def test_unclean_election_needs_a_controller_that_knows_it(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.newest[ApiKey.ELECT_LEADERS] = 0
    with pytest.raises(BrokerError, match=r"unclean elections need ElectLeaders 1, but broker \d supports 0"):
        admin.elect_leaders(ElectionType.UNCLEAN, [T0])
    assert brokers.asked(ApiKey.ELECT_LEADERS) == []
