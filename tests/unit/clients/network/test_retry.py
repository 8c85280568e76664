"""``clients/network/retry``: deadlines, back-off, pauses, failed attempts, repetition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.clients.network.retry import Backoff, Deadline, EventWaiter, FailedAttempts, Retrier


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


class AdvancingWaiter:
    """Moves its clock instead of waiting, and records the waits."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waits: list[int] = []
        self.stopped = False

    def wait(self, milliseconds: int) -> None:
        self.waits.append(milliseconds)
        self.clock.advance(milliseconds)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def waiter() -> AdvancingWaiter:
    return AdvancingWaiter(ManualClock())


@pytest.fixture
def retrier(waiter: AdvancingWaiter) -> Retrier:
    return Retrier(waiter.clock, waiter, timeout_ms=2_000, unknown_topic_timeout_ms=500)


def failing(errors: Iterable[MinikafkaError]) -> Callable[[], str]:
    """Return an attempt that raises each error in turn, and then succeeds."""
    left = iter(errors)

    def attempt() -> str:
        for error in left:
            raise error
        return "done"

    return attempt


def test_retriable_errors_are_retried_with_back_off(retrier: Retrier, waiter: AdvancingWaiter) -> None:
    away, moved = NetworkError("away"), BrokerError(ErrorCode.NOT_LEADER_FOR_PARTITION, "moved")
    assert retrier.run("reading", retrier.deadline(), failing([away, moved, away])) == "done"
    assert waiter.waits == [100, 200, 400]


def test_error_after_the_deadline_lists_attempts_and_ends_with_the_remedy(
    retrier: Retrier, waiter: AdvancingWaiter
) -> None:
    attempt = failing(repeat(NetworkError("away")))
    with pytest.raises(
        NetworkError, match=r"^reading failed for 2000 ms: away \(5 times\); plug it in$"
    ) as caught:
        retrier.run("reading", retrier.deadline(), attempt, lambda: "plug it in")
    assert "\n" not in str(caught.value)
    assert waiter.clock.monotonic_ms() <= 2_000


def test_error_after_the_deadline_keeps_the_brokers_code(retrier: Retrier) -> None:
    gone = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0")
    with pytest.raises(BrokerError, match="electing failed for 300 ms") as caught:
        retrier.run("electing", retrier.deadline(300), failing(repeat(gone)))
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_an_unknown_topic_has_a_shorter_deadline_of_its_own(
    retrier: Retrier, waiter: AdvancingWaiter
) -> None:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")
    with pytest.raises(BrokerError) as caught:
        retrier.run("looking", retrier.deadline(), failing(repeat(unknown)))
    assert caught.value is unknown
    assert waiter.clock.monotonic_ms() <= 500


def test_a_permanent_error_is_not_retried(retrier: Retrier, waiter: AdvancingWaiter) -> None:
    refused = BrokerError(ErrorCode.INVALID_TOPIC, "t")
    with pytest.raises(BrokerError):
        retrier.run("looking", retrier.deadline(), failing([refused]))
    assert waiter.waits == []


def test_a_closed_retrier_does_not_retry(retrier: Retrier, waiter: AdvancingWaiter) -> None:
    retrier.close()
    with pytest.raises(NetworkError, match=r"^away$"):
        retrier.run("reading", retrier.deadline(), failing([NetworkError("away")]))
    assert (waiter.waits, waiter.stopped) == ([], True)
