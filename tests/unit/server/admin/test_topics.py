"""Topics and settings that are larger than ZooKeeper takes, or than a request may ask for."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.registry.entity_configs import LEADER_REPLICAS
from minikafka.server.admin.dynamic_config import change_resource
from minikafka.server.admin.topics import plan_creation
from minikafka.server.core.broker import Broker
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from minikafka.wire.apis.describe_configs import ConfigResourceType
from tests.support import requests
from tests.support.raising import raising
from tests.support.requests import Request
from tests.support.simulation import Simulation
from tests.unit.server.test_dispatch import dispatched

LARGE = {LEADER_REPLICAS: ",".join(f"{number}:1" for number in range(150_000))}
"""Valid settings of 1.2 MB."""
SIZE = r"have 12\d{5} bytes, .*1000000"


@pytest.fixture
def broker() -> Iterator[Broker]:
    world = Simulation.serving("t")
    yield world.machine.broker
    world.machine.stop()


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving()


def test_a_topic_with_settings_that_no_znode_takes_is_refused(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=f"^INVALID_CONFIG: the configs of topic large {SIZE}"):
        plan_creation(broker, "large", 1, 1, None, LARGE)


def test_a_topic_with_an_assignment_that_no_znode_takes_is_refused(broker: Broker) -> None:
    words = "INVALID_PARTITIONS: 90000 partitions of topic large do not fit into a znode of 1000000 bytes"
    with pytest.raises(BrokerError, match=re.escape(words)):
        plan_creation(broker, "large", -1, -1, dict.fromkeys(range(90_000), (0,)), {})


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_change_to_settings_that_no_znode_takes_is_refused(broker: Broker, validate_only: bool) -> None:
    with pytest.raises(BrokerError, match=f"^INVALID_CONFIG: the configs of topic t {SIZE}"):
        change_resource(
            broker, ConfigResourceType.TOPIC, "t", lambda before: LARGE, validate_only=validate_only
        )


def of_300_topics(validate_only: bool = True) -> Request:
    """CreateTopics that is a few kilobytes long and asks for 18 million partitions."""
    topics = tuple(CreatableTopic(f"wide-{number}", 60_000, 1) for number in range(300))
    return requests.create_topics(*topics, validate_only=validate_only)


def test_the_topics_of_a_request_have_a_limit_of_partitions_together(world: Simulation) -> None:
    answer = world.call(of_300_topics())
    assert [topic.error_code for topic in answer.topics] == [0] + 299 * [ErrorCode.POLICY_VIOLATION]
    assert "limit of 10000 new partitions" in answer.topics[1].error_message


def test_more_partitions_of_several_topics_have_the_same_limit(world: Simulation) -> None:
    names = ("a", "b", "c")
    for name in names:
        world.create_topic(name)
    topics = (CreatePartitionsTopic(name, 6_000, None) for name in names)
    answer = world.call(requests.create_partitions(*topics, validate_only=True))
    assert [topic.error_code for topic in answer.results] == [0] + 2 * [ErrorCode.POLICY_VIOLATION]


def test_a_topic_that_cannot_be_takes_no_room_from_the_others(world: Simulation) -> None:
    topics = tuple(CreatableTopic(f"t{count}", count, 1) for count in (2_000_000_000, 3, 4))
    answer = world.call(requests.create_topics(*topics, validate_only=True))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_PARTITIONS, 0, 0]


def refused_codes(world: Simulation, *topics: CreatableTopic) -> list[ErrorCode]:
    answer = world.call(requests.create_topics(*topics, validate_only=True))
    return [ErrorCode(topic.error_code) for topic in answer.topics]


def test_topics_that_exist_are_no_new_ones(world: Simulation) -> None:
    for name in ("a", "b"):
        world.create_topic(name)
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    topics = [CreatableTopic(name, 9_000, 1) for name in ("a", "b", "new")]
    assert refused_codes(world, *topics) == [exists, exists, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (CreatableTopic("bad name", 9_000, 1), ErrorCode.INVALID_TOPIC),
        (CreatableTopic("a", 9_000, 99), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic("a", 9_000, 1, (), (CreatableTopicConfig("retention.ms", "soon"),)),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_a_topic_that_is_refused_is_no_new_one(
    world: Simulation, refused: CreatableTopic, why: ErrorCode
) -> None:
    assert refused_codes(world, refused, CreatableTopic("new", 9_000, 1)) == [why, ErrorCode.NONE]


def test_of_two_topics_that_look_alike_only_one_is_new(world: Simulation) -> None:
    topics = [CreatableTopic(name, 4_000, 1) for name in ("a.b", "a_b", "new")]
    assert refused_codes(world, *topics) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC, ErrorCode.NONE]


def test_a_topic_that_cannot_grow_takes_no_room_from_the_others(world: Simulation) -> None:
    for name in ("a", "b"):
        world.create_topic(name)
    wrong = (CreatePartitionsAssignment((7,)),) * 8_999
    topics = (CreatePartitionsTopic("a", 9_000, wrong), CreatePartitionsTopic("b", 9_000, None))
    answer = world.call(requests.create_partitions(*topics, validate_only=True))
    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, 0]


def test_a_refusal_does_not_repeat_all_that_was_sent(world: Simulation) -> None:
    replicas = (CreatableReplicaAssignment(0, tuple(range(100_000))),)
    request = requests.create_topics(CreatableTopic("t", -1, -1, replicas), validate_only=True)
    (topic,) = world.call(request).topics
    assert topic.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(topic.error_message) == 1_000


def test_the_log_names_some_of_the_topics_that_are_refused(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.call(of_300_topics())
    assert caplog.text.count("rejected the request for topic") == 50


@pytest.mark.parametrize(
    "request_",
    [requests.delete_topics("t"), requests.create_partitions(CreatePartitionsTopic("t", 3, None))],
    ids=["delete", "grow"],
)
def test_requests_that_do_not_wait_queue_once_for_each_topic(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Simulation.serving("t")
    broker = world.machine.broker
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(broker.worker, "submit", held.append)
    for _ in range(20):
        assert dispatched(world, request_).answered
    assert (len(held), len(broker.request_jobs)) == (1, 1)
    monkeypatch.undo()
    broker.worker.submit(held[0])
    world.settle()
    assert not len(broker.request_jobs)
    assert dispatched(world, request_).answered
    assert len(broker.request_jobs) <= 1


def test_a_deletion_that_failed_unexpectedly_can_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Simulation.serving("t")
    broker = world.machine.broker
    monkeypatch.setattr(broker.zk_client, "request_deletions", raising(ValueError("a defect")))
    assert dispatched(world, requests.delete_topics("t")).answered
    world.settle()
    assert "failed to delete 1 topic" in caplog.text
    monkeypatch.undo()
    assert dispatched(world, requests.delete_topics("t")).answered
    world.settle()
    assert "t" not in broker.metadata_cache.topics


def test_a_request_that_was_refused_is_let_go_without_a_collection(world: Simulation) -> None:
    gc.collect()
    gc.disable()
    try:
        body = CreateTopicsRequest((CreatableTopic("t", 1, 99),), 0, True)
        assert dispatched(world, Request(ApiKey.CREATE_TOPICS, 1, body)).answered
        left = [
            request
            for request in gc.get_objects()
            if isinstance(request, CreateTopicsRequest) and request == body
        ]
        assert left == [body]  # without the one that was decoded
    finally:
        gc.enable()
