"""Topics and settings that are larger than ZooKeeper takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from minikafka.base.errors import BrokerError
from minikafka.registry.entity_configs import LEADER_REPLICAS
from minikafka.server.broker import Broker
from minikafka.server.settings import change_resource
from minikafka.server.topics import check_creation
from minikafka.wire.apis.describe_configs import ResourceType
from tests.scenarios.simulation import Simulation

LARGE = {LEADER_REPLICAS: ",".join(f"{number}:1" for number in range(150_000))}
"""Valid settings of 1.2 MB."""
SIZE = r"take 12\d{5} bytes: a znode has at most 1000000$"


@pytest.fixture
def broker() -> Iterator[Broker]:
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    assert world.machine.running is not None
    yield world.machine.running.broker
    world.machine.stop()


def test_a_topic_with_settings_that_no_znode_takes_is_refused(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=f"^INVALID_CONFIG: the settings of topic large {SIZE}"):
        check_creation(broker, "large", 1, 1, None, LARGE)


def test_a_topic_with_an_assignment_that_no_znode_takes_is_refused(broker: Broker) -> None:
    words = "INVALID_PARTITIONS: 90000 partitions of topic large do not fit its znode of 1000000 bytes"
    with pytest.raises(BrokerError, match=re.escape(words)):
        check_creation(broker, "large", -1, -1, dict.fromkeys(range(90_000), (0,)), {})


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_change_to_settings_that_no_znode_takes_is_refused(broker: Broker, validate_only: bool) -> None:
    with pytest.raises(BrokerError, match=f"^INVALID_CONFIG: the settings of topic t {SIZE}"):
        change_resource(broker, ResourceType.TOPIC, "t", lambda before: LARGE, validate_only=validate_only)
