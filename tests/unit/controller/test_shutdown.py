"""Controlled shutdown: other brokers take over the leaderships of a broker before it stops."""

from minikafka.controller import events
from minikafka.controller.states import ReplicaStatus
from tests.support.controller_harness import T0, T1, Cluster, state


def test_its_leaders_move_to_other_replicas_in_sync() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    cluster.tell(events.ShutdownRequested(1))
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=1, version=1)
    assert cluster.controller.partitions_still_led_by(1) == ()


def test_it_hears_that_it_leads_no_more_and_then_to_follow_nobody() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    cluster.tell(events.ShutdownRequested(1))
    assert cluster.led() == {1: cluster.known(), 2: cluster.known()}
    assert cluster.effects[-1] == events.SendStopReplica(1, (T0,), delete=False)


def test_followed_replicas_are_stopped_and_leave_the_isr() -> None:
    cluster = Cluster((1, 2), {T0: state(2, (1, 2), (1, 2))})
    cluster.tell(events.ShutdownRequested(1))
    assert cluster.stopped(delete=False) == {1: (T0,)}
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=1, version=1)
    assert list(cluster.led()) == [2]
    assert cluster.controller.replica_status(T0, 1) is ReplicaStatus.OFFLINE


def test_irreplaceable_leaderships_stay_and_are_counted() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2)), T1: state(1, (1,))})
    cluster.tell(events.ShutdownRequested(1))
    assert cluster.written() == []
    assert cluster.controller.partitions_still_led_by(1) == (T0,), "T1 has no other replica at all"


def test_it_asks_again_until_another_replica_has_come_into_sync() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    cluster.tell(events.ShutdownRequested(1))
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2), version=1)}))
    assert cluster.known().leader == 2
    assert cluster.controller.partitions_still_led_by(1) == ()


def test_a_broker_that_stops_gets_no_leaders_of_new_topics() -> None:
    cluster = Cluster((1, 2))
    cluster.tell(events.ShutdownRequested(1))
    cluster.create("t", {0: (1, 2)})
    assert cluster.known() == state(2, (2,), (1, 2))


def test_a_broker_that_stopped_and_came_back_can_lead_again() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    cluster.tell(events.ShutdownRequested(1))
    cluster.lose(1)
    cluster.start(1)
    cluster.tell(events.IsrChanged({T0: state(2, (2, 1), (1, 2), leader_epoch=1, version=2)}))
    cluster.lose(2)
    assert cluster.known().leader == 1


def test_a_broker_that_is_dead_has_nothing_to_stop() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,))})
    assert cluster.tell(events.ShutdownRequested(7)) == []
