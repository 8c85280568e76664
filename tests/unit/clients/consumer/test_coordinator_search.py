"""``clients/consumer``: the search of a connector for its group's coordinator."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from tests.support.connector_harness import GroupHarness


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness(t=4)


def test_coordinator_search_logs_the_failure(
    harness: GroupHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter(range(4))

    def connect() -> None:
        for _ in failures:
            raise NetworkError("connection refused")

    monkeypatch.setattr(harness.coordinator, "connect", connect)
    with caplog.at_level(logging.WARNING, "minikafka.clients"):
        harness.consumer("a", offsets_storage="kafka", offsets_channel_backoff_ms=1_000)
    assert caplog.messages == [
        "g_a: failed to find the group's coordinator, retrying: connection refused",
        "g_a: recovered after 4.0 s",
    ]


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID])
def test_a_refusal_ends_the_search_for_the_coordinator_at_once(
    code: ErrorCode, harness: GroupHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def connect() -> None:
        asked.append(harness.clock.monotonic_ms())
        raise BrokerError(code, "looking for the coordinator of group 'g'")

    monkeypatch.setattr(harness.coordinator, "connect", connect)
    with caplog.at_level(logging.WARNING, "minikafka.clients"), pytest.raises(BrokerError, match=code.name):
        harness.consumer("a", offsets_storage="kafka")
    assert len(asked) == 1
    assert caplog.messages == []
    assert harness.coordinator.closed
