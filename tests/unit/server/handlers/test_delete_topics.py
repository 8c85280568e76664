"""Topics that are deleted by their ids."""

from __future__ import annotations

import pytest

from minikafka.base.acls import Operation
from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from minikafka.wire.fields import ZERO_UUID
from tests.support.guarded_broker import TOPIC, Guarded
from tests.support.requests import Request
from tests.support.simulation import Simulation

UNKNOWN = b"?" * 16


def delete(world: Simulation, *rows: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest((), 5000, topics=rows)
    return list(world.call(Request(ApiKey.DELETE_TOPICS, 6, request)).topics)


def id_of(world: Simulation, topic: str) -> bytes:
    return world.machine.broker.metadata_cache.topic_ids[topic]


def by_id(topic_id: bytes) -> DeleteTopicState:
    return DeleteTopicState(None, topic_id)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    world = Simulation.serving("t")
    assert world.create_topic("u") == 0
    topic_id = id_of(world, "u")
    found = delete(world, DeleteTopicState("t"), by_id(topic_id), by_id(UNKNOWN))
    assert [(row.name, row.topic_id, row.error_code) for row in found] == [
        ("t", ZERO_UUID, ErrorCode.NONE),
        ("u", topic_id, ErrorCode.NONE),
        (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not world.machine.broker.metadata_cache.topics


def test_id_of_a_deleted_topic_does_not_delete_the_next_one_of_its_name() -> None:
    world = Simulation.serving("t")
    earlier = id_of(world, "t")
    delete(world, by_id(earlier))
    assert world.create_topic("t") == 0
    (refused,) = delete(world, by_id(earlier))
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert "t" in world.machine.broker.metadata_cache.topics


def test_topic_with_a_name_and_an_id_is_refused() -> None:
    world = Simulation.serving("t")
    (refused,) = delete(world, DeleteTopicState("t", id_of(world, "t")))
    assert (refused.error_code, refused.name) == (ErrorCode.INVALID_REQUEST, "t")
    assert "t" in world.machine.broker.metadata_cache.topics


@pytest.mark.parametrize(("allowed", "name"), [(None, None), (Operation.DESCRIBE, "t")])
def test_name_of_a_topic_is_told_to_those_who_may_describe_it(
    allowed: Operation | None, name: str | None
) -> None:
    world = Guarded()
    if allowed is not None:
        world.allow(allowed, TOPIC)
    (refused,) = delete(world, by_id(id_of(world, "t")))
    assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


def test_who_may_delete_a_topic_may_do_so_by_its_id() -> None:
    world = Guarded()
    world.allow(Operation.DELETE, TOPIC)
    other = id_of(world, "other")
    done, denied = delete(world, by_id(id_of(world, "t")), by_id(other))
    assert (done.error_code, done.name) == (ErrorCode.NONE, "t")
    assert (denied.error_code, denied.name, denied.topic_id) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        None,
        other,
    )
