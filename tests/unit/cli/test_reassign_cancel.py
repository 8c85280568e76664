"""``reassign cancel`` on brokers in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.reassignments import OngoingReassignment
from minikafka.registry.entity_configs import LEADER_RATE, LEADER_REPLICAS
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_configs import ConfigResourceType
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    """Three brokers, of which the third does not copy; t-0 moves from the first to the third."""
    brokers = serve(BrokerHarness(3, {"t": 2}))
    brokers.simulation.machine_of(3).held = True
    with brokers.client() as client:
        assert Admin(client).alter_partition_reassignments({T0: (3,)}) == {T0: None}
    return brokers


def ongoing(brokers: BrokerHarness) -> list[OngoingReassignment]:
    with brokers.client() as client:
        return Admin(client).list_partition_reassignments()


def test_everything_in_progress_is_cancelled(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert ongoing(brokers) == [OngoingReassignment(T0, (3, 1), (3,), (1,))]
    assert cli.run("reassign", "cancel", "--all", "--format", "json") == 0, cli.err
    assert cli.rows == [
        {"topic": "t", "partition": 0, "replicas": [1], "dropped": [3], "status": "cancelled"}
    ]
    assert ongoing(brokers) == []
    assert cli.run("reassign", "cancel", "--all") == 0
    assert "no reassignment is in progress" in cli.err


def test_only_the_partitions_of_the_plan_are_cancelled(
    brokers: BrokerHarness, cli: CommandLine, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions":[{"topic":"t","partition":1,"replicas":[3]}]}')
    assert cli.run("reassign", "cancel", "--file", str(plan)) == 0
    assert [move.topic_partition for move in ongoing(brokers)] == [T0]
    assert cli.run("reassign", "cancel") == 2


def test_the_throttle_is_removed_too(brokers: BrokerHarness, cli: CommandLine) -> None:
    throttles = (
        (ConfigResourceType.TOPIC, "t", LEADER_REPLICAS, "0:1"),
        (ConfigResourceType.BROKER, "1", LEADER_RATE, "1000"),
    )
    with brokers.client() as client:
        admin = Admin(client)
        for kind, name, key, value in throttles:
            admin.change_configs(kind, name, {key: value})
        assert cli.run("reassign", "cancel", "--all") == 0
        for kind, name, key, value in throttles:
            values = {row.name: row.value for row in admin.describe_configs(kind, name)}
            assert values[key] != value


def test_a_cluster_that_cannot_cancel_says_so(brokers: BrokerHarness, cli: CommandLine) -> None:
    brokers.unknown = {ApiKey.LIST_PARTITION_REASSIGNMENTS}
    assert cli.run("reassign", "cancel", "--all") == 1
    assert ErrorCode.UNSUPPORTED_VERSION.name in cli.err or "not support" in cli.err
