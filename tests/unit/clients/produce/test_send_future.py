"""``clients/produce/send_future``: what a caller sees of a record's way."""

from __future__ import annotations

import threading

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.send_future import Acknowledged, Outcome, SendFuture

TP = TopicPartition("t", 3)


def settle(outcome: Outcome, base_offset: int = -1, error: BrokerError | None = None) -> None:
    with outcome.condition:
        outcome.base_offset, outcome.error, outcome.done = base_offset, error, True
        outcome.condition.notify_all()


@pytest.fixture
def outcome() -> Outcome:
    return Outcome(threading.Condition())


def test_each_record_has_its_own_offset(outcome: Outcome) -> None:
    first, third = SendFuture(TP, outcome, 0), SendFuture(TP, outcome, 2)
    assert not first.done
    outcome.log_append_time_ms = 77
    settle(outcome, 40)
    assert first.result() == Acknowledged(TP, 40, 1, 77)
    assert third.result().offset == 42
    assert third.error is None


def test_without_acknowledgement_there_is_no_offset(outcome: Outcome) -> None:
    delivery = SendFuture(TP, outcome, 5)
    settle(outcome)
    assert delivery.result().offset == -1


def test_a_failure_is_raised_each_time_and_can_be_looked_at(outcome: Outcome) -> None:
    delivery = SendFuture(TP, outcome, 0)
    error = BrokerError(ErrorCode.INVALID_TOPIC, "t")
    settle(outcome, error=error)
    for _ in range(2):
        with pytest.raises(BrokerError):
            delivery.result()
    assert delivery.error is error


def test_waiting_ends_with_its_time_out(outcome: Outcome) -> None:
    with pytest.raises(NetworkError, match="no acknowledgement for t-3 within 1 ms"):
        SendFuture(TP, outcome, 0).result(1)


def test_a_waiting_thread_is_woken(outcome: Outcome) -> None:
    delivery = SendFuture(TP, outcome, 1)
    offsets: list[int] = []
    waiting = threading.Thread(target=lambda: offsets.append(delivery.result(20_000).offset))
    waiting.start()
    settle(outcome, 10)
    waiting.join(20)
    assert offsets == [11]


def test_a_delivery_that_was_moved_follows_its_new_batch(outcome: Outcome) -> None:
    delivery = SendFuture(TP, outcome, 5)
    second = Outcome(outcome.condition)
    delivery.move(second, 1)
    settle(outcome, 100)
    assert not delivery.done
    settle(second, 200)
    assert delivery.result().offset == 201


def test_a_callback_given_late_is_called_at_once_and_given_early_is_kept(outcome: Outcome) -> None:
    called: list[SendFuture] = []
    early, late = SendFuture(TP, outcome, 0), SendFuture(TP, outcome, 1)
    early.on_done(called.append)
    assert early.has_callback
    assert called == []
    settle(outcome, 1)
    late.on_done(called.append)
    assert called == [late]
    assert not late.has_callback
    callback = early.take_callback()
    assert callback is not None
    callback(early)
    assert called == [late, early]
    assert early.take_callback() is None
