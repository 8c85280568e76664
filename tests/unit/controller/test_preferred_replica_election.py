"""Preferred replica elections, requested and automatic."""

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.controller.controller import Controller
from tests.support.controller_harness import T0, T1, Cluster, state

BY_ONE = state(1, (1, 2))
BY_TWO = state(2, (2, 1), (1, 2))


def ask(cluster: Cluster, *partitions: TopicPartition) -> None:
    cluster.tell(events.ElectionRequested(frozenset(partitions)))


def test_the_first_assigned_replica_leads_and_the_request_is_removed() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO})
    ask(cluster, T0)
    assert cluster.known() == state(1, (2, 1), (1, 2), leader_epoch=1, version=1)
    assert cluster.effects[-1] == events.DropElections("done")


def test_the_log_says_what_text_003_quotes() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO, T1: BY_TWO})
    ask(cluster, T0, T1)
    assert cluster.notes() == [
        "Starting preferred replica leader election for partitions [t,0],[t,1]",
        "Partition [t,0] completed preferred replica leader election. New leader is 1",
        "Partition [t,1] completed preferred replica leader election. New leader is 1",
    ]


def test_a_preferred_replica_that_leads_already_is_all_that_was_wanted() -> None:
    cluster = Cluster((1, 2), {T0: BY_ONE})
    ask(cluster, T0)
    assert cluster.written() == []
    assert "completed" in cluster.notes()[1]
    assert cluster.effects[-1] == events.DropElections("done")


def test_an_election_that_cannot_be_says_why_and_keeps_the_leader() -> None:
    cluster = Cluster((1, 2), {T0: state(2, (2,), (1, 2)), T1: state(2, (2,), (3, 2))})
    ask(cluster, T0, T1)
    assert [note.split(" election. ")[1] for note in cluster.notes()[1:]] == [
        "Leader is 2; broker 1 is not in sync",
        "Leader is 2; broker 3 is not alive",
    ]
    assert cluster.effects[-1] == events.DropElections("done")


def test_the_request_stays_until_its_last_partition_is_settled() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO, T1: BY_ONE})
    cluster.answers = False
    ask(cluster, T0, T1)
    assert cluster.of(events.DropElections) == []
    cluster.tell(events.LeadershipsWritten({T0: cluster.written()[0]}))
    assert cluster.of(events.DropElections) == [events.DropElections("done")]


def test_missing_partitions_are_skipped_empty_requests_dropped() -> None:
    cluster = Cluster((1,))
    ask(cluster, TopicPartition("ghost", 0))
    assert cluster.notes() == ["no preferred election of ghost-0: no such partition"]
    assert len(cluster.of(events.DropElections)) == 1


def test_an_election_that_its_leader_overtook_is_tried_again() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(2, (2, 1, 3), (1, 2, 3))})
    cluster.answers = False
    ask(cluster, T0)
    cluster.tell(events.LeadershipsWritten({T0: state(2, (2, 1), (1, 2, 3), version=1)}))
    assert cluster.written() == [state(1, (2, 1), (1, 2, 3), leader_epoch=1, version=2)]


def test_an_election_waits_for_what_is_being_written() -> None:
    cluster = Cluster((1, 2, 3), {T0: state(2, (2, 1, 3), (1, 2, 3))})
    cluster.answers = False
    cluster.lose(3)
    (shrunk,) = cluster.written()
    ask(cluster, T0)
    assert cluster.written() == []
    cluster.tell(events.LeadershipsWritten({T0: shrunk}))
    assert [made.leader for made in cluster.written()] == [1]


def test_a_new_controller_goes_on_with_a_request() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO}, preferred_elections=frozenset({T0}))
    assert cluster.known().leader == 1
    assert cluster.effects[-1] == events.DropElections("done")


# --- automatic ----------------------------------------------------------------------------------------------


def test_broker_gets_partitions_back_above_the_imbalance_limit() -> None:
    cluster = Cluster((1, 2), {TopicPartition("t", p): BY_TWO if p == 0 else BY_ONE for p in range(9)})
    cluster.tell(events.RebalanceDue(10))
    assert cluster.known().leader == 1
    assert cluster.of(events.DropElections) == [], "nobody asked"


def test_up_to_the_limit_nothing_moves() -> None:
    cluster = Cluster((1, 2), {TopicPartition("t", p): BY_TWO if p == 0 else BY_ONE for p in range(10)})
    assert cluster.tell(events.RebalanceDue(10)) == []


def test_partitions_with_a_dead_or_lagging_preferred_replica_stay() -> None:
    cluster = Cluster((1, 2), {T0: state(2, (2,), (1, 2)), T1: state(2, (2,), (3, 2))})
    assert cluster.tell(events.RebalanceDue(10)) == []


def test_no_automatic_election_during_a_reassignment() -> None:
    cluster = Cluster((1, 2, 3), {T0: BY_TWO, T1: BY_ONE})
    cluster.tell(events.ReassignmentRequested({T1: (1, 3)}))
    assert cluster.tell(events.RebalanceDue(10)) == []


def test_a_controller_that_is_not_elected_balances_nothing() -> None:
    assert Controller(9, delete_topics=True).step(events.RebalanceDue(10)) == []


def problem(cluster: Cluster, key: TopicPartition = T0, *, unclean: bool = False) -> ErrorCode:
    try:
        cluster.controller.check_election(key, unclean=unclean)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def test_a_preferred_election_is_needed_if_another_in_sync_replica_leads() -> None:
    assert problem(Cluster((1, 2), {T0: BY_TWO})) is ErrorCode.NONE
    assert problem(Cluster((1, 2), {T0: BY_ONE})) is ErrorCode.ELECTION_NOT_NEEDED
    out_of_sync = Cluster((1, 2), {T0: state(2, (2,), (1, 2))})
    assert problem(out_of_sync) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert problem(Cluster((2,), {T0: BY_TWO})) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert problem(Cluster((1,), {T0: BY_ONE}), T1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_leader_is_elected_for_a_topic_that_is_being_deleted() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO})
    cluster.tell(events.DeletionRequested(frozenset({"t"})))
    assert problem(cluster) is ErrorCode.INVALID_TOPIC
    cluster.tell(events.LeadersWanted(frozenset({T0}), unclean=True))
    assert cluster.written() == []


def test_preferred_replicas_that_a_client_asks_for_lead() -> None:
    cluster = Cluster((1, 2), {T0: BY_TWO})
    cluster.tell(events.LeadersWanted(frozenset({T0}), unclean=False))
    assert cluster.known() == state(1, (2, 1), (1, 2), leader_epoch=1, version=1)
    assert cluster.of(events.DropElections) == []


def test_an_unclean_election_is_possible_while_the_leader_is_dead() -> None:
    cluster = Cluster((2, 3), {T0: state(1, (1,), (1, 2)), T1: state(4, (4,))})
    assert problem(cluster, unclean=True) is ErrorCode.NONE
    assert problem(cluster, T1, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert problem(Cluster((1, 2), {T0: BY_TWO}), unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    cluster.tell(events.LeadersWanted(frozenset({T0}), unclean=True))
    assert cluster.known() == state(2, (2,), (1, 2), leader_epoch=2, version=2)
    assert any("messages that it does not have are lost" in note for note in cluster.notes())


def test_an_unclean_election_does_not_allow_the_next_one() -> None:
    cluster = Cluster((2, 3), {T0: state(1, (1,), (1, 2, 3))})
    cluster.tell(events.LeadersWanted(frozenset({T0}), unclean=True))
    cluster.lose(2)
    assert cluster.known().leader == -1


def test_an_unclean_election_that_cannot_be_written_is_over() -> None:
    cluster = Cluster((2, 3), {T0: state(1, (1,), (1, 2, 3))})
    cluster.controller.step(events.LeadersWanted(frozenset({T0}), unclean=True))
    cluster.controller.step(events.LeadershipsWritten({}, frozenset({T0})))
    cluster.lose(3)
    assert cluster.known().leader == -1
