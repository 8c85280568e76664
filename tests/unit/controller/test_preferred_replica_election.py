"""Preferred replica elections, requested and automatic."""

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
