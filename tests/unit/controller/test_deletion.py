"""The deletion of topics with replicas on several brokers."""

from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.deletion import REPLICAS_AT_ONCE
from minikafka.controller.states import ReplicaStatus
from tests.support.controller_harness import T0, T1, Cluster, state

WANTED = events.DeletionRequested(frozenset({"t"}))


def deleting(live: tuple[int, ...] = (1, 2)) -> Cluster:
    cluster = Cluster(live, {T0: state(1, (1, 2))})
    cluster.tell(WANTED)
    return cluster


def test_every_live_replica_is_deleted_and_then_the_topic() -> None:
    cluster = deleting()
    assert cluster.stopped(delete=True) == {1: (T0,), 2: (T0,)}
    assert cluster.tell(events.ReplicaDeleted(1, T0)) == []
    assert cluster.tell(events.ReplicaDeleted(2, T0)) == [events.RemoveTopic("t")]


def test_a_dead_broker_is_waited_for() -> None:
    cluster = deleting(live=(1,))
    assert cluster.stopped(delete=True) == {1: (T0,)}
    cluster.tell(events.ReplicaDeleted(1, T0))
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.DELETION_INELIGIBLE
    cluster.start(2)
    assert cluster.stopped(delete=True) == {2: (T0,)}
    assert cluster.tell(events.ReplicaDeleted(2, T0)) == [events.RemoveTopic("t")]


def test_a_broker_that_dies_before_it_answers_is_asked_again() -> None:
    cluster = deleting()
    cluster.lose(2)
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.DELETION_INELIGIBLE
    cluster.start(2)
    assert cluster.stopped(delete=True) == {2: (T0,)}


def test_a_broker_that_has_deleted_its_replica_is_not_asked_again() -> None:
    cluster = deleting()
    cluster.tell(events.ReplicaDeleted(2, T0))
    cluster.lose(2)
    cluster.start(2)
    assert cluster.stopped(delete=True) == {}
    assert cluster.tell(events.ReplicaDeleted(1, T0)) == [events.RemoveTopic("t")]


def test_returning_broker_is_sent_the_deletion_of_the_topic() -> None:
    cluster = deleting()
    cluster.lose(2)
    cluster.start(2)
    assert cluster.led() == {}
    assert cluster.written() == []


def test_replica_that_was_not_deleted_waits_for_its_broker() -> None:
    cluster = deleting()
    cluster.tell(events.ReplicaDeleted(1, T0))
    assert cluster.tell(events.ReplicaNotDeleted(2, T0)) == []
    assert cluster.controller.replica_status(T0, 2) is ReplicaStatus.DELETION_INELIGIBLE
    assert cluster.tell(events.ReplicaDeleted(2, T0)) == [events.RemoveTopic("t")]


def test_an_answer_that_comes_twice_counts_once() -> None:
    cluster = deleting()
    cluster.tell(events.ReplicaDeleted(1, T0))
    cluster.tell(events.ReplicaDeleted(2, T0))
    assert cluster.tell(events.ReplicaDeleted(2, T0)) == []


def test_a_request_is_carried_out_once() -> None:
    assert deleting().tell(WANTED) == []


def test_election_that_ends_during_a_deletion_is_not_announced() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2, 3))})
    cluster.answers = False
    cluster.lose(1)
    (late,) = cluster.written()
    cluster.tell(WANTED)
    assert cluster.tell(events.LeadershipsWritten({T0: late})) == []


def test_a_reassignment_comes_to_its_end_before_the_deletion_begins() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,))})
    cluster.tell(events.ReassignmentRequested({T0: (2,)}))
    assert cluster.tell(WANTED) == []
    assert cluster.controller.assignment_of("t") is None
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2), leader_epoch=1, version=2)}))
    assert cluster.of(events.DropReassignments) == [events.DropReassignments({T0: "done"})]
    assert cluster.stopped(delete=True) == {1: (T0,), 2: (T0,)}
    assert cluster.tell(events.ReplicaDeleted(2, T0)) == [events.RemoveTopic("t")]


def test_a_topic_that_is_to_be_deleted_is_not_reassigned_nor_elected() -> None:
    cluster = deleting()
    cluster.tell(events.ReassignmentRequested({T0: (2,)}))
    assert cluster.effects == [events.DropReassignments({T0: "topic t is being deleted"})]
    cluster.tell(events.ElectionRequested(frozenset({T0})))
    assert cluster.notes() == ["no preferred election of t-0: its topic will be deleted"]


def test_preferred_election_ends_before_the_deletion_starts() -> None:
    cluster = Cluster((1, 2), {T0: state(2, (2, 1), (1, 2))})
    cluster.answers = False
    cluster.tell(events.ElectionRequested(frozenset({T0})))
    (made,) = cluster.written()
    assert cluster.tell(WANTED) == []
    cluster.tell(events.LeadershipsWritten({T0: made}))
    assert cluster.of(events.DropElections) == [events.DropElections("done")]
    assert cluster.stopped(delete=True) == {1: (T0,), 2: (T0,)}


def test_new_controller_deletes_the_rest_and_waits_for_brokers() -> None:
    cluster = Cluster((1,), {T0: state(1, (1,), (1, 2))}, deletions=frozenset({"t"}))
    assert cluster.led() == {}
    assert cluster.stopped(delete=True) == {1: (T0,)}
    cluster.tell(events.ReplicaDeleted(1, T0))
    cluster.start(2)
    assert cluster.stopped(delete=True) == {2: (T0,)}


def test_topic_removed_while_its_deletion_waits_drops_the_request() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,))})
    cluster.tell(events.ReassignmentRequested({T0: (2,)}))
    cluster.tell(WANTED)
    cluster.tell(events.TopicsChanged({}, frozenset("t")))
    assert cluster.of(events.DropDeletionRequest) == [
        events.DropDeletionRequest("t", "its znodes were removed")
    ]
    assert cluster.controller.is_unknown("t")


def test_partitions_that_come_while_the_topic_is_deleted_get_no_leader() -> None:
    cluster = deleting()
    cluster.create("t", {0: (1, 2), 1: (1, 2)})
    assert cluster.written(T1) == []


def test_dead_broker_does_not_hold_up_the_deletion_of_many_topics() -> None:
    names = [f"t{number:04d}" for number in range(3 * REPLICAS_AT_ONCE)]
    cluster = Cluster((1, 2), {TopicPartition(name, 0): state(1, (1, 2)) for name in names})
    cluster.tell(events.DeletionRequested(frozenset(names)))
    first = cluster.stopped(delete=True)[1]
    assert len(first) == REPLICAS_AT_ONCE // 2
    cluster.tell(events.ReplicaDeleted(1, first[0]))
    assert len(cluster.stopped(delete=True)[1]) == 1
    cluster.tell(events.ReplicaDeleted(2, first[0]))
    assert cluster.stopped(delete=True) == {}
    cluster.lose(2)
    assert len(cluster.stopped(delete=True)[1]) == REPLICAS_AT_ONCE // 2
