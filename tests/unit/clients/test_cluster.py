"""``clients/cluster``: the view of the cluster, its refreshes, and asking brokers until a deadline."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.cluster import Cluster, Lane
from minikafka.net.memory import Fault
from minikafka.wire.apis import METADATA, ApiKey
from minikafka.wire.apis.metadata import MetadataRequest
from tests.unit.clients.support import BrokersInMemory

TP = TopicPartition("t", 1)


@pytest.fixture
def brokers() -> BrokersInMemory:
    return BrokersInMemory(3, {"t": 3, "u": 1})


def test_a_bad_bootstrap_list_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        Cluster("nowhere")


def test_metadata_of_named_topics_is_asked_once(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    assert brokers.requests == []
    for _ in range(3):
        assert len(cluster.metadata(["t"]).topics["t"].partitions) == 3
    assert [r.topics for r in brokers.asked(ApiKey.METADATA)] == [("t",)]
    cluster.metadata(["t", "u"])
    assert [r.topics for r in brokers.asked(ApiKey.METADATA)] == [("t",), ("u",)]


def test_metadata_is_asked_again_when_it_is_old_or_wrong_or_on_demand(brokers: BrokersInMemory) -> None:
    cluster = brokers.client(metadata_max_age_ms=1_000)
    cluster.metadata(["t"])
    brokers.clock.advance(999)
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 1
    brokers.clock.advance(1)
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 2
    cluster.invalidate("t")
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 3
    cluster.metadata(["t"], refresh=True)
    assert len(brokers.asked(ApiKey.METADATA)) == 4


def test_all_topics_are_asked_each_time_and_forget_those_that_are_gone(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    assert set(cluster.metadata().topics) == {"t", "u"}
    del brokers.leaders[TopicPartition("u", 0)]
    assert set(cluster.metadata().topics) == {"t"}
    assert [r.topics for r in brokers.asked(ApiKey.METADATA)] == [None, None]


def test_illegal_topic_names_are_not_sent(brokers: BrokersInMemory) -> None:
    with pytest.raises(BrokerError, match="INVALID_TOPIC"):
        brokers.client().metadata(["no spaces"])
    assert brokers.requests == []


def test_the_next_bootstrap_server_is_asked_when_one_is_away(brokers: BrokersInMemory) -> None:
    brokers.stop(1)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata().brokers) == [2, 3]


def test_known_brokers_are_asked_when_the_bootstrap_server_has_gone(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    cluster.metadata()
    brokers.stop(1)
    assert sorted(cluster.metadata().brokers) == [2, 3]


def test_a_broker_that_does_not_answer_costs_ten_seconds_when_there_are_others(
    brokers: BrokersInMemory,
) -> None:
    brokers.fault(1, Fault.DROP_RESPONSE)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata().brokers) == [1, 2, 3]
    assert brokers.clock.monotonic_ms() == pytest.approx(10_000, abs=100)


def test_nobody_to_be_reached_is_told_with_addresses_reasons_and_time(brokers: BrokersInMemory) -> None:
    for broker_id in (1, 2, 3):
        brokers.stop(broker_id)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    with pytest.raises(NetworkError) as caught:
        cluster.metadata(timeout_ms=3_000)
    text = str(caught.value)
    assert "memory:9001,memory:9002" in text
    assert "3000 ms" in text
    assert "bootstrap server memory:9001 cannot be reached" in text
    assert "Connection refused" in text
    assert brokers.clock.monotonic_ms() <= 3_000


def test_connections_come_back_after_an_outage_within_the_deadline(brokers: BrokersInMemory) -> None:
    brokers.fault(1, Fault.REFUSE, 6)
    assert brokers.client().metadata().controller_id == 1


def test_the_leader_is_looked_up_and_an_election_is_waited_for(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    assert cluster.known_leader(TP) is None
    assert cluster.leader(TP).broker_id == 2
    assert cluster.known_leader(TP) == 2
    brokers.leaders[TP] = -1
    cluster.invalidate("t")
    assert cluster.known_leader(TP) is None

    def elect(milliseconds: int) -> None:
        brokers.clock.advance(milliseconds)
        if brokers.clock.monotonic_ms() > 2_000:
            brokers.leaders[TP] = 3

    brokers.waiter.wait = elect  # type: ignore[method-assign]
    assert cluster.leader(TP).broker_id == 3


def test_a_partition_without_a_leader_is_told_after_the_deadline(brokers: BrokersInMemory) -> None:
    brokers.leaders[TP] = -1
    with pytest.raises(BrokerError, match=r"leader of t-1 failed for 2000 ms: .*t-1 has no leader") as caught:
        brokers.client().leader(TP, timeout_ms=2_000)
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("tp", "complaint"),
    [
        (TopicPartition("nope", 0), "topic 'nope' cannot be used"),
        (TopicPartition("t", 7), "3 partitions, 0 to 2"),
    ],
)
def test_what_nobody_knows_is_not_waited_for_until_the_deadline(
    brokers: BrokersInMemory, tp: TopicPartition, complaint: str
) -> None:
    with pytest.raises(BrokerError, match=complaint) as caught:
        brokers.client().leader(tp, timeout_ms=60_000)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.clock.monotonic_ms() <= 5_000


def test_a_topic_that_is_being_made_is_waited_for(brokers: BrokersInMemory) -> None:
    def make(milliseconds: int) -> None:
        brokers.clock.advance(milliseconds)
        if brokers.clock.monotonic_ms() > 1_000 and TopicPartition("new", 0) not in brokers.leaders:
            brokers.add_topic("new", 2)

    brokers.waiter.wait = make  # type: ignore[method-assign]
    assert len(brokers.client().topic("new").partitions) == 2


def test_partitions_stay_known_while_their_leaders_are_in_doubt(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    assert cluster.known_topic("t") is None
    cluster.topic("t")
    cluster.invalidate("t")
    assert cluster.known_leader(TP) is None
    known = cluster.known_topic("t")
    assert known is not None
    assert len(known.partitions) == 3


def test_lanes_have_connections_of_their_own_and_bootstrap_shares_that_of_its_broker(
    brokers: BrokersInMemory,
) -> None:
    cluster = brokers.client()
    cluster.metadata()
    for lane in (Lane.CONTROL, Lane.FETCH, Lane.CONTROL, Lane.FETCH):
        cluster.call(1, METADATA, MetadataRequest(()), lane=lane)
    assert len(brokers.asked(ApiKey.API_VERSIONS)) == 2
    assert cluster.link(1).name == "broker 1 at memory:9001"


def test_a_broker_that_is_not_there_is_told(brokers: BrokersInMemory) -> None:
    cluster = brokers.client()
    cluster.metadata()
    with pytest.raises(
        NetworkError, match="broker 9 is not among the live brokers of the cluster at memory:9001"
    ):
        cluster.call(9, METADATA, MetadataRequest(()))


def test_a_broker_that_has_just_started_and_knows_no_broker_does_not_erase_the_others(
    brokers: BrokersInMemory,
) -> None:
    from minikafka.wire.apis.metadata import MetadataResponse

    cluster = brokers.client()
    cluster.metadata(["t"])
    brokers.script(ApiKey.METADATA, lambda *_: MetadataResponse((), None, -1, ()))
    assert sorted(cluster.metadata(["t"], refresh=True).brokers) == [1, 2, 3]


def test_an_operation_on_a_closed_client_fails_at_once(brokers: BrokersInMemory) -> None:
    with brokers.client() as cluster:
        cluster.metadata()
    cluster.close()
    with pytest.raises(NetworkError, match="this client is closed"):
        cluster.metadata()
    assert brokers.waiter.waits == []
    assert brokers.waiter.stopped
