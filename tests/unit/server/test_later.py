"""Requests that a job of the worker answers, when the job fails."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.server.zookeeper_offsets import ZooKeeperOffsets
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    NO_GENERATION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from minikafka.wire.keys import ApiKey
from tests.scenarios.simulation import Request, Simulation


@pytest.fixture
def world() -> Simulation:
    """A broker with a topic of one partition."""
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    return world


def commit(group: str) -> Request:
    """An OffsetCommit 0 for t-0."""
    part = OffsetCommitRequestPartition(0, 5, -1, DEFAULT_RETENTION, "")
    topics = (OffsetCommitRequestTopic("t", (part,)),)
    return Request(
        ApiKey.OFFSET_COMMIT, 0, OffsetCommitRequest(group, NO_GENERATION, "", DEFAULT_RETENTION, topics)
    )


def committed(group: str) -> Request:
    """An OffsetFetch 0 for t-0."""
    return Request(ApiKey.OFFSET_FETCH, 0, OffsetFetchRequest(group, (OffsetFetchRequestTopic("t", (0,)),)))


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("request_of", [commit, committed])
def test_a_group_with_a_control_character_is_refused_at_once(world: Simulation, request_of: Any) -> None:
    assert error_of(world.call(request_of("a\nb"))) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("request_of", [commit, committed])
def test_an_unexpected_error_of_the_job_is_answered_at_once(
    world: Simulation, request_of: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(ZooKeeperOffsets, "read", fail)
    monkeypatch.setattr(ZooKeeperOffsets, "write", fail)
    assert error_of(world.call(request_of("g"))) is ErrorCode.UNKNOWN
    assert "RuntimeError: unexpected" in caplog.text
