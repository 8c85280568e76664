"""The progress of a follower: the time at which it was last caught up, by its fetches."""

from __future__ import annotations

import pytest

from minikafka.partition.replica import UNKNOWN_END, FollowerReplica


def after(*fetches: tuple[int, int, int], caught_up_ms: int = 0) -> FollowerReplica:
    """Fetches of (offset, the leader's end, ms)."""
    progress = FollowerReplica(caught_up_ms)
    for fetch in fetches:
        progress.update_fetch_state(*fetch)
    return progress


def test_nothing_is_known_of_a_follower_that_has_not_asked() -> None:
    progress = after(caught_up_ms=5)
    assert (progress.end_offset, progress.caught_up_ms) == (UNKNOWN_END, 5)


def test_fetch_at_the_leaders_end_is_caught_up_now() -> None:
    assert after((10, 10, 70)).caught_up_ms == 70


def test_follower_at_the_previous_end_was_caught_up_then() -> None:
    assert after((5, 10, 70), (10, 20, 90)).caught_up_ms == 70


def test_follower_always_one_fetch_behind_stays_in_sync() -> None:
    fetches = [(10 * turn, 10 * turn + 10, 100 * turn) for turn in range(50)]
    progress = after(*fetches)
    assert progress.caught_up_ms == 4800
    assert not progress.is_lagging(4900, 200)


def test_a_slow_one_asks_and_asks_and_is_never_caught_up() -> None:
    progress = after(*((turn, 100 * turn + 100, 100 * turn) for turn in range(1, 50)))
    assert progress.caught_up_ms == 0
    assert progress.is_lagging(4900, 4800)


@pytest.mark.parametrize(("now_ms", "lags"), [(0, False), (500, False), (501, True)])
def test_it_lags_once_it_was_not_caught_up_for_longer_than_allowed(now_ms: int, lags: bool) -> None:
    assert after((3, 3, 0)).is_lagging(now_ms, 500) is lags


def test_a_clock_that_stood_still_takes_nothing_back() -> None:
    assert after((10, 10, 70), (10, 20, 70), (20, 30, 70)).caught_up_ms == 70


def test_it_may_go_back_and_then_it_has_less() -> None:
    progress = after((10, 10, 70), (4, 12, 80))
    assert (progress.end_offset, progress.caught_up_ms) == (4, 70)


def test_fetch_beyond_the_leaders_log_does_not_count() -> None:
    progress = after((10, 10, 70))
    progress.reset()
    assert (progress.end_offset, progress.caught_up_ms) == (UNKNOWN_END, 70)
