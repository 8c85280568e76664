"""Partition reassignments, step by step."""

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.assignment import OngoingReassignment
from minikafka.controller.states import ReplicaStatus
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry.topics import TopicAssignment
from minikafka.server.zookeeper.admin_requests import ongoing_reassignments
from tests.support.controller_harness import EPOCH, T0, T1, Cluster, state

GROWN = state(1, (1, 2), (3, 4, 1, 2), leader_epoch=1, version=1)
IN_SYNC = state(1, (1, 2, 3, 4), leader_epoch=1, version=2)


def reassign(cluster: Cluster, key: TopicPartition, *replicas: int) -> None:
    cluster.tell(events.ReassignmentRequested({key: replicas}))


@pytest.fixture
def cluster() -> Cluster:
    """A reassignment from brokers 1 and 2 to 3 and 4, which are not in sync yet."""
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2)), T1: state(1, (1,))})
    reassign(cluster, T0, 3, 4)
    return cluster


def test_partition_is_first_assigned_to_old_and_new_replicas(cluster: Cluster) -> None:
    assert cluster.effects[0] == events.WriteAssignments(
        {"t": {0: (3, 4, 1, 2), 1: (1,)}}, {T0: ((3, 4), (1, 2))}
    )
    assert cluster.written() == [GROWN]
    assert cluster.led() == dict.fromkeys((1, 2, 3, 4), GROWN)
    assert cluster.controller.replica_status(T0, 3) is ReplicaStatus.NEW
    assert cluster.of(events.DropReassignments) == []


def test_nothing_more_happens_before_all_new_replicas_are_in_sync(cluster: Cluster) -> None:
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2, 3), leader_epoch=1, version=2)}))
    assert cluster.written() == []
    assert cluster.stopped(delete=True) == {}


def test_then_a_new_replica_leads_and_only_the_new_ones_are_in_sync(cluster: Cluster) -> None:
    cluster.tell(events.IsrChanged({T0: IN_SYNC}))
    now = state(3, (3, 4), leader_epoch=2, version=3)
    assert cluster.written() == [now]
    assert cluster.led() == {3: now, 4: now}


def test_old_replicas_are_deleted_before_the_request_is_removed(cluster: Cluster) -> None:
    cluster.tell(events.IsrChanged({T0: IN_SYNC}))
    assert cluster.effects[-4:] == [
        events.SendStopReplica(1, (T0,), delete=True),
        events.SendStopReplica(2, (T0,), delete=True),
        events.WriteAssignments({"t": {0: (3, 4), 1: (1,)}}),
        events.DropReassignments({T0: "done"}),
    ]
    assert cluster.controller.replica_status(T0, 1) is ReplicaStatus.NON_EXISTENT
    assert cluster.controller.replica_status(T0, 3) is ReplicaStatus.ONLINE


def test_a_leader_that_is_among_the_new_replicas_stays() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2))})
    reassign(cluster, T0, 3, 1)
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2, 3), leader_epoch=1, version=2)}))
    assert cluster.known() == state(1, (1, 3), (3, 1), leader_epoch=2, version=3)
    assert cluster.stopped(delete=True) == {2: (T0,)}


def test_replicas_can_be_added() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,))})
    reassign(cluster, T0, 1, 2)
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=1)
    assert cluster.of(events.DropReassignments) == []
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2), leader_epoch=1, version=2)}))
    assert cluster.of(events.DropReassignments) == [events.DropReassignments({T0: "done"})]
    assert cluster.stopped(delete=True) == {}


def test_replicas_that_are_in_sync_can_be_taken_away_at_once() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    reassign(cluster, T0, 2)
    assert cluster.known() == state(2, (2,), leader_epoch=1, version=1)
    assert cluster.stopped(delete=True) == {1: (T0,)}


def test_another_order_makes_another_preferred_leader() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    reassign(cluster, T0, 2, 1)
    assert cluster.known() == state(1, (1, 2), (2, 1), leader_epoch=1, version=1)
    assert cluster.controller.assignment_of("t") == {0: (2, 1)}


@pytest.mark.parametrize(
    ("key", "replicas", "reason"),
    [
        (TopicPartition("ghost", 0), (1,), "no such partition: ghost-0"),
        (TopicPartition("t", 7), (1,), "no such partition: t-7"),
        (T0, (1, 2), "t-0 is already assigned to [1, 2]"),
        (T0, (1, 8), "t-0 cannot move to brokers that are not alive: [8]"),
        (T0, (1, 1), "invalid replicas of t-0: [1, 1]; expected one or more, each once"),
        (T0, (), "invalid replicas of t-0: []; expected one or more, each once"),
        (T1, (1,), "t-1 has never had a leader"),
    ],
)
def test_invalid_reassignment_is_refused_with_a_reason(
    key: TopicPartition, replicas: tuple[int, ...], reason: str
) -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    cluster.create("t", {0: (1, 2), 1: (7,)})
    reassign(cluster, key, *replicas)
    assert cluster.effects == [events.DropReassignments({key: reason})]


def test_refused_requests_are_dropped_by_one_effect() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    cluster.tell(events.ReassignmentRequested({T0: (1, 8), TopicPartition("u", 3): (1, 2)}))
    (effect,) = cluster.effects
    assert effect == events.DropReassignments(
        {
            T0: "t-0 cannot move to brokers that are not alive: [8]",
            TopicPartition("u", 3): "no such partition: u-3",
        }
    )


def test_topics_that_move_together_are_assigned_by_one_effect() -> None:
    u0 = TopicPartition("u", 0)
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2)), u0: state(2, (2, 1))})
    cluster.tell(events.ReassignmentRequested({T0: (3, 1), u0: (3, 2)}))
    assert cluster.of(events.WriteAssignments) == [
        events.WriteAssignments(
            {"t": {0: (3, 1, 2)}, "u": {0: (3, 2, 1)}}, {T0: ((3,), (2,)), u0: ((3,), (1,))}
        )
    ]


def test_a_partition_that_is_under_way_keeps_its_first_target(cluster: Cluster) -> None:
    cluster.tell(events.ReassignmentRequested({T0: (2,)}))
    assert cluster.effects == []


def test_a_new_replica_that_dies_is_waited_for(cluster: Cluster) -> None:
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2, 3), leader_epoch=1, version=2)}))
    cluster.lose(4)
    cluster.start(4)
    assert 4 in cluster.led()
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2, 3, 4), leader_epoch=1, version=3)}))
    assert cluster.of(events.DropReassignments) == [events.DropReassignments({T0: "done"})]


def test_new_replica_that_dies_before_the_last_write_is_awaited(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.tell(events.IsrChanged({T0: IN_SYNC}))
    (last,) = cluster.written()
    cluster.lose(4)
    cluster.tell(events.LeadershipsWritten({T0: last}))
    assert cluster.written() == [state(3, (3,), (3, 4, 1, 2), leader_epoch=3, version=4)]
    assert cluster.stopped(delete=True) == {}


def test_a_leader_that_puts_a_new_replica_out_just_then_wins(cluster: Cluster) -> None:
    cluster.answers = False
    cluster.tell(events.IsrChanged({T0: IN_SYNC}))
    cluster.tell(events.LeadershipsWritten({T0: state(1, (1, 2, 3), leader_epoch=1, version=3)}))
    assert cluster.written() == []
    assert cluster.controller.assignment_of("t") == {0: (3, 4, 1, 2), 1: (1,)}


# --- a new controller ---------------------------------------------------------------------------------------


def resumed(replicas: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...] = (1, 2, 3, 4)) -> Cluster:
    """A new controller that finds this state, and the request to move the partition to 3 and 4."""
    return Cluster(live, {T0: state(isr[0], isr, replicas)}, reassignments={T0: (3, 4)})


def test_it_begins_what_was_only_asked_for() -> None:
    assert resumed((1, 2), (1, 2)).known().replicas == (3, 4, 1, 2)


def test_it_tells_all_replicas_again_as_nobody_knows_who_had_been_told() -> None:
    cluster = resumed((3, 4, 1, 2), (1, 2))
    assert cluster.known() == GROWN
    assert set(cluster.led()) == {1, 2, 3, 4}


def test_it_ends_what_had_come_into_sync_meanwhile() -> None:
    cluster = resumed((3, 4, 1, 2), (1, 2, 3, 4))
    assert cluster.known().replicas == (3, 4)
    assert cluster.stopped(delete=True) == {1: (T0,), 2: (T0,)}


def test_it_stops_the_old_replicas_where_only_the_new_ones_are_in_sync() -> None:
    assert resumed((3, 4, 1, 2), (3, 4)).stopped(delete=True) == {1: (T0,), 2: (T0,)}


def test_it_removes_a_request_whose_assignment_is_written() -> None:
    cluster = resumed((3, 4), (3, 4))
    assert [set(effect.reasons) for effect in cluster.of(events.DropReassignments)] == [{T0}]


def test_leader_learns_replicas_an_earlier_controller_assigned() -> None:
    cluster = resumed((3, 4), (3,))
    assert cluster.known() == state(3, (3,), (3, 4), leader_epoch=1, version=1)
    assert cluster.of(events.DropReassignments) == []
    cluster.tell(events.IsrChanged({T0: state(3, (3, 4), leader_epoch=1, version=2)}))
    assert cluster.of(events.DropReassignments) == [events.DropReassignments({T0: "done"})]


def test_it_waits_for_a_new_replica_that_is_dead() -> None:
    cluster = resumed((3, 4, 1, 2), (1, 2), live=(1, 2, 3))
    assert cluster.of(events.DropReassignments) == []
    cluster.start(4)
    cluster.tell(events.IsrChanged({T0: state(1, (1, 2, 3, 4), leader_epoch=1, version=2)}))
    assert cluster.known().replicas == (3, 4)


def test_a_topic_that_vanishes_takes_its_reassignments_with_it(cluster: Cluster) -> None:
    cluster.tell(events.TopicsChanged({}, frozenset("t")))
    assert cluster.of(events.DropReassignments) == [events.DropReassignments({T0: "topic t was removed"})]


# --- requests of clients ------------------------------------------------------------------------------------


def alter(cluster: Cluster, replicas: tuple[int, ...] | None, key: TopicPartition = T0) -> None:
    cluster.controller.check_reassignment(key, replicas)
    cluster.tell(events.ReassignmentsAltered({key: replicas}))


def problem(cluster: Cluster, replicas: tuple[int, ...] | None, key: TopicPartition = T0) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        cluster.controller.check_reassignment(key, replicas)
    return raised.value.code


def test_a_client_moves_a_partition_without_a_request_in_zookeeper() -> None:
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2))})
    alter(cluster, (3, 4))
    assert cluster.effects[0] == events.WriteAssignments({"t": {0: (3, 4, 1, 2)}}, {T0: ((3, 4), (1, 2))})
    assert cluster.controller.reassignments() == {T0: ((3, 4, 1, 2), (3, 4), (1, 2))}
    cluster.tell(events.IsrChanged({T0: IN_SYNC}))
    assert cluster.known() == state(3, (3, 4), leader_epoch=2, version=3)
    assert cluster.effects[-1] == events.WriteAssignments({"t": {0: (3, 4)}})
    assert cluster.controller.reassignments() == {}


def test_cancelling_gives_the_old_replicas_back_at_once() -> None:
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2))})
    alter(cluster, (3, 4))
    alter(cluster, None)
    assert cluster.effects[0] == events.WriteAssignments({"t": {0: (1, 2, 3, 4)}}, {T0: ((3, 4), (3, 4))})
    assert cluster.known() == state(1, (1, 2), leader_epoch=2, version=2)
    assert cluster.stopped(delete=True) == {3: (T0,), 4: (T0,)}
    assert cluster.effects[-1] == events.WriteAssignments({"t": {0: (1, 2)}})
    assert cluster.controller.reassignments() == {}


def test_cancelling_does_not_wait_for_an_old_replica_that_is_dead() -> None:
    cluster = Cluster((1, 3), {T0: state(1, (1,), (1, 2))})
    alter(cluster, (3, 1))
    alter(cluster, None)
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=2, version=2)
    assert cluster.stopped(delete=True) == {3: (T0,)}
    assert cluster.controller.reassignments() == {}


def test_the_only_replicas_in_sync_are_not_dropped() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1,), (1, 2))})
    alter(cluster, (3, 2))
    cluster.tell(events.IsrChanged({T0: state(1, (1, 3), (3, 2, 1), leader_epoch=1, version=2)}))
    cluster.lose(1)
    alter(cluster, None)
    now = cluster.known()
    assert (now.leader, now.isr, now.replicas) == (3, (3,), (2, 1, 3))
    assert cluster.stopped(delete=True) == {}
    cluster.tell(
        events.IsrChanged({T0: LeaderAndIsr(3, now.leader_epoch, (3, 2), (2, 1, 3), EPOCH, now.version + 1)})
    )
    after = cluster.known()
    assert (after.leader, after.isr, after.replicas) == (2, (2,), (2, 1))
    assert cluster.stopped(delete=True) == {3: (T0,)}


def test_a_second_request_replaces_the_first_and_drops_what_it_had_added() -> None:
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2))})
    alter(cluster, (3, 2))
    alter(cluster, (4, 2))
    assert cluster.effects[0] == events.WriteAssignments({"t": {0: (4, 2, 3, 1)}}, {T0: ((4, 3), (3, 1))})
    assert cluster.stopped(delete=True) == {3: (T0,)}
    assert cluster.effects[-1] == events.WriteAssignments({"t": {0: (4, 2, 1)}}, {T0: ((4,), (1,))})
    assert cluster.controller.reassignments() == {T0: ((4, 2, 1), (4,), (1,))}
    alter(cluster, None)
    assert cluster.known().replicas == (2, 1)


def test_a_client_replaces_a_request_in_zookeeper_for_good(cluster: Cluster) -> None:
    alter(cluster, (2, 3))
    assert cluster.effects[0] == events.DropReassignments({T0: "replaced by a client's request"})
    assert isinstance(cluster.effects[1], events.WriteAssignments)
    reassign(cluster, T0, 3, 4)  # read before it was removed
    assert cluster.of(events.DropReassignments) != []
    assert cluster.controller.reassignments()[T0][1:] == ((3,), (1,))
    cluster.tell(events.ReassignmentRequested({}))
    reassign(cluster, T0, 3, 4)  # another one
    assert cluster.controller.reassignments()[T0][1:] == ((3, 4), (2, 1))


def test_a_refused_request_in_zookeeper_leaves_that_of_a_client() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(1, (1, 2))})
    alter(cluster, (3, 1))
    reassign(cluster, T0, 8)
    (dropped,) = cluster.of(events.DropReassignments)
    assert "not alive" in dropped.reasons[T0]
    assert cluster.controller.reassignments() == {T0: ((3, 1, 2), (3,), (2,))}


def test_the_same_replicas_are_a_new_epoch_another_order_is_done_at_once() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1,), (1, 2))})
    alter(cluster, (1, 2))
    assert cluster.known() == state(1, (1,), (1, 2), leader_epoch=1, version=1)
    alter(cluster, (2, 1))
    assert cluster.known() == state(1, (1,), (2, 1), leader_epoch=2, version=2)
    assert cluster.controller.reassignments() == {}


def test_the_next_controller_continues_what_the_znode_of_the_topic_shows() -> None:
    known = state(1, (1, 2), (3, 4, 1, 2), leader_epoch=1, version=1)
    ongoing = {T0: OngoingReassignment((3, 4), (3, 4)), T1: OngoingReassignment((1,), ())}
    cluster = Cluster((1, 2, 3, 4), {T0: known}, ongoing=ongoing)
    assert cluster.controller.reassignments() == {T0: ((3, 4, 1, 2), (3, 4), (1, 2))}
    alter(cluster, None)
    assert cluster.known().replicas == (1, 2)
    assert cluster.stopped(delete=True) == {3: (T0,), 4: (T0,)}


def test_the_next_controller_drops_what_only_a_replaced_request_had_added() -> None:
    cluster = Cluster((1, 2, 3, 4), {T0: state(1, (1, 2))})
    alter(cluster, (3, 2))
    known = cluster.known()
    alter(cluster, (4, 2))
    written = cluster.of(events.WriteAssignments)[0]
    held = TopicAssignment(written.assignments["t"], None, *({0: lists} for lists in written.moving[T0]))
    known = replace(known, replicas=held.partitions[0])
    ongoing = ongoing_reassignments("t", held)
    cluster = Cluster((1, 2, 3, 4), {T0: known}, ongoing=ongoing)
    assert cluster.controller.reassignments() == {T0: ((4, 2, 1), (4,), (1,))}
    cluster = Cluster((1, 4), {T0: known}, ongoing=ongoing)
    alter(cluster, None)
    assert sorted(cluster.known().replicas) == [1, 2]


@pytest.mark.parametrize("replicas", [(), (1, 1), (-1,), (1, 8)])
def test_a_client_cannot_ask_for_replicas_that_cannot_be(replicas: tuple[int, ...]) -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    assert problem(cluster, replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_dead_broker_may_keep_its_replica() -> None:
    cluster = Cluster((1, 3), {T0: state(1, (1,), (1, 2))})
    cluster.controller.check_reassignment(T0, (3, 2))


def test_a_client_cannot_reassign_what_is_not_there_or_cancel_nothing() -> None:
    cluster = Cluster((1, 2), {T0: state(1, (1, 2))})
    assert problem(cluster, (1,), T1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert problem(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.tell(events.DeletionRequested(frozenset({"t"})))
    assert problem(cluster, (1,)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
