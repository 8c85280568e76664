"""``clients/network/retry``: deadlines, back-off, pauses, failed attempts, repetition."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, NoResponse
from minikafka.clients.network import retry
from minikafka.clients.network.retry import Backoff, Deadline, EventWaiter, FailedAttempts, Retrier
from tests.support.interrupts import interrupted_at


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


def test_a_waiter_stops_after_a_signal_at_any_place_of_its_wait() -> None:
    places = 0
    while True:
        waiter = EventWaiter()
        if not interrupted_at(places, partial(waiter.wait, 1), {retry.__file__, threading.__file__}):
            break
        waiter.stop()  # the test's time limit would end this
        waiter.wait(3_600_000)
        places += 1
    assert places > 0


def failed_by(*errors: MinikafkaError) -> FailedAttempts:
    failed = FailedAttempts()
    for error in errors:
        failed.add(error)
    return failed


def test_equal_reasons_are_told_once_and_the_newest_are_shown() -> None:
    assert str(FailedAttempts()) == "no attempt was made"
    a, b = NetworkError("a"), NetworkError("b")
    failed = failed_by(a, b, a, a)
    assert (str(failed), failed.count) == ("b; a", 4)
    for number in range(20):
        failed.add(NetworkError(f"n{number}"))
    assert str(failed) == "n14; n15; n16; n17; n18; n19; and 16 more reasons"


def test_each_broker_is_told_once_with_its_last_reason() -> None:
    closed, refused = NetworkError("closed", "broker 1"), NetworkError("refused", "broker 1")
    assert str(failed_by(closed, NetworkError("refused", "broker 2"), refused)) == (
        "broker 2: refused; broker 1: refused"
    )


@pytest.mark.parametrize(("waited_ms", "told"), [(999, "refused"), (1_000, "no response within 1000 ms")])
def test_remaining_time_of_a_last_attempt_tells_less_than_a_reason(waited_ms: int, told: str) -> None:
    refused = NetworkError("refused", "broker 1")
    assert str(failed_by(refused, NoResponse(waited_ms, "broker 1"))) == f"broker 1: {told}"
    assert str(failed_by(NoResponse(184, "broker 1"), refused)) == "broker 1: refused"
    assert str(failed_by(NoResponse(184, "broker 1"))) == "broker 1: no response within 184 ms"


def test_error_of_a_smaller_operation_counts_as_its_reasons() -> None:
    refused = NetworkError("refused", "broker 1", "start it")
    inner = failed_by(refused).network_error("fetching metadata failed for 184 ms")
    assert str(inner) == "fetching metadata failed for 184 ms: broker 1: refused; start it"
    outer = failed_by(NetworkError("closed", "broker 1"), pickle.loads(pickle.dumps(inner)))
    assert str(outer.error("reading failed for 2000 ms", inner)) == (
        "reading failed for 2000 ms: broker 1: refused; start it"
    )


def test_advice_about_the_network_ends_when_a_broker_responds() -> None:
    moved = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader")
    failed = failed_by(NetworkError("refused", "broker 1", "start it"), moved)
    assert str(failed.error("reading failed", moved)) == (
        "LEADER_NOT_AVAILABLE: reading failed: broker 1: refused; t-0 has no leader"
    )


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
    assert retrier.run("reading failed", retrier.deadline(), failing([away, moved, away])) == "done"
    assert waiter.waits == [100, 200, 400]


def test_error_after_the_deadline_lists_reasons_and_ends_with_the_advice(
    retrier: Retrier, waiter: AdvancingWaiter
) -> None:
    attempt = failing(repeat(NetworkError("away")))
    with pytest.raises(NetworkError, match=r"^reading failed for 2000 ms: away; plug it in$") as caught:
        retrier.run("reading failed", retrier.deadline(), attempt, lambda: "plug it in")
    assert "\n" not in str(caught.value)
    assert waiter.clock.monotonic_ms() <= 2_000


def test_advice_of_the_errors_comes_before_that_of_the_operation(retrier: Retrier) -> None:
    attempt = failing(repeat(NetworkError("no KDC", advice="check krb5.conf")))
    with pytest.raises(NetworkError, match=r": no KDC; check krb5\.conf$"):
        retrier.run("reading", retrier.deadline(), attempt, lambda: "plug it in")


def test_error_after_the_deadline_keeps_the_brokers_code(retrier: Retrier) -> None:
    gone = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0")
    with pytest.raises(BrokerError, match="electing failed for 300 ms") as caught:
        retrier.run("electing failed", retrier.deadline(300), failing(repeat(gone)))
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_an_unknown_topic_has_a_shorter_deadline_of_its_own(
    retrier: Retrier, waiter: AdvancingWaiter
) -> None:
    unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")
    with pytest.raises(BrokerError) as caught:
        retrier.run("looking failed", retrier.deadline(), failing(repeat(unknown)))
    assert caught.value is unknown
    assert waiter.clock.monotonic_ms() <= 500


def test_a_permanent_error_is_not_retried(retrier: Retrier, waiter: AdvancingWaiter) -> None:
    refused = BrokerError(ErrorCode.INVALID_TOPIC, "t")
    with pytest.raises(BrokerError):
        retrier.run("looking failed", retrier.deadline(), failing([refused]))
    assert waiter.waits == []


def test_a_closed_retrier_does_not_retry(retrier: Retrier, waiter: AdvancingWaiter) -> None:
    retrier.close()
    with pytest.raises(NetworkError, match=r"^away$"):
        retrier.run("reading failed", retrier.deadline(), failing([NetworkError("away")]))
    assert (waiter.waits, waiter.stopped) == ([], True)
