"""``clients/network/retry``: deadlines, back-off, pauses, failed attempts."""

from __future__ import annotations

from minikafka.base.clock import ManualClock
from minikafka.clients.network.retry import Backoff, Deadline, EventWaiter, FailedAttempts


def test_a_deadline_counts_down_to_zero_and_stays_there() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 100)
    assert (deadline.remaining_ms(), deadline.at_most(30), deadline.expired) == (100, 30, False)
    clock.advance(90)
    assert (deadline.remaining_ms(), deadline.at_most(30)) == (10, 10)
    clock.advance(50)
    assert (deadline.remaining_ms(), deadline.expired) == (0, True)


def test_back_off_doubles_up_to_its_longest() -> None:
    backoff = Backoff(50, 1_000)
    assert [backoff.delay_ms(n) for n in range(8)] == [0, 50, 100, 200, 400, 800, 1_000, 1_000]
    assert backoff.delay_ms(10**6) == 1_000


def test_a_stopped_waiter_does_not_wait_any_more() -> None:
    waiter = EventWaiter()
    waiter.wait(-5)
    waiter.stop()
    waiter.wait(3_600_000)  # the test's time limit would end this


def test_equal_accounts_are_counted_and_the_newest_are_kept() -> None:
    tried = FailedAttempts()
    assert str(tried) == "no attempt was made"
    for account in ["a", "b", "a", "a"]:
        tried.add(account)
    assert str(tried) == "b; a (3 times)"
    assert tried.count == 4
    for number in range(20):
        tried.add(f"n{number}")
    assert "a" not in str(tried)
    assert str(tried).endswith("n19")
    assert tried.count == 24
