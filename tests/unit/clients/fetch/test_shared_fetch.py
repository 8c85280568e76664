"""``clients/fetch/shared_fetch``: the beginnings of several ranges, and the fetchers that go on from them."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import FetchSettings
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.fetch.shared_fetch import Beginning, FirstFetch, SharedFetch
from minikafka.clients.network.cluster import ClusterClient
from minikafka.net.memory import Fault
from minikafka.records.format.message_set import iterate
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, fetch_error

PARTITIONS = 6
COUNT = 20
PARTS = [TopicPartition("t", number) for number in range(PARTITIONS)]


def filled(brokers: BrokerHarness) -> BrokerHarness:
    for tp in PARTS:
        for number in range(COUNT):
            brokers.fill(tp, b"%d-%d" % (tp.partition, number))
    return brokers


@pytest.fixture
def brokers() -> BrokerHarness:
    return filled(BrokerHarness(2, {"t": PARTITIONS}))


def shared(
    brokers: BrokerHarness,
    client: ClusterClient | None = None,
    *,
    start: int = 0,
    max_bytes: int = 1 << 20,
    **settings: Any,
) -> SharedFetch:
    given = {"partition_max_bytes": 1 << 20, "max_bytes": 1 << 20, "message_max_bytes": 1 << 20} | settings
    beginnings = dict.fromkeys(PARTS, Beginning(start, max_bytes))
    return SharedFetch(client or brokers.client(), beginnings, FetchSettings(**given))


def whole(client: ClusterClient, tp: TopicPartition, first: FirstFetch | None, **options: Any) -> list[int]:
    sets = RangeFetcher(client, tp, 0, COUNT, first=first, timeout_ms=5_000, **options)
    return [record.offset for data in sets for record in iterate(data)]


def fetches(brokers: BrokerHarness) -> list[int]:
    return [broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH]


@pytest.mark.parametrize("version", [1, 2, 3, 11])
def test_one_request_to_each_leader_fetches_all_small_ranges(brokers: BrokerHarness, version: int) -> None:
    client = brokers.client(newest_versions={ApiKey.FETCH: version})
    found = {tp: whole(client, tp, first) for tp, first in shared(brokers, client)}
    assert found == {tp: list(range(COUNT)) for tp in PARTS}
    assert sorted(fetches(brokers)) == [1, 2]


@pytest.mark.parametrize("max_bytes", [10, 100, 300])
def test_a_longer_range_is_read_on_by_its_own_fetcher(brokers: BrokerHarness, max_bytes: int) -> None:
    client = brokers.client()
    firsts = dict(shared(brokers, client, max_bytes=max_bytes))
    assert set(firsts) == set(PARTS)
    for tp, first in firsts.items():
        assert whole(client, tp, first, max_bytes=200) == list(range(COUNT))


def limited(brokers: BrokerHarness, client: ClusterClient, parts: list[TopicPartition]) -> SharedFetch:
    """With room for all of one partition in each response."""
    size = max(len(first.completed.records) for _, first in shared(brokers) if first)
    brokers.requests.clear()
    settings = FetchSettings(partition_max_bytes=size, max_bytes=size, message_max_bytes=1 << 20)
    return SharedFetch(client, dict.fromkeys(parts, Beginning(0, size)), settings)


def test_ranges_that_did_not_fit_a_response_come_with_the_next(brokers: BrokerHarness) -> None:
    brokers.add_topic("u", 12)
    parts = [TopicPartition("u", number) for number in range(12)]
    for tp in parts:
        brokers.fill(tp, *[b"0-%d" % number for number in range(10)], *[b"0-1%d" % n for n in range(10)])
    client = brokers.client()
    found = {tp: whole(client, tp, first) for tp, first in limited(brokers, client, parts)}
    assert found == {tp: list(range(COUNT)) for tp in parts}
    assert sorted(fetches(brokers)) == [1] * 6 + [2] * 6


def test_the_next_request_is_sent_before_a_response_is_used(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, sent = brokers.client(), []
    ranges = iter(limited(brokers, client, PARTS[::2]))
    send = client.send
    monkeypatch.setattr(client, "send", lambda *given, **more: sent.append(1) or send(*given, **more))
    next(ranges)
    assert len(sent) == 2


def test_a_range_with_an_error_is_left_to_its_fetcher(brokers: BrokerHarness) -> None:
    client = brokers.client()
    firsts = dict(shared(brokers, client, start=COUNT + 5))
    assert firsts == dict.fromkeys(PARTS)
    with pytest.raises(OffsetOutOfRange):
        list(RangeFetcher(client, PARTS[0], COUNT + 5, COUNT + 9, timeout_ms=5_000))


def test_an_empty_log_is_left_to_its_fetcher(brokers: BrokerHarness) -> None:
    assert dict(shared(brokers, start=COUNT, max_wait_ms=0)) == dict.fromkeys(PARTS)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_error_of_the_broker_is_left_to_the_fetchers(brokers: BrokerHarness, code: ErrorCode) -> None:
    brokers.always(ApiKey.FETCH, fetch_error(code))
    assert dict(shared(brokers)) == dict.fromkeys(PARTS)


def test_ranges_of_a_broken_connection_are_read_by_their_fetchers(brokers: BrokerHarness) -> None:
    client = brokers.client()
    brokers.script(ApiKey.FETCH, lambda *_: Fault.CUT_REQUEST)
    firsts = dict(shared(brokers, client))
    assert sum(first is None for first in firsts.values()) == PARTITIONS // 2
    assert all(whole(client, tp, first) == list(range(COUNT)) for tp, first in firsts.items())


def test_brokers_that_are_away_leave_everything_to_the_fetchers(brokers: BrokerHarness) -> None:
    client = brokers.client(request_timeout_ms=100)
    for broker_id in (1, 2):
        brokers.kill(broker_id)
    assert dict(shared(brokers, client)) == dict.fromkeys(PARTS)


def test_an_unknown_topic_is_left_to_its_fetcher(brokers: BrokerHarness) -> None:
    client = brokers.client(creates_topics=False)
    missing = TopicPartition("missing", 0)
    settings = FetchSettings(partition_max_bytes=100, max_bytes=1_000, message_max_bytes=1_000)
    assert (
        dict(SharedFetch(client, dict.fromkeys([missing, PARTS[0]], Beginning(0, 100)), settings))[missing]
        is None
    )
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        list(RangeFetcher(client, missing, 0, 1, unretried_codes={ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))


def test_a_fetcher_goes_on_with_the_epoch_of_the_first_fetch(brokers: BrokerHarness) -> None:
    client = brokers.client()
    for tp in PARTS:
        brokers.fill(tp, b"in a batch", magic=2)
    first = dict(shared(brokers, client))[PARTS[0]]
    assert first is not None
    assert first.state.epochs.offset_epoch >= 0
    brokers.requests.clear()
    brokers.move_leader(PARTS[0], 2)
    client.invalidate("t")
    brokers.fill(PARTS[0], b"later", magic=2)
    sets = RangeFetcher(client, PARTS[0], 0, COUNT + 2, first=first, timeout_ms=5_000)
    assert sum(1 for data in sets for _ in iterate(data)) == COUNT + 2
    assert brokers.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)


def test_ranges_are_shared_at_the_follower_that_the_leader_names() -> None:
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    brokers = BrokerHarness(2, {"t": PARTITIONS}, replicas=2, racks=("a", "b"), properties=selector)
    filled(brokers).advance(1_000)
    client = brokers.client()
    brokers.requests.clear()
    found = {tp: whole(client, tp, f, rack="b") for tp, f in shared(brokers, client, rack="b")}
    assert found == {tp: list(range(COUNT)) for tp in PARTS}
    # Broker 2 has half of the partitions as their leader, and the others as the follower.
    assert sorted(fetches(brokers)) == [1, 2, 2]


def test_open_transactions_are_not_in_a_first_fetch(brokers: BrokerHarness) -> None:
    firsts = dict(shared(brokers, isolation=IsolationLevel.READ_COMMITTED))
    assert all(first and first.completed.last_stable_offset == COUNT for first in firsts.values())


def test_nothing_more_is_requested_after_stop(brokers: BrokerHarness) -> None:
    ranges = shared(brokers)
    ranges.stop()
    assert dict(ranges) == dict.fromkeys(PARTS)
    assert fetches(brokers) == []


def test_each_range_gets_its_own_part_of_a_response(brokers: BrokerHarness) -> None:
    wanted = {PARTS[0]: Beginning(0, 1 << 20), PARTS[2]: Beginning(5, 200), PARTS[4]: Beginning(0, 9 << 20)}
    settings = FetchSettings(partition_max_bytes=2 << 20, max_bytes=8 << 20, message_max_bytes=2 << 20)
    brokers.requests.clear()
    firsts = dict(SharedFetch(brokers.client(), wanted, settings))
    (request,) = brokers.asked(ApiKey.FETCH)
    assert [p.partition_max_bytes for t in request.topics for p in t.partitions] == [1 << 20, 200, 2 << 20]
    ends = {tp: first.completed.next_offset for tp, first in firsts.items() if first}
    assert ends[PARTS[0]] == ends[PARTS[4]] == COUNT > ends[PARTS[2]] > 5


def test_a_broker_that_does_not_answer_is_waited_for_no_longer_than_asked(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, *[lambda *_: None] * 2)
    began_ms = brokers.clock.monotonic_ms()
    settings = FetchSettings(partition_max_bytes=100, max_bytes=1_000, message_max_bytes=1_000, max_wait_ms=0)
    firsts = SharedFetch(
        brokers.client(), dict.fromkeys(PARTS, Beginning(0, 100)), settings, timeout_ms=1_000
    )
    assert dict(firsts) == dict.fromkeys(PARTS)
    assert brokers.clock.monotonic_ms() - began_ms <= 2_000
