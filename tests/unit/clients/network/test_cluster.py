"""``network.cluster``: metadata, its refreshes, and requests to any broker until a deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import OUTAGE_WARNING_AFTER_MS, ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.network.retry import UNKNOWN_TOPIC_TIMEOUT_MS
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import (
    METADATA,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    metadata_request,
)
from tests.support.broker_harness import BrokerHarness

TP = TopicPartition("t", 1)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(3, {"t": 3, "u": 1})


def test_a_bad_bootstrap_list_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        ClusterClient("nowhere")


def test_metadata_of_named_topics_is_asked_once(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    assert brokers.requests == []
    for _ in range(3):
        assert len(cluster.metadata(["t"]).topics["t"].partitions) == 3
    assert [r.names for r in brokers.asked(ApiKey.METADATA)] == [("t",)]
    cluster.metadata(["t", "u"])
    assert [r.names for r in brokers.asked(ApiKey.METADATA)] == [("t",), ("u",)]


def test_metadata_is_asked_again_when_it_is_old_or_wrong_or_on_demand(brokers: BrokerHarness) -> None:
    cluster = brokers.client(metadata_max_age_ms=1_000)
    cluster.metadata(["t"])
    brokers.advance(999)
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 1
    brokers.advance(1)
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 2
    cluster.invalidate("t")
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 3
    cluster.metadata(["t"], refresh=True)
    assert len(brokers.asked(ApiKey.METADATA)) == 4


def test_all_topics_are_always_requested_and_deleted_ones_forgotten(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    assert set(cluster.metadata().topics) == {"t", "u"}
    brokers.delete_topic("u")
    assert set(cluster.metadata().topics) == {"t"}
    assert [r.names for r in brokers.asked(ApiKey.METADATA)] == [None, None]


@pytest.mark.parametrize("newest", [12, 9], ids=["with ids", "without ids"])
def test_topic_made_again_is_read_from_its_own_leader(brokers: BrokerHarness, newest: int) -> None:
    """Without ids the sixth older leader epoch in a row counts."""
    brokers.newest[ApiKey.METADATA] = newest
    tp = TopicPartition("t", 0)
    with brokers.client() as cluster:
        brokers.move_leader(tp, 2)
        before = cluster.metadata(["t"]).leader_and_epoch(tp)
        assert before is not None
        assert before.epoch > 0
        first_id = cluster.topic_id("t")
        brokers.delete_topic("t")
        brokers.add_topic("t", 1)
        views = [cluster.metadata(["t"], refresh=True).leader_epoch(tp) for _ in range(6)]
        assert views == ([0] * 6 if newest == 12 else [before.epoch] * 5 + [0])
        assert (cluster.topic_id("t") != first_id) is (newest == 12)


def test_a_client_that_creates_no_topics_says_so_where_it_names_them(brokers: BrokerHarness) -> None:
    cluster = brokers.client(creates_topics=False)
    cluster.topic("t")
    cluster.metadata()
    asked = brokers.asked(ApiKey.METADATA)
    assert [(request.names, request.allow_auto_topic_creation) for request in asked] == [
        (("t",), False),
        (None, False),
    ]


def test_client_without_topic_creation_requests_all_from_old_brokers(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.METADATA] = 3
    cluster = brokers.client(creates_topics=False)
    assert len(cluster.topic("t").partitions) == 3
    assert cluster.leader(TopicPartition("u", 0)).broker_id == 1
    cluster.metadata(["t", "new"], refresh=True)
    cluster.controller(cluster.deadline())
    assert {request.names for request in brokers.asked(ApiKey.METADATA)} == {None, ()}


def test_a_client_that_creates_no_topics_remembers_all_of_them(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.METADATA] = 3
    cluster = brokers.client(creates_topics=False, metadata_max_age_ms=1_000)
    cluster.metadata()
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 1
    cluster.invalidate("u")
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 1
    cluster.metadata(["u"])
    cluster.metadata(["u"])
    assert len(brokers.asked(ApiKey.METADATA)) == 2
    cluster.metadata(["t"], refresh=True)
    assert len(brokers.asked(ApiKey.METADATA)) == 3
    brokers.advance(1_000)
    cluster.metadata(["t"])
    assert len(brokers.asked(ApiKey.METADATA)) == 4


def test_topic_missing_in_all_topics_is_in_the_result_with_its_error(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.METADATA] = 3
    cluster = brokers.client(creates_topics=False)
    cluster.topic("u")
    brokers.delete_topic("u")
    found = cluster.metadata(["u"], refresh=True).topics["u"]
    assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found.partitions == ()
    assert set(cluster.metadata().topics) == {"t"}


@pytest.mark.parametrize("creates_topics", [True, False])
def test_a_missing_topic_is_told_with_its_cluster_soon(brokers: BrokerHarness, creates_topics: bool) -> None:
    cluster = brokers.client(creates_topics=creates_topics)
    told = "there is no topic 'nope' in the cluster at memory:9001, or this client may not describe it"
    with pytest.raises(BrokerError, match=told) as caught:
        cluster.topic("nope")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.clock.monotonic_ms() <= UNKNOWN_TOPIC_TIMEOUT_MS


@pytest.mark.parametrize(("creates_topics", "operation"), [(True, "Describe or Create"), (False, "Describe")])
def test_a_topic_that_the_rules_close_is_told_with_the_missing_rule(
    brokers: BrokerHarness, creates_topics: bool, operation: str
) -> None:
    answer = brokers.serve
    hidden = MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t", False, ())
    brokers.always(ApiKey.METADATA, lambda *asked: replace(answer(*asked), topics=(hidden,)))
    with pytest.raises(BrokerError) as caught:
        brokers.client(creates_topics=creates_topics).topic("t")
    assert str(caught.value) == (
        f"TOPIC_AUTHORIZATION_FAILED: not authorized: {operation} on topic 't' (see `minikafka acl list`)"
    )


def test_how_long_a_missing_topic_is_asked_for_can_be_said(brokers: BrokerHarness) -> None:
    cluster = brokers.client(creates_topics=False, unknown_topic_timeout_ms=500)
    with pytest.raises(BrokerError, match="there is no topic 'nope'"):
        cluster.topic("nope")
    assert brokers.clock.monotonic_ms() <= 500


def test_illegal_topic_names_are_not_sent(brokers: BrokerHarness) -> None:
    with pytest.raises(BrokerError, match="INVALID_TOPIC"):
        brokers.client().metadata(["no spaces"])
    assert brokers.requests == []


def test_the_next_bootstrap_server_is_asked_when_one_is_away(brokers: BrokerHarness) -> None:
    brokers.stop(1)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata().brokers) == [2, 3]


def test_known_brokers_are_asked_when_the_bootstrap_server_has_gone(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata()
    brokers.stop(1)
    assert sorted(cluster.metadata().brokers) == [2, 3]


def test_unresponsive_broker_costs_ten_seconds_if_there_are_others(brokers: BrokerHarness) -> None:
    brokers.fault(1, Fault.DROP_RESPONSE)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata().brokers) == [1, 2, 3]
    assert brokers.clock.monotonic_ms() == pytest.approx(10_000, abs=100)


def test_unresponsive_broker_leaves_the_others_a_part_of_a_short_time(brokers: BrokerHarness) -> None:
    brokers.fault(1, Fault.DROP_RESPONSE)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata(timeout_ms=3_000).brokers) == [1, 2, 3]
    assert brokers.clock.monotonic_ms() == pytest.approx(1_500, abs=100)


def test_unreachable_cluster_error_names_addresses_reasons_and_time(brokers: BrokerHarness) -> None:
    for broker_id in (1, 2, 3):
        brokers.stop(broker_id)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    with pytest.raises(NetworkError) as caught:
        cluster.metadata(timeout_ms=3_000)
    text = str(caught.value)
    reasons = (f"bootstrap server memory:{port}: cannot connect: Connection refused" for port in (9001, 9002))
    assert text.startswith(f"no broker could be reached for 3000 ms: {'; '.join(reasons)}; check ")
    assert (text.count("memory:9001"), text.count("memory:9002")) == (1, 1)
    assert brokers.clock.monotonic_ms() <= 3_000


def test_unreachable_cluster_error_says_in_one_line_what_to_check(brokers: BrokerHarness) -> None:
    brokers.stop(1)
    cluster = brokers.client(bootstrap="memory:9001,memory:7", option="kafka.bootstrap.servers")
    with pytest.raises(NetworkError) as caught:
        cluster.metadata(timeout_ms=3_000)
    text = str(caught.value)
    assert text.count("check that a broker runs there") == 1
    assert text.endswith("and that kafka.bootstrap.servers has the host and port of one of its listeners")
    assert "\n" not in text


MOVED = (
    "; check that the brokers run, and that this host can connect to them; if they have other listeners now, "
    "set bootstrap.servers and security.protocol to one of them"
)


def test_error_of_a_cluster_gone_since_names_its_brokers_and_listeners(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata()
    for broker_id in (1, 2, 3):
        brokers.stop(broker_id)
    with pytest.raises(NetworkError) as caught:
        cluster.metadata(timeout_ms=3_000)
    text = str(caught.value)
    for broker_id in (1, 2, 3):
        assert text.count(f"broker {broker_id} at memory:900{broker_id}: cannot connect: ") == 1
    assert text.endswith(MOVED)


def test_lookup_inside_a_larger_operation_is_told_by_its_reasons_alone(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata(["t"])
    for broker_id in (1, 2, 3):
        brokers.stop(broker_id)
    cluster.invalidate("t")
    with pytest.raises(NetworkError) as caught:
        cluster.leader(TP, timeout_ms=3_000)
    reasons = (f"broker {n} at memory:900{n}: cannot connect: Connection refused" for n in (1, 2, 3))
    assert str(caught.value) == (f"finding the leader of t-1 failed for 3000 ms: {'; '.join(reasons)}{MOVED}")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_lasting_outage_is_logged_with_address_reason_and_timeout(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.stop(1)
    told_at_ms: list[int] = []

    def look(milliseconds: int) -> None:
        brokers.advance(milliseconds)
        if caplog.records and not told_at_ms:
            told_at_ms.append(brokers.clock.monotonic_ms())

    brokers.waiter.wait = look  # type: ignore[method-assign]
    with pytest.raises(NetworkError):
        brokers.client().topic("t", timeout_ms=60_000)
    (warning,) = warnings_of(caplog)
    assert warning.endswith(
        "bootstrap server memory:9001: cannot connect: Connection refused; retrying, for 60 s in total"
    )
    assert OUTAGE_WARNING_AFTER_MS < told_at_ms[0] < OUTAGE_WARNING_AFTER_MS + 3_000


def test_outage_is_logged_every_minute_also_for_short_requests(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.stop(1)
    cluster = brokers.client()
    told_at_ms: list[int] = []
    while brokers.clock.monotonic_ms() < 150_000:
        with pytest.raises(NetworkError):
            cluster.metadata(timeout_ms=100)
        brokers.advance(400)
        if len(caplog.records) > len(told_at_ms):
            told_at_ms.append(brokers.clock.monotonic_ms())
    assert all("memory:9001: cannot connect" in text for text in warnings_of(caplog))
    assert warnings_of(caplog)[0].endswith("Connection refused; retrying")
    assert [round(moment / 1000) for moment in told_at_ms] == [6, 66, 126]


def test_the_next_outage_is_told_too(brokers: BrokerHarness, caplog: pytest.LogCaptureFixture) -> None:
    cluster = brokers.client(bootstrap="memory:9001,memory:9002,memory:9003")
    for _ in range(2):
        for broker_id in (1, 2, 3):
            brokers.stop(broker_id)
        with pytest.raises(NetworkError):
            cluster.metadata(timeout_ms=20_000)
        for broker_id in (1, 2, 3):
            brokers.start(broker_id)
        cluster.metadata()
    assert len(warnings_of(caplog)) == 2


def test_an_outage_that_is_soon_over_is_not_told(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.fault(1, Fault.REFUSE, 6)
    brokers.client().metadata()
    assert warnings_of(caplog) == []


def test_who_fails_soon_is_told_by_the_error_alone(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.stop(1)
    with pytest.raises(NetworkError):
        brokers.client().metadata(timeout_ms=OUTAGE_WARNING_AFTER_MS)
    assert warnings_of(caplog) == []


def test_connections_come_back_after_an_outage_within_the_deadline(brokers: BrokerHarness) -> None:
    brokers.fault(1, Fault.REFUSE, 6)
    assert brokers.client().metadata().controller_id == 1


def test_the_leader_is_looked_up_and_an_election_is_waited_for(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    assert cluster.known_leader(TP) is None
    assert cluster.leader(TP).broker_id == 2
    assert cluster.known_leader(TP) == 2
    brokers.lose_leader(TP)
    cluster.invalidate("t")
    assert cluster.known_leader(TP) is None

    def elect(milliseconds: int) -> None:
        brokers.advance(milliseconds)
        if brokers.clock.monotonic_ms() > 2_000:
            brokers.move_leader(TP, 3)

    brokers.waiter.wait = elect  # type: ignore[method-assign]
    assert cluster.leader(TP).broker_id == 3


def test_a_partition_without_a_leader_is_told_after_the_deadline(brokers: BrokerHarness) -> None:
    brokers.lose_leader(TP)
    with pytest.raises(BrokerError, match=r"leader of t-1 failed for 2000 ms: .*no leader for t-1") as caught:
        brokers.client().leader(TP, timeout_ms=2_000)
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_leader_without_the_clients_listener_is_logged_every_minute(
    brokers: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    row = MetadataPartition(ErrorCode.LISTENER_NOT_FOUND, 0, -1, 0, (2,), (2,))
    topics = (MetadataTopic(0, "t", False, (row,)),)
    one = MetadataResponse(0, (MetadataBroker(1, "memory", 9001, None),), "id", 1, topics)
    brokers.always(ApiKey.METADATA, lambda *_: one)
    cluster = brokers.client()
    while brokers.clock.monotonic_ms() < 100_000:
        assert cluster.metadata(["t"], refresh=True).brokers.keys() == {1}
        brokers.advance(1_000)
    assert len(warnings_of(caplog)) == 2
    assert "the leader of t-0 does not have the listener that this client uses" in warnings_of(caplog)[0]


@pytest.mark.parametrize(
    ("tp", "complaint"),
    [
        (TopicPartition("nope", 0), "there is no topic 'nope'"),
        (TopicPartition("t", 7), "3 partitions, 0 to 2"),
    ],
)
def test_what_nobody_knows_is_not_waited_for_until_the_deadline(
    brokers: BrokerHarness, tp: TopicPartition, complaint: str
) -> None:
    with pytest.raises(BrokerError, match=complaint) as caught:
        brokers.client().leader(tp, timeout_ms=60_000)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.clock.monotonic_ms() <= 5_000


@pytest.mark.parametrize("creates_topics", [True, False])
def test_a_topic_that_is_being_made_is_waited_for(brokers: BrokerHarness, creates_topics: bool) -> None:
    def make(milliseconds: int) -> None:
        brokers.advance(milliseconds)
        if brokers.clock.monotonic_ms() > 1_000 and TopicPartition("new", 0) not in brokers.leaders:
            brokers.add_topic("new", 2)

    brokers.waiter.wait = make  # type: ignore[method-assign]
    client = brokers.client(creates_topics=creates_topics)
    assert len(client.topic("new").partitions) == 2


def test_partitions_stay_known_while_their_leaders_are_in_doubt(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    assert cluster.known_topic("t") is None
    cluster.topic("t")
    cluster.invalidate("t")
    assert cluster.known_leader(TP) is None
    known = cluster.known_topic("t")
    assert known is not None
    assert len(known.partitions) == 3


def test_pools_have_own_connections_and_bootstrap_shares_its_brokers(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata()
    for pool in (ConnectionPool.CONTROL, ConnectionPool.FETCH, ConnectionPool.CONTROL, ConnectionPool.FETCH):
        cluster.call(1, METADATA, metadata_request(()), pool=pool)
    assert len(brokers.asked(ApiKey.API_VERSIONS)) == 2
    assert str(cluster.connection(1).name) == "broker 1 at memory:9001"


def test_a_broker_that_is_not_there_is_told(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    cluster.metadata()
    with pytest.raises(
        NetworkError, match="broker 9 is not among the live brokers of the cluster at memory:9001"
    ):
        cluster.call(9, METADATA, metadata_request(()))


def without_brokers(*_: object) -> MetadataResponse:
    """The response of a broker that knows no broker yet, not even itself."""
    return MetadataResponse(0, (), None, -1, ())


def test_metadata_without_brokers_is_requested_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.METADATA, *[without_brokers] * 4)
    cluster = brokers.client()
    assert cluster.topic("t").available == (0, 1, 2)
    assert sorted(cluster.metadata().brokers) == [1, 2, 3]


def test_another_broker_is_asked_when_one_knows_nobody(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.METADATA, without_brokers)
    cluster = brokers.client(bootstrap="memory:9001,memory:9002")
    assert sorted(cluster.metadata().brokers) == [1, 2, 3]
    assert brokers.waiter.waits == []


def test_cluster_without_known_brokers_fails_after_the_deadline(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.METADATA, *[without_brokers] * 100)
    with pytest.raises(NetworkError, match=r"reached for 2000 ms: .*memory:9001: lists no live broker"):
        brokers.client().metadata(["t"], timeout_ms=2_000)
    assert brokers.clock.monotonic_ms() <= 2_000


def test_an_operation_on_a_closed_client_fails_at_once(brokers: BrokerHarness) -> None:
    with brokers.client() as cluster:
        cluster.metadata()
    cluster.close()
    with pytest.raises(NetworkError, match="the client is closed"):
        cluster.metadata()
    assert brokers.waiter.waits == []
    assert brokers.waiter.stopped
