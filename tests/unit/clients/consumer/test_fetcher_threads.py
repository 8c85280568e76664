"""Fetchers on their own threads: waiting, waking, and stopping."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer import fetcher_manager
from minikafka.clients.consumer.fetcher_manager import ConsumerFetcherManager
from minikafka.clients.consumer.fetcher_thread import Gate
from minikafka.clients.consumer.runtime import ShutdownableThread
from minikafka.clients.network.retry import EventWaiter
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, Later
from tests.support.consumer_streams import StreamHarness, offsets, stream_harness
from tests.support.fetcher_harness import FetcherHarness, values
from tests.support.threaded_brokers import ThreadedConnector

T0 = TopicPartition("t", 0)


@contextmanager
def threaded(brokers: BrokerHarness, **config: Any) -> Iterator[tuple[FetcherHarness, StreamHarness]]:
    """Yield a manager with threads, and a stream that waits for ever; check that all threads have ended."""
    harness = FetcherHarness(brokers, refresh_leader_backoff_ms=1, fetch_wait_max_ms=1, **config)
    harness.manager = ConsumerFetcherManager(
        "g_c", harness.config, harness.store, connector=ThreadedConnector(brokers), make_waiter=EventWaiter
    )
    before = threading.active_count()
    try:
        with stream_harness(harness.config.queued_max_message_chunks, timeout_ms=-1) as stream:
            yield harness, stream
    finally:
        harness.manager.shutdown()
        assert threading.active_count() == before


def test_small_fetches_deliver_all_messages() -> None:
    brokers = BrokerHarness(2, {"t": 2})
    for number in range(2):
        brokers.fill(TopicPartition("t", number), *values(*range(50)))
    with threaded(brokers, fetch_message_max_bytes=100, queued_max_message_chunks=1) as (harness, stream):
        harness.manager.start_connections([harness.info(stream, number) for number in range(2)])
        found = list(islice(stream.stream, 100))
        for number in range(2):
            assert offsets([m for m in found if m.partition == number]) == list(range(50))


def test_stop_cancels_the_fetch_in_flight_and_drops_its_response() -> None:
    brokers, late, requested = BrokerHarness(1, {"t": 1}), Later(), threading.Event()
    brokers.fill(T0, b"0")

    def fetch(*_: object) -> Later:
        requested.set()
        return late

    brokers.script(ApiKey.FETCH, fetch)
    with threaded(brokers) as (harness, stream):
        info = harness.info(stream)
        harness.manager.start_connections([info])
        requested.wait()
        harness.manager.stop_connections()
        (request,) = brokers.asked(ApiKey.FETCH)
        late.give(brokers.serve(1, request))
        assert (len(stream.queue), info.fetched_offset) == (0, 0)
        harness.manager.start_connections([info])
        assert offsets(stream.take(1)) == [0]


def test_stop_ends_the_leader_lookup() -> None:
    brokers, requested = BrokerHarness(1, {"t": 1}), threading.Event()

    def metadata(*_: object) -> None:
        requested.set()

    brokers.script(ApiKey.METADATA, metadata)
    with threaded(brokers) as (harness, stream):
        harness.manager.start_connections([harness.info(stream)])
        requested.wait()
        harness.manager.stop_connections()
        assert len(stream.queue) == 0


def test_stop_does_not_wait_for_zookeeper(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetcher_manager, "_STOP_TIMEOUT_MS", 1)
    monkeypatch.setattr(fetcher_manager, "_SHUTDOWN_TIMEOUT_MS", 1)
    requested, answer = threading.Event(), threading.Event()

    def children(_: str) -> list[str]:
        requested.set()
        answer.wait()
        return []

    with threaded(BrokerHarness(1, {"t": 1})) as (harness, stream):
        monkeypatch.setattr(harness.store, "children", children)
        harness.manager.start_connections([harness.info(stream)])
        requested.wait()
        harness.manager.stop_connections()
        harness.manager.shutdown()
        assert caplog.messages == ["timed out waiting for threads to end: g_c-leader-finder-thread"]
        answer.set()
        monkeypatch.undo()


def test_thread_that_outlives_a_stop_cannot_reach_a_queue() -> None:
    gate, started, may_continue, ended = Gate(), threading.Event(), threading.Event(), []

    def late() -> None:
        started.set()
        may_continue.wait()
        ended.append(gate.run_if_open(lambda: True))

    thread = threading.Thread(target=late)
    thread.start()
    started.wait()
    assert gate.run_if_open(lambda: True)
    gate.close()
    may_continue.set()
    thread.join()
    assert ended == [False]


def test_close_waits_for_the_call_in_the_gate() -> None:
    gate, inside, may_continue, passed = Gate(), threading.Event(), threading.Event(), []

    def act() -> bool:
        inside.set()
        may_continue.wait()
        passed.append(True)
        return True

    run_if_open = threading.Thread(target=gate.run_if_open, args=[act])
    closing = threading.Thread(target=lambda: (gate.close(), passed.append(False)))
    run_if_open.start()
    inside.wait()
    closing.start()
    may_continue.set()
    run_if_open.join()
    closing.join()
    assert passed == [True, False]


class Failing(ShutdownableThread):
    def __init__(self) -> None:
        super().__init__("failing")
        self.turns = threading.Event()

    def do_work(self) -> None:
        self.turns.set()
        raise ValueError("unexpected")


def test_thread_logs_an_unexpected_error_and_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    thread = Failing()
    thread.start()
    thread.turns.wait()
    thread.initiate_shutdown()
    assert thread.await_shutdown(60_000)
    assert caplog.messages == ["unexpected error in thread failing; it continues"]
