"""The four selectors of the release, which text 003 describes."""

from minikafka.controller.election import EligibleBrokers, next_leader_and_isr, preferred_leader_and_isr
from minikafka.partition.replica import LeaderAndIsr
from tests.support.controller_harness import state

KNOWN = state(1, (1, 2), (1, 2, 3), leader_epoch=7, version=4, controller_epoch=2)


def following(
    known: LeaderAndIsr = KNOWN,
    replicas: tuple[int, ...] | None = None,
    *,
    live: tuple[int, ...] = (1, 2, 3),
    unsure: tuple[int, ...] = (),
    unclean: bool = False,
    force_new_epoch: bool = False,
) -> tuple[int, tuple[int, ...]] | None:
    """Return the next leader and ISR; None when nothing changes."""
    made = next_leader_and_isr(
        known,
        replicas or known.replicas,
        EligibleBrokers(live, unsure),
        5,
        unclean=unclean,
        force_new_epoch=force_new_epoch,
    )
    return None if made is None else (made.leader, made.isr)


def test_valid_state_is_not_changed() -> None:
    assert following() is None


def test_each_state_has_the_next_epoch_version_and_controller() -> None:
    made = next_leader_and_isr(KNOWN, KNOWN.replicas, EligibleBrokers((2, 3)), 5)
    assert made == LeaderAndIsr(2, 8, (2,), (1, 2, 3), controller_epoch=5, version=5)


# --- offline: the leader died -------------------------------------------------------------------------------


def test_the_first_assigned_replica_that_is_in_sync_and_alive_leads() -> None:
    known = state(1, (3, 2, 1), (1, 2, 3))
    assert following(known, live=(2, 3)) == (2, (3, 2))


def test_a_follower_that_died_is_in_sync_no_more() -> None:
    assert following(live=(1, 3)) == (1, (1,))


def test_last_in_sync_replica_stays_in_the_isr_when_it_dies() -> None:
    assert following(state(2, (2,), (1, 2, 3)), live=(1, 3)) == (-1, (2,))


def test_replicas_in_sync_that_die_together_stay_so_together() -> None:
    assert following(live=(3,)) == (-1, (1, 2))


def test_a_partition_without_leader_is_not_written_again_and_again() -> None:
    assert following(state(-1, (2,), (1, 2, 3)), live=(1, 3)) is None


def test_whoever_of_them_comes_back_first_leads() -> None:
    assert following(state(-1, (1, 2), (1, 2, 3)), live=(2, 3)) == (2, (2,))


def test_unclean_election_makes_the_first_live_replica_lead_alone() -> None:
    assert following(state(1, (1,), (1, 2, 3)), live=(2, 3), unclean=True) == (2, (2,))


def test_no_replica_out_of_sync_leads_while_one_in_sync_lives() -> None:
    assert following(state(1, (1, 3), (1, 2, 3)), live=(2, 3), unclean=True) == (3, (3,))


def test_unclean_election_without_a_live_replica_elects_none() -> None:
    assert following(state(1, (1,), (1, 2)), live=(3,), unclean=True) == (-1, (1,))


# --- reassigned: other replicas -----------------------------------------------------------------------------


def test_a_new_replica_leads_and_only_new_ones_are_in_sync() -> None:
    assert following(state(1, (1, 2, 3, 4), (3, 4, 1, 2)), (3, 4), live=(1, 2, 3, 4)) == (3, (3, 4))


def test_a_leader_that_is_among_the_new_replicas_stays() -> None:
    assert following(state(2, (1, 2, 3), (3, 2, 1)), (3, 2)) == (2, (2, 3))


# --- controlled shutdown ------------------------------------------------------------------------------------


def test_a_broker_that_stops_leads_no_more_and_is_in_sync_no_more() -> None:
    assert following(unsure=(1,)) == (2, (2,))


def test_a_follower_that_stops_is_in_sync_no_more() -> None:
    assert following(unsure=(2,)) == (1, (1,))


def test_a_broker_that_stops_leads_on_where_nobody_else_is_in_sync() -> None:
    assert following(state(1, (1,), (1, 2)), unsure=(1,)) is None


def test_a_broker_that_stops_leads_rather_than_nobody() -> None:
    assert following(live=(2, 3), unsure=(2,)) == (2, (2,))


def test_the_same_leader_can_be_given_a_new_epoch() -> None:
    assert following(force_new_epoch=True) == (1, (1, 2))


# --- preferred ----------------------------------------------------------------------------------------------


def preferred(
    known: LeaderAndIsr, live: tuple[int, ...] = (1, 2, 3), unsure: tuple[int, ...] = ()
) -> tuple[int, tuple[int, ...]] | None:
    made = preferred_leader_and_isr(known, known.replicas, EligibleBrokers(live, unsure), 5)
    return None if made is None else (made.leader, made.isr)


def test_the_preferred_replica_leads_with_the_same_replicas_in_sync() -> None:
    assert preferred(state(2, (2, 1), (1, 2))) == (1, (2, 1))


def test_a_preferred_replica_that_leads_needs_no_election() -> None:
    assert preferred(KNOWN) is None


def test_dead_stopping_or_lagging_preferred_replica_does_not_lead() -> None:
    assert preferred(state(2, (2, 1), (1, 2)), live=(2,)) is None
    assert preferred(state(2, (2, 1), (1, 2)), unsure=(1,)) is None
    assert preferred(state(2, (2,), (1, 2))) is None
