"""``GroupOffsetsChannel``: a group's offsets at a coordinator that moves, loads, or is unreachable."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.offsets import GroupOffsetsChannel
from minikafka.clients.network.cluster import ClusterClient
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.support.broker_harness import OFFSETS, BrokerHarness, commit_error

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 10_000


class ChannelHarness:
    """Two brokers, and a channel for the group ``g``, which broker 1 coordinates."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(2, {"t": 2, OFFSETS.topic: 1})
        self.clients: list[ClusterClient] = []
        self.channel = GroupOffsetsChannel(self._cluster, "g", TIMEOUT_MS)

    def _cluster(self) -> ClusterClient:
        self.clients.append(self.brokers.client())
        return self.clients[-1]

    def stored(self) -> dict[TopicPartition, int]:
        return self.brokers.committed("g")

    def brokers_of(self, key: ApiKey) -> list[int]:
        """Return the ids of the brokers that got such requests, in order."""
        return [broker_id for broker_id, api, _, _ in self.brokers.requests if api is key]


@pytest.fixture
def harness() -> ChannelHarness:
    return ChannelHarness()


def fetch_code(code: ErrorCode) -> Any:
    """Return a handler of OffsetFetch that returns ``code`` as the group's error."""
    return lambda _, request: OffsetFetchResponse(
        0, (), int(code), (OffsetFetchResponseGroup(request.group_id, (), int(code)),)
    )


def test_committed_offsets_are_fetched(harness: ChannelHarness) -> None:
    harness.channel.connect()
    harness.channel.commit({T0: 5})
    assert harness.stored() == {T0: 5}
    assert harness.channel.fetch([T0, T1]) == {T0: 5}
    assert len(harness.brokers_of(ApiKey.FIND_COORDINATOR)) == 1


def test_commit_finds_the_new_coordinator_after_an_error(harness: ChannelHarness) -> None:
    harness.channel.commit({T0: 5})
    harness.brokers.move_coordinator(2)
    with pytest.raises(BrokerError) as refused:
        harness.channel.commit({T0: 6})
    assert refused.value.code is ErrorCode.NOT_COORDINATOR_FOR_GROUP
    harness.channel.commit({T0: 6})
    assert harness.brokers_of(ApiKey.OFFSET_COMMIT) == [1, 1, 2]
    assert harness.stored() == {T0: 6}


def test_fetch_follows_the_coordinator(harness: ChannelHarness) -> None:
    harness.channel.commit({T0: 5})
    harness.brokers.move_coordinator(2)
    assert harness.channel.fetch([T0]) == {T0: 5}
    assert harness.brokers_of(ApiKey.OFFSET_FETCH) == [1, 2]


def test_fetch_waits_while_the_coordinator_loads(harness: ChannelHarness) -> None:
    harness.channel.commit({T0: 5})
    loading = fetch_code(ErrorCode.GROUP_LOAD_IN_PROGRESS)
    harness.brokers.script(ApiKey.OFFSET_FETCH, loading, loading)
    assert harness.channel.fetch([T0]) == {T0: 5}
    assert harness.brokers_of(ApiKey.OFFSET_FETCH) == [1, 1, 1]


def test_fetch_from_a_loading_coordinator_times_out(harness: ChannelHarness) -> None:
    harness.brokers.script(ApiKey.OFFSET_FETCH, *[fetch_code(ErrorCode.GROUP_LOAD_IN_PROGRESS)] * 1_000)
    start_ms = harness.brokers.clock.monotonic_ms()
    with pytest.raises((BrokerError, NetworkError), match="GROUP_LOAD_IN_PROGRESS"):
        harness.channel.fetch([T0])
    assert harness.brokers.clock.monotonic_ms() - start_ms <= TIMEOUT_MS


def test_commit_to_loading_coordinator_is_one_attempt_and_keeps_it(harness: ChannelHarness) -> None:
    harness.brokers.script(ApiKey.OFFSET_COMMIT, commit_error(ErrorCode.GROUP_LOAD_IN_PROGRESS))
    with pytest.raises(BrokerError) as refused:
        harness.channel.commit({T0: 5})
    assert refused.value.code is ErrorCode.GROUP_LOAD_IN_PROGRESS
    harness.channel.commit({T0: 5})
    assert harness.stored() == {T0: 5}
    assert len(harness.brokers_of(ApiKey.FIND_COORDINATOR)) == 1


def test_unreachable_cluster_gets_a_new_client(harness: ChannelHarness) -> None:
    harness.brokers.stop(1)
    harness.brokers.stop(2)
    with pytest.raises(NetworkError):
        harness.channel.connect()
    harness.brokers.start(1)
    harness.channel.commit({T0: 5})
    assert len(harness.clients) == 2
    assert harness.stored() == {T0: 5}


def test_closed_channel_refuses_commits(harness: ChannelHarness) -> None:
    harness.channel.commit({T0: 5})
    harness.channel.close()
    with pytest.raises(NetworkError, match="'g' is closed"):
        harness.channel.commit({T0: 6})
