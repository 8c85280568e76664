"""The controller when brokers die, return and restart, and when others write states meanwhile."""

import pytest

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.states import PartitionStatus, ReplicaStatus
from tests.support.controller_harness import EPOCH, T0, T1, Cluster, state

T2 = TopicPartition("t", 2)


# --- failure ------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Cluster:
    """Two brokers; 1 leads, both are in sync."""
    return Cluster((1, 2), {T0: state(1, (1, 2))})


def test_leaderless_partitions_are_written_before_shrinking_isrs() -> None:
    cluster = Cluster((1, 2), {T0: state(2, (2, 1)), T1: state(1, (1, 2))})
    cluster.lose(1)
    assert [list(effect.leaderships) for effect in cluster.of(events.WriteLeaderships)] == [[T1], [T0]]


def test_live_replicas_are_told_who_leads_and_then_all_brokers() -> None:
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2, 3))})
    cluster.lose(1)
    now = state(2, (2, 3), (1, 2, 3), leader_epoch=1, version=1)
    assert cluster.led() == {2: now, 3: now}
    assert cluster.published() == {2: now, 3: now, 4: now, 9: now}


def test_all_partitions_are_sent_in_one_request_a_broker() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2)), T1: state(1, (1, 2))})
    cluster.lose(1)
    assert [list(effect.leaderships) for effect in cluster.of(events.SendLeaderAndIsr)] == [[T0, T1]]


def test_without_a_replica_in_sync_the_others_hear_that_nobody_leads() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    cluster.lose(1)
    assert cluster.led() == {2: state(-1, (1,), (1, 2), leader_epoch=1, version=1)}
    assert cluster.controller.status(T0) is PartitionStatus.OFFLINE


def test_a_failure_touches_no_partition_of_other_brokers() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2)), T1: state(3, (3,))})
    cluster.lose(2)
    assert not cluster.written(T1)
    assert 3 not in {effect.broker_id for effect in cluster.of(events.SendLeaderAndIsr)}


def test_the_replicas_of_a_dead_broker_are_offline_until_it_is_back(cluster: Cluster) -> None:
    cluster.lose(2)
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.OFFLINE
    cluster.start(2)
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.ONLINE


def test_unclean_leader_is_elected_with_a_warning_if_allowed() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))}, unclean_election_topics=frozenset({"t"}))
    cluster.lose(1)
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=1, version=1)
    assert cluster.of(events.LogLine)[0].warning
    assert "no replica in the ISR of t-0 is alive ([1]): electing broker 2" in cluster.notes()[0]


def test_topic_that_allows_unclean_election_gets_a_leader_at_once() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    cluster.lose(1)
    cluster.tell(events.UncleanElectionChanged(frozenset({"t"})))
    assert cluster.known().leader == 2


# --- return -------------------------------------------------------------------------------------------------


def test_returning_broker_gets_brokers_then_leaders_then_metadata() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2)), T1: state(1, (1,))})
    cluster.lose(2)
    cluster.start(2)
    to_it = [effect for effect in cluster.effects if getattr(effect, "broker_id", None) == 2]
    alive = cluster.addresses()
    now = state(1, (1,), (1, 2), leader_epoch=1, version=1)
    assert to_it == [
        events.SendUpdateMetadata(2, alive, {}),
        events.SendLeaderAndIsr(2, {T0: now}),
        events.SendUpdateMetadata(2, alive, {T0: now, T1: state(1, (1,))}),
    ]


def test_the_others_hear_only_that_it_lives() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,), (1, 2))})
    cluster.start(2)
    assert events.SendUpdateMetadata(1, cluster.addresses(), {}) in cluster.effects
    assert 1 not in cluster.published()


def test_the_last_replica_in_sync_leads_again_when_it_comes_back() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    cluster.lose(1)
    cluster.start(1)
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=2, version=2)
    assert cluster.led() == {1: cluster.known(), 2: cluster.known()}


def test_a_replica_out_of_sync_that_comes_back_does_not_lead() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,), (1, 2))})
    cluster.lose(1)
    cluster.start(2)
    assert cluster.known().leader == -1


def test_first_live_replicas_lead_a_new_partition_when_they_return() -> None:
    cluster = Cluster((1,))
    cluster.create("t", {0: (2, 3)})
    assert cluster.controller.status(T0) is PartitionStatus.NEW
    cluster.start(3)
    assert cluster.known() == state(3, (3,), (2, 3))
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.OFFLINE


def test_nothing_happens_when_nothing_has_changed(cluster: Cluster) -> None:
    assert cluster.tell(events.BrokersChanged(cluster.addresses(), cluster.sessions)) == []


# --- restarts in between ------------------------------------------------------------------------------------


def test_a_leader_with_another_session_was_restarted_and_another_leads(cluster: Cluster) -> None:
    cluster.start(1)
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=1, version=1)
    assert cluster.led() == {1: cluster.known(), 2: cluster.known()}


def test_a_follower_that_was_restarted_has_to_come_into_sync_anew(cluster: Cluster) -> None:
    cluster.start(2)
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=1)


def test_only_in_sync_replica_leads_a_new_epoch_after_a_restart() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    cluster.start(1)
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=1)


def test_restarted_broker_gets_its_leaderships_after_elections(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.start(1)
    assert cluster.led() == {}


def test_failed_log_is_led_by_another_in_sync_replica() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2, 3)), T1: state(2, (1, 2, 3))})
    cluster.tell(events.LogsFailed(1, frozenset({T0, T1})))
    assert cluster.written() == [state(2, (2, 3), (1, 2, 3), leader_epoch=1, version=1)]
    assert cluster.notes() == ["broker 1 cannot write its log of t-0: electing another leader"]


def test_failed_log_without_other_replicas_keeps_its_leader() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2)), T1: state(1, (1, 3), (1, 3))})
    cluster.tell(events.LogsFailed(1, frozenset({T0, T1, TopicPartition("gone", 0)})))
    assert cluster.written() == []


def test_a_broker_at_another_address_was_restarted(cluster: Cluster) -> None:
    moved = {**cluster.addresses(), 1: LiveBroker.plaintext(1, "host-1", 1)}
    cluster.tell(events.BrokersChanged(moved))
    assert cluster.known().leader == 2


# --- while a state is being written -------------------------------------------------------------------------


def test_leader_that_dies_during_its_election_is_replaced_after() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2, 3))})
    cluster.answers = False
    cluster.lose(1)
    (first,) = cluster.written()
    cluster.lose(2)
    assert cluster.written() == [], "one write at a time"
    cluster.tell(events.LeadershipsWritten({T0: first}))
    assert cluster.led() == {}, "it would be news of the past"
    assert cluster.written() == [state(3, (3,), (1, 2, 3), leader_epoch=2, version=2)]


def test_leader_that_restarts_during_its_election_is_replaced() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2, 3))})
    cluster.answers = False
    cluster.lose(1)
    (first,) = cluster.written()
    cluster.start(2)
    cluster.tell(events.LeadershipsWritten({T0: first}))
    assert cluster.written() == [state(3, (3,), (1, 2, 3), leader_epoch=2, version=2)]


def test_state_that_its_leader_wrote_first_is_decided_again() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2, 3))})
    cluster.answers = False
    cluster.lose(1)
    shrunk = state(1, (1, 3), (1, 2, 3), version=1)
    cluster.tell(events.LeadershipsWritten({T0: shrunk}))
    assert cluster.written() == [state(3, (3,), (1, 2, 3), leader_epoch=1, version=2)]


def test_a_restart_is_not_forgotten_when_the_leader_wrote_first(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.start(1)
    cluster.tell(events.LeadershipsWritten({T0: state(1, (1,), (1, 2), version=1)}))
    assert cluster.written() == [state(1, (1,), (1, 2), leader_epoch=1, version=2)]


def test_state_of_a_later_controller_is_ignored(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.lose(1)
    later = state(2, (2,), (1, 2), leader_epoch=1, version=1, controller_epoch=EPOCH + 1)
    cluster.tell(events.LeadershipsWritten({T0: later}))
    assert [type(effect) for effect in cluster.effects] == [events.LogLine]
    assert "controller epoch 6" in cluster.notes()[0]


def test_a_state_that_is_gone_is_not_written_until_something_happens(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.lose(1)
    assert cluster.tell(events.LeadershipsWritten({}, missing=frozenset({T0}))) == []
    cluster.start(1)
    assert len(cluster.written()) == 1


def test_an_answer_that_is_older_than_what_is_known_is_not_heard() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2), version=3)})
    assert cluster.tell(events.LeadershipsWritten({T0: state(2, (2,), (1, 2), version=2)})) == []


# --- who is in sync -----------------------------------------------------------------------------------------


def test_a_change_of_the_replicas_in_sync_is_told_to_all_brokers(cluster: Cluster) -> None:
    shrunk = state(1, (1,), (1, 2), version=1)
    cluster.tell(events.IsrChanged({T0: shrunk}))
    assert cluster.published() == {1: shrunk, 2: shrunk, 9: shrunk}
    assert cluster.led() == {}


def test_a_change_that_is_known_is_not_told_again() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2), version=3)})
    assert cluster.tell(events.IsrChanged({T0: state(1, (1,), (1, 2), version=2)})) == []


def test_election_of_an_earlier_controller_is_announced(cluster: Cluster) -> None:
    moved = state(2, (1, 2), leader_epoch=1, version=1, controller_epoch=EPOCH - 1)
    cluster.tell(events.IsrChanged({T0: moved}))
    assert cluster.led() == {1: moved, 2: moved}


def test_a_dead_replica_that_its_leader_took_in_is_put_out() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,), (1, 2))})
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2), version=1)}))
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=2)


# --- a new controller ---------------------------------------------------------------------------------------


def test_new_controller_repairs_changes_while_there_was_none() -> None:
    cluster = Cluster((2,), {T0: state(1, (1, 2)), T1: state(2, (2, 1)), T2: state(1, (1,))})
    assert cluster.known(T0).leader == 2
    assert cluster.known(T1) == state(2, (2,), (2, 1), leader_epoch=1, version=1)
    assert cluster.known(T2).leader == -1


def test_a_new_controller_tells_the_other_brokers_first_who_lives() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,))})
    assert [(type(effect), getattr(effect, "broker_id", None)) for effect in cluster.effects] == [
        (events.SendUpdateMetadata, 1),
        (events.SendLeaderAndIsr, 1),
        (events.SendUpdateMetadata, 9),
        (events.SendUpdateMetadata, 1),
    ]


# --- away while nobody looked -------------------------------------------------------------------------------


def test_leader_away_before_this_controller_needs_a_new_epoch() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))}, bounced_brokers={T0: (1,)})
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=1, version=1)


def test_irreplaceable_leader_continues_in_a_new_epoch() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))}, bounced_brokers={T0: (1,)})
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=1)
