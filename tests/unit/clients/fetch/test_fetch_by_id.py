"""Clients that fetch topics by their ids, and follow the new leaders that a response names (KIP-951)."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession
from minikafka.clients.fetch.fetch_state import FetchSettings, FetchStatus
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.apis.fetch import (
    NAMES_UNTIL,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from minikafka.wire.fields import ZERO_UUID
from tests.support.broker_harness import BrokerHarness

T0, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))
NEWEST = 17
SETTINGS = FetchSettings(100, 250, 1_000, retry_backoff=Backoff(50, 50), in_session=True)


class Client:
    """A fetch session with the ids that metadata has, and the time."""

    def __init__(self, **topic_ids: bytes) -> None:
        self.topic_ids = topic_ids
        self.session = FetchSession(SETTINGS, lambda tp: self.topic_ids.get(tp.topic, ZERO_UUID))
        self.leader = LeaderAndEpoch(1, 4)
        self.leaders_version = 0
        self.now_ms = 1_000

    def sent(self, *partitions: TopicPartition, offset: int = 0) -> FetchRequestData:
        self.session.update(dict.fromkeys(partitions, offset))
        (data,) = self.session.next_requests(lambda _: self.leader, self.leaders_version, self.now_ms)
        return data

    def learn(self, **topic_ids: bytes) -> None:
        """Take newer metadata."""
        self.topic_ids = topic_ids
        self.leaders_version += 1

    def answered(
        self, response: FetchResponse | OffsetForLeaderEpochResponse, version: int = NEWEST
    ) -> dict[TopicPartition, FetchStatus]:
        self.now_ms += 500
        found = self.session.handle_response(1, response, version, self.now_ms)
        return {completed.topic_partition: completed.status for completed in found}


def response(
    topic_id: bytes, name: str = "", code: ErrorCode = ErrorCode.NONE, records: bytes = b""
) -> FetchResponse:
    part = FetchPartitionResponse(0, code, 9, 9, 0, None, memoryview(records))
    return FetchResponse(0, 0, 7, (FetchTopicResponse(name, (part,), topic_id=topic_id),))


def ids_of(data: FetchRequestData) -> list[bytes]:
    assert isinstance(data.request, FetchRequest)
    return [topic.topic_id for topic in data.request.topics]


def test_topics_with_ids_are_fetched_by_them() -> None:
    client = Client(t=FIRST, other=SECOND)
    data = client.sent(T0, OTHER)
    assert (ids_of(data), data.newest_version) == ([FIRST, SECOND], None)
    assert client.answered(response(SECOND)) == {OTHER: FetchStatus.EMPTY, T0: FetchStatus.THROTTLED}


def test_broker_that_knows_no_ids_answers_by_names() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    assert client.answered(response(ZERO_UUID, "t"), NAMES_UNTIL) == {T0: FetchStatus.EMPTY}


def test_one_topic_without_id_keeps_all_to_names() -> None:
    client = Client(t=FIRST)
    data = client.sent(T0, OTHER)
    assert (ids_of(data), data.newest_version) == ([ZERO_UUID, ZERO_UUID], NAMES_UNTIL)
    client.answered(response(ZERO_UUID, "t"), NAMES_UNTIL)
    client.learn(t=FIRST, other=SECOND)
    client.now_ms += 1_000
    assert client.sent(T0, OTHER).newest_version is None


def test_topic_made_again_is_fetched_by_its_new_id() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    assert client.answered(response(FIRST)) == {T0: FetchStatus.EMPTY}
    client.sent(T0)
    unknown = response(FIRST, code=ErrorCode.UNKNOWN_TOPIC_ID)
    assert client.answered(unknown) == {T0: FetchStatus.LEADER_LOST}
    client.learn(t=SECOND)
    client.now_ms += 50
    data = client.sent(T0)
    assert isinstance(data.request, FetchRequest)
    assert (ids_of(data), data.request.session_epoch) == ([SECOND], 0)


def test_position_of_an_epoch_that_a_new_topic_lacks_is_out_of_range() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    records = build_batch([Record(None, b"v")], leader_epoch=4)
    client.answered(response(FIRST, records=records))
    client.learn(t=SECOND)
    client.leader = LeaderAndEpoch(1, 0)
    asked = client.sent(T0, offset=1).request
    assert isinstance(asked, OffsetForLeaderEpochRequest)
    row = EpochPartitionResponse(0, 0, -1, -1)
    unknown = OffsetForLeaderEpochResponse(0, (EpochTopicResponse("t", (row,)),))
    assert client.answered(unknown, 4) == {T0: FetchStatus.OUT_OF_RANGE}


def test_position_of_the_epoch_that_a_new_topic_has_stays() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    client.answered(response(FIRST, records=build_batch([Record(None, b"v")], leader_epoch=4)))
    client.learn(t=SECOND)
    assert ids_of(client.sent(T0, offset=1)) == [SECOND]


def test_partition_that_comes_back_is_validated_in_a_new_topic() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    client.answered(response(FIRST))
    client.session.retain(set())
    client.sent(T0)
    client.answered(response(FIRST, records=build_batch([Record(None, b"v")], leader_epoch=4)))
    client.learn(t=SECOND)
    client.leader = LeaderAndEpoch(1, 0)
    assert isinstance(client.sent(T0, offset=1).request, OffsetForLeaderEpochRequest)


def test_rows_of_ids_that_were_not_asked_for_are_passed_over() -> None:
    client = Client(t=FIRST)
    client.sent(T0)
    client.answered(response(FIRST))
    client.sent(T0)
    assert client.answered(response(SECOND)) == {}


# --- with brokers -------------------------------------------------------------------------------------------


@pytest.fixture
def brokers() -> BrokerHarness:
    harness = BrokerHarness(2, {"t": 1})
    harness.fill(T0, *(b"%d" % number for number in range(5)))
    return harness


def fetched_versions(brokers: BrokerHarness) -> set[int]:
    return {version for _, key, version, _ in brokers.requests if key is ApiKey.FETCH}


def values(fetcher: RangeFetcher) -> list[bytes | None]:
    return [record.value for data in fetcher for record in iterate(data)]


@pytest.mark.parametrize("newest", [12, 13, 16, NEWEST])
def test_range_is_read_in_the_newest_version_of_both(brokers: BrokerHarness, newest: int) -> None:
    brokers.newest[ApiKey.FETCH] = newest
    assert len(values(RangeFetcher(brokers.client(), T0, 0, 5))) == 5
    assert fetched_versions(brokers) == {newest}


def test_metadata_without_ids_keeps_a_client_to_names(brokers: BrokerHarness) -> None:
    cluster = brokers.client(newest_versions={ApiKey.METADATA: 9})
    assert len(values(RangeFetcher(cluster, T0, 0, 5))) == 5
    assert fetched_versions(brokers) == {NAMES_UNTIL}


def test_probe_of_a_log_is_by_name(brokers: BrokerHarness) -> None:
    assert log_reaches(brokers.client(), T0, 5)
    assert not log_reaches(brokers.client(), T0, 6)
    assert fetched_versions(brokers) == {NAMES_UNTIL}


def test_range_of_a_topic_made_again_is_that_of_the_new_one(brokers: BrokerHarness) -> None:
    fetcher = RangeFetcher(brokers.client(), T0, 0, 3)
    brokers.delete_topic("t")
    brokers.add_topic("t", 1)
    brokers.fill(T0, b"a", b"b", b"c")
    assert values(fetcher) == [b"a", b"b", b"c"]


def test_range_goes_on_in_a_topic_made_again_with_the_same_leader(brokers: BrokerHarness) -> None:
    fetcher = RangeFetcher(brokers.client(), T0, 0, 3, max_bytes=1)
    assert [record.value for record in iterate(next(fetcher))] == [b"0"]
    brokers.delete_topic("t")
    brokers.add_topic("t", 1)
    brokers.fill(T0, b"a", b"b", b"c")
    assert values(fetcher) == [b"b", b"c"]


def test_range_fetcher_takes_the_new_leader_from_the_response(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    assert values(RangeFetcher(cluster, T0, 0, 5, max_bytes=1)) != []
    asked, now_ms = len(brokers.asked(ApiKey.METADATA)), brokers.clock.monotonic_ms()
    brokers.move_leader(T0, 3 - brokers.leader(T0))
    moved_ms = brokers.clock.monotonic_ms() - now_ms
    assert len(values(RangeFetcher(cluster, T0, 0, 5))) == 5
    assert len(brokers.asked(ApiKey.METADATA)) == asked
    assert brokers.clock.monotonic_ms() - now_ms == moved_ms


def test_broker_that_names_itself_again_as_leader_is_asked_after_a_pause(brokers: BrokerHarness) -> None:
    """A controller's news reach the parts of a broker one after the other."""
    cluster = brokers.client()
    view = cluster.metadata(["t"])
    leader, epoch = view.leader(T0), view.leader_epoch(T0)
    assert leader is not None
    part = FetchPartitionResponse(
        *(0, ErrorCode.NOT_LEADER_FOR_PARTITION, -1, -1, -1, None, b""),
        current_leader=LeaderIdAndEpoch(leader.broker_id, epoch),
    )
    topic = FetchTopicResponse("t", (part,), topic_id=brokers.topic_ids["t"])
    endpoint = NodeEndpoint(leader.broker_id, leader.host, leader.port)
    refused = FetchResponse(0, 0, 0, (topic,), node_endpoints=(endpoint,))
    brokers.script(ApiKey.FETCH, *[lambda *_: refused] * 5)
    now_ms = brokers.clock.monotonic_ms()
    assert len(values(RangeFetcher(cluster, T0, 0, 5))) == 5
    assert brokers.clock.monotonic_ms() - now_ms >= 5 * cluster.backoff.first_ms
