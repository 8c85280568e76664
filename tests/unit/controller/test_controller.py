"""The controller's decisions, event by event."""

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.controller import Controller
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.controller.states import PartitionStatus
from minikafka.partition.replica import LeaderAndIsr

ONE = LiveBroker.plaintext(1, "localhost", 9092)
TWO = LiveBroker.plaintext(2, "localhost", 9093)
T0 = TopicPartition("t", 0)
LED_BY_ONE = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), controller_epoch=5)


def elected(**changes: object) -> events.Elected:
    fields: dict[str, object] = {
        "epoch": 5,
        "brokers": {1: ONE},
        "assignments": {},
        "leaderships": {},
        "deletions": frozenset(),
    }
    return events.Elected(**{**fields, **changes})  # type: ignore[arg-type]


def controller(*happened: events.Event, delete_topics: bool = True) -> Controller:
    made = Controller(1, delete_topics=delete_topics)
    for event in happened:
        made.step(event)
    return made


def test_a_broker_that_is_not_the_controller_decides_nothing() -> None:
    idle = controller()
    assert idle.step(events.TopicsChanged({"t": {0: (1,)}})) == []
    assert not idle.active


def test_the_new_controller_tells_every_broker_of_the_cluster() -> None:
    effects = controller().step(elected())
    assert effects == [events.SendUpdateMetadata(1, {1: ONE}, {})]


def test_a_new_topic_gets_its_leader_written_before_anybody_is_told() -> None:
    effects = controller(elected()).step(events.TopicsChanged({"t": {0: (1,)}}))
    assert effects == [events.WriteLeaderships({T0: LED_BY_ONE}, create=True)]


def test_replicas_learn_a_written_leader_before_all_brokers() -> None:
    chief = controller(elected(), events.TopicsChanged({"t": {0: (1,)}}))
    assert chief.step(events.LeadershipsWritten({T0: LED_BY_ONE})) == [
        events.SendLeaderAndIsr(1, {T0: LED_BY_ONE}),
        events.SendUpdateMetadata(1, {1: ONE}, {T0: LED_BY_ONE}),
    ]
    assert chief.status(T0) is PartitionStatus.ONLINE


def test_all_partitions_of_a_new_topic_become_visible_at_once() -> None:
    both = {T0: LED_BY_ONE, TopicPartition("t", 1): LED_BY_ONE}
    chief = controller(elected())
    (written,) = chief.step(events.TopicsChanged({"t": {0: (1,), 1: (1,)}}))
    assert written == events.WriteLeaderships(both, create=True)
    effects = chief.step(events.LeadershipsWritten(both))
    assert effects[-1] == events.SendUpdateMetadata(1, {1: ONE}, both)


def test_a_topic_that_is_known_is_not_elected_again() -> None:
    chief = controller(elected(), events.TopicsChanged({"t": {0: (1,)}}))
    assert chief.step(events.TopicsChanged({"t": {0: (1,)}})) == []


def test_added_partitions_get_leaders_and_others_keep_theirs() -> None:
    chief = controller(
        elected(), events.TopicsChanged({"t": {0: (1,)}}), events.LeadershipsWritten({T0: LED_BY_ONE})
    )
    effects = chief.step(events.TopicsChanged({"t": {0: (1,), 1: (1,)}}))
    assert effects == [events.WriteLeaderships({TopicPartition("t", 1): LED_BY_ONE}, create=True)]
    assert chief.status(T0) is PartitionStatus.ONLINE
    assert chief.assignment_of("t") == {0: (1,), 1: (1,)}


def test_a_topic_that_is_being_deleted_has_no_assignment_any_more() -> None:
    chief = controller(
        elected(),
        events.TopicsChanged({"t": {0: (1,)}}),
        events.LeadershipsWritten({T0: LED_BY_ONE}),
        events.DeletionRequested(frozenset({"t"})),
    )
    assert chief.assignment_of("t") is None


def test_a_partition_without_a_live_replica_stays_new_until_one_comes() -> None:
    chief = controller(elected(), events.TopicsChanged({"t": {0: (2,)}}))
    assert chief.status(T0) is PartitionStatus.NEW
    effects = chief.step(events.BrokersChanged({1: ONE, 2: TWO}))
    assert events.WriteLeaderships({T0: LeaderAndIsr(2, 0, (2,), (2,), 5)}, create=True) in effects


def test_after_a_restart_known_leaders_go_on_in_their_epoch() -> None:
    effects = controller().step(elected(assignments={"t": {0: (1,)}}, leaderships={T0: LED_BY_ONE}))
    assert effects == [
        events.SendLeaderAndIsr(1, {T0: LED_BY_ONE}),
        events.SendUpdateMetadata(1, {1: ONE}, {T0: LED_BY_ONE}),
    ]


def test_dead_leader_is_replaced_by_the_next_in_sync_replica() -> None:
    shared = LeaderAndIsr(leader=2, leader_epoch=3, isr=(2, 1), replicas=(2, 1), controller_epoch=5)
    chief = controller(
        elected(brokers={1: ONE, 2: TWO}, assignments={"t": {0: (2, 1)}}, leaderships={T0: shared})
    )
    effects = chief.step(events.BrokersChanged({1: ONE}))
    led_by_one = LeaderAndIsr(1, 4, (1,), (2, 1), 5, version=1)
    assert events.WriteLeaderships({T0: led_by_one}, create=False) in effects


def test_no_replica_outside_the_isr_becomes_leader() -> None:
    shared = LeaderAndIsr(leader=2, leader_epoch=3, isr=(2,), replicas=(2, 1), controller_epoch=5)
    chief = controller(
        elected(brokers={1: ONE, 2: TWO}, assignments={"t": {0: (2, 1)}}, leaderships={T0: shared})
    )
    effects = chief.step(events.BrokersChanged({1: ONE}))
    leaderless = LeaderAndIsr(-1, 4, (2,), (2, 1), 5, version=1)
    assert effects[0] == events.WriteLeaderships({T0: leaderless}, create=False)
    assert chief.status(T0) is PartitionStatus.OFFLINE


def online_topic(**options: bool) -> Controller:
    return controller(
        elected(assignments={"t": {0: (1,), 1: (1,)}}),
        events.LeadershipsWritten({T0: LED_BY_ONE}),
        events.LeadershipsWritten({TopicPartition("t", 1): LED_BY_ONE}),
        **options,
    )


def test_a_deletion_first_hides_the_topic_and_then_stops_its_replicas() -> None:
    effects = online_topic().step(events.DeletionRequested(frozenset({"t"})))
    hidden, stopped = effects
    assert isinstance(hidden, events.SendUpdateMetadata)
    assert {leadership.leader for leadership in hidden.leaderships.values()} == {LEADER_DURING_DELETE}
    assert stopped == events.SendStopReplica(1, (T0, TopicPartition("t", 1)))


def test_the_znodes_go_only_after_the_last_replica() -> None:
    chief = online_topic()
    chief.step(events.DeletionRequested(frozenset({"t"})))
    assert chief.step(events.ReplicaDeleted(1, T0)) == []
    assert chief.step(events.ReplicaDeleted(1, TopicPartition("t", 1))) == [events.RemoveTopic("t")]
    assert not chief.is_unknown("t")
    chief.step(events.TopicRemoved("t"))
    assert chief.is_unknown("t")


def test_a_topic_can_be_made_again_under_the_name_of_a_deleted_one() -> None:
    chief = online_topic()
    chief.step(events.DeletionRequested(frozenset({"t"})))
    chief.step(events.ReplicaDeleted(1, T0))
    chief.step(events.ReplicaDeleted(1, TopicPartition("t", 1)))
    chief.step(events.TopicRemoved("t"))
    assert chief.step(events.TopicsChanged({"t": {0: (1,)}})) == [
        events.WriteLeaderships({T0: LED_BY_ONE}, create=True)
    ]


def test_a_request_to_delete_what_is_not_there_is_dropped() -> None:
    effects = controller(elected()).step(events.DeletionRequested(frozenset({"ghost"})))
    assert [effect.topic for effect in effects if isinstance(effect, events.DropDeletionRequest)] == ["ghost"]


def test_with_deletion_switched_off_the_topic_stays() -> None:
    chief = online_topic(delete_topics=False)
    effects = chief.step(events.DeletionRequested(frozenset({"t"})))
    assert [type(effect) for effect in effects] == [events.DropDeletionRequest]
    assert chief.status(T0) is PartitionStatus.ONLINE


def test_deletion_interrupted_by_a_crash_continues() -> None:
    effects = controller().step(
        elected(assignments={"t": {0: (1,)}}, leaderships={T0: LED_BY_ONE}, deletions=frozenset({"t"}))
    )
    assert effects[-1] == events.SendStopReplica(1, (T0,))


def test_topic_without_znodes_is_forgotten_and_its_logs_stay() -> None:
    effects = online_topic().step(events.TopicsChanged({}, frozenset("t")))
    assert [type(effect) for effect in effects] == [events.LogLine, events.SendUpdateMetadata]


def test_a_controller_that_resigned_hears_nothing_more() -> None:
    chief = controller(elected(), events.Resigned())
    assert chief.step(events.TopicsChanged({"t": {0: (1,)}})) == []
