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
from tests.support import requests
from tests.support.raising import raising
from tests.support.requests import Request
from tests.support.simulation import Simulation


@pytest.fixture
def world() -> Simulation:
    """A broker with a topic of one partition."""
    return Simulation.serving("t")


def commit(group: str) -> Request:
    return requests.commit_offsets("t", group=group).at(0)


def committed(group: str) -> Request:
    return requests.fetch_offsets("t", group=group).at(0)


def test_offsets_of_many_partitions_are_kept_in_zookeeper(world: Simulation) -> None:
    world.create_topic("many", partitions=250)
    offsets = {number: 1_000 + number for number in range(250)}
    for _ in range(2):  # made, then written again
        answer = world.call(requests.commit_offsets("many", offsets=offsets).at(0))
        assert {part.error_code for part in answer.topics[0].partitions} == {0}
    answer = world.call(requests.fetch_offsets("many", partitions=range(251)).at(0))
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
    answer = world.call(requests.commit_offsets("many", offsets=dict.fromkeys(range(250), 1)).at(0))
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
    monkeypatch.setattr(offset_fetch, "read_offsets", raising(RuntimeError("unexpected")))
    monkeypatch.setattr(offset_commit, "write_offsets", raising(RuntimeError("unexpected")))
    assert error_of(world.call(request_of("g"))) is ErrorCode.UNKNOWN
    assert "RuntimeError: unexpected" in caplog.text
