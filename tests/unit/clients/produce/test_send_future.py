"""``clients/produce/send_future``: results, time-outs and callbacks of sent records."""

from __future__ import annotations

import threading

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.send_future import ProduceRequestResult, RecordMetadata, SendFuture

TP = TopicPartition("t", 3)


def settle(
    produce_result: ProduceRequestResult, base_offset: int = -1, error: BrokerError | None = None
) -> None:
    with produce_result.condition:
        produce_result.base_offset, produce_result.error, produce_result.done = base_offset, error, True
        produce_result.condition.notify_all()


@pytest.fixture
def produce_result() -> ProduceRequestResult:
    return ProduceRequestResult(threading.Condition())


def test_each_record_has_its_own_offset(produce_result: ProduceRequestResult) -> None:
    first, third = SendFuture(TP, produce_result, 0), SendFuture(TP, produce_result, 2)
    assert not first.done
    produce_result.log_append_time_ms = 77
    settle(produce_result, 40)
    assert first.result() == RecordMetadata(TP, 40, 1, 77)
    assert third.result().offset == 42
    assert third.error is None


def test_without_acknowledgement_there_is_no_offset(produce_result: ProduceRequestResult) -> None:
    future = SendFuture(TP, produce_result, 5)
    settle(produce_result)
    assert future.result().offset == -1


def test_a_failure_is_raised_each_time_and_can_be_looked_at(produce_result: ProduceRequestResult) -> None:
    future = SendFuture(TP, produce_result, 0)
    error = BrokerError(ErrorCode.INVALID_TOPIC, "t")
    settle(produce_result, error=error)
    for _ in range(2):
        with pytest.raises(BrokerError):
            future.result()
    assert future.error is error


def test_waiting_ends_with_its_time_out(produce_result: ProduceRequestResult) -> None:
    with pytest.raises(NetworkError, match="timed out after 1 ms waiting for an acknowledgement from t-3"):
        SendFuture(TP, produce_result, 0).result(1)


def test_a_waiting_thread_is_woken(produce_result: ProduceRequestResult) -> None:
    future = SendFuture(TP, produce_result, 1)
    offsets: list[int] = []
    waiting = threading.Thread(target=lambda: offsets.append(future.result(20_000).offset))
    waiting.start()
    settle(produce_result, 10)
    waiting.join(20)
    assert offsets == [11]


def test_a_delivery_that_was_moved_follows_its_new_batch(produce_result: ProduceRequestResult) -> None:
    future = SendFuture(TP, produce_result, 5)
    second = ProduceRequestResult(produce_result.condition)
    future.follow(second, 1)
    settle(produce_result, 100)
    assert not future.done
    settle(second, 200)
    assert future.result().offset == 201


def test_a_callback_given_late_is_called_at_once_and_given_early_is_kept(
    produce_result: ProduceRequestResult,
) -> None:
    called: list[SendFuture] = []
    early, late = SendFuture(TP, produce_result, 0), SendFuture(TP, produce_result, 1)
    early.on_done(called.append)
    assert early.has_callback
    assert called == []
    settle(produce_result, 1)
    late.on_done(called.append)
    assert called == [late]
    assert not late.has_callback
    callback = early.take_callback()
    assert callback is not None
    callback(early)
    assert called == [late, early]
    assert early.take_callback() is None
