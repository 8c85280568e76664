"""Requests that a job of the worker answers, when the job fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.registry.consumer_offsets import write_offsets
from minikafka.registry.store import Store
from minikafka.server.core import deferred_response
from minikafka.server.handlers import offset_commit, offset_fetch
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.offset_commit import (
    DEFAULT_RETENTION,
    NO_GENERATION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from minikafka.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.simulation import Request, Simulation


@pytest.fixture
def world() -> Simulation:
    """A broker with a topic of one partition."""
    return Simulation.serving("t")


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


def test_offsets_of_many_partitions_are_kept_in_zookeeper(world: Simulation) -> None:
    world.create_topic("many", partitions=250)
    parts = tuple(
        OffsetCommitRequestPartition(number, 1_000 + number, -1, DEFAULT_RETENTION, "")
        for number in range(250)
    )
    topics = (OffsetCommitRequestTopic("many", parts),)
    body = OffsetCommitRequest("g", NO_GENERATION, "", DEFAULT_RETENTION, topics)
    for _ in range(2):  # made, then written again
        answer = world.call(Request(ApiKey.OFFSET_COMMIT, 0, body))
        assert {part.error_code for part in answer.topics[0].partitions} == {0}
    asked = (OffsetFetchRequestTopic("many", tuple(range(251))),)
    answer = world.call(Request(ApiKey.OFFSET_FETCH, 0, OffsetFetchRequest("g", asked)))
    found = [part.committed_offset for part in answer.topics[0].partitions]
    assert found == [*range(1_000, 1_250), -1]
    assert answer.topics[0].partitions[250].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_timed_out_request_starts_no_further_work(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create_topic("many", partitions=250)
    written: list[int] = []

    def slow(store: Store, group: str, some: Mapping[TopicPartition, int]) -> None:
        written.append(len(some))
        world.clock.advance(deferred_response.PATIENCE_MS)
        write_offsets(store, group, some)

    monkeypatch.setattr(offset_commit, "write_offsets", slow)
    parts = tuple(OffsetCommitRequestPartition(number, 1, -1, DEFAULT_RETENTION, "") for number in range(250))
    body = OffsetCommitRequest(
        "g", NO_GENERATION, "", DEFAULT_RETENTION, (OffsetCommitRequestTopic("many", parts),)
    )
    answer = world.call(Request(ApiKey.OFFSET_COMMIT, 0, body))
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT
    world.settle()
    assert len(written) < 3


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

    monkeypatch.setattr(offset_fetch, "read_offsets", fail)
    monkeypatch.setattr(offset_commit, "write_offsets", fail)
    assert error_of(world.call(request_of("g"))) is ErrorCode.UNKNOWN
    assert "RuntimeError: unexpected" in caplog.text
