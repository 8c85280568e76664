"""A connector's look-up of its group's coordinator."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from tests.support.connector_harness import ZooKeeperGroupHarness


@pytest.fixture
def harness() -> ZooKeeperGroupHarness:
    return ZooKeeperGroupHarness(t=4)


def test_coordinator_lookup_logs_its_failure_and_recovery(
    harness: ZooKeeperGroupHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
def test_permanent_error_ends_the_coordinator_lookup(
    code: ErrorCode,
    harness: ZooKeeperGroupHarness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts_ms = []

    def connect() -> None:
        attempts_ms.append(harness.clock.monotonic_ms())
        raise BrokerError(code, "looking for the coordinator of group 'g'")

    monkeypatch.setattr(harness.coordinator, "connect", connect)
    with caplog.at_level(logging.WARNING, "minikafka.clients"), pytest.raises(BrokerError, match=code.name):
        harness.consumer("a", offsets_storage="kafka")
    assert len(attempts_ms) == 1
    assert caplog.messages == []
    with pytest.raises(NetworkError, match="closed"):
        harness.coordinator.commit({})
