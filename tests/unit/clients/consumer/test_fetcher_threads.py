"""Fetchers on threads of their own: waiting, waking, and a stop after which nothing comes."""

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
from tests.support.brokers_in_memory import BrokersInMemory
from tests.support.consumer_streams import OneStream, offsets, one_stream
from tests.support.fetcher_harness import Fetching, values
from tests.support.groups_in_memory import Later
from tests.support.threaded_brokers import ThreadedConnector

T0 = TopicPartition("t", 0)


@contextmanager
def threaded(brokers: BrokersInMemory, **config: Any) -> Iterator[tuple[Fetching, OneStream]]:
    """A manager with threads, and a stream that waits for ever; no thread is left behind."""
    fetching = Fetching(brokers, refresh_leader_backoff_ms=1, fetch_wait_max_ms=1, **config)
    fetching.manager = ConsumerFetcherManager(
        "g_c", fetching.config, fetching.store, connector=ThreadedConnector(brokers), make_waiter=EventWaiter
    )
    before = threading.active_count()
    try:
        with one_stream(fetching.config.queued_max_message_chunks, timeout_ms=-1) as stream:
            yield fetching, stream
    finally:
        fetching.manager.shutdown()
        assert threading.active_count() == before


def test_a_stream_gets_all_messages_however_small_the_fetches_are() -> None:
    brokers = BrokersInMemory(2, {"t": 2})
    for number in range(2):
        brokers.fill(TopicPartition("t", number), *values(*range(50)))
    with threaded(brokers, fetch_message_max_bytes=100, queued_max_message_chunks=1) as (fetching, stream):
        fetching.manager.start_connections([fetching.info(stream, number) for number in range(2)])
        found = list(islice(stream.stream, 100))
        for number in range(2):
            assert offsets([m for m in found if m.partition == number]) == list(range(50))


def test_stop_cancels_the_fetch_in_flight_and_drops_its_response() -> None:
    brokers, late, asked = BrokersInMemory(1, {"t": 1}), Later(), threading.Event()
    brokers.fill(T0, b"0")

    def fetch(*_: object) -> Later:
        asked.set()
        return late

    brokers.script(ApiKey.FETCH, fetch)
    with threaded(brokers) as (fetching, stream):
        info = fetching.info(stream)
        fetching.manager.start_connections([info])
        asked.wait()
        fetching.manager.stop_connections()
        (request,) = brokers.asked(ApiKey.FETCH)
        late.give(brokers.answer_fetch(1, request))
        assert (len(stream.queue), info.fetched_offset) == (0, 0)
        fetching.manager.start_connections([info])
        assert offsets(stream.take(1)) == [0]


def test_a_stop_ends_the_search_for_leaders() -> None:
    brokers, asked = BrokersInMemory(1, {"t": 1}), threading.Event()

    def metadata(*_: object) -> None:
        asked.set()

    brokers.script(ApiKey.METADATA, metadata)
    with threaded(brokers) as (fetching, stream):
        fetching.manager.start_connections([fetching.info(stream)])
        asked.wait()
        fetching.manager.stop_connections()
        assert len(stream.queue) == 0


def test_a_stop_does_not_wait_for_a_zookeeper_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetcher_manager, "_STOP_TIMEOUT_MS", 1)
    monkeypatch.setattr(fetcher_manager, "_SHUTDOWN_TIMEOUT_MS", 1)
    asked, answer = threading.Event(), threading.Event()

    def children(_: str) -> list[str]:
        asked.set()
        answer.wait()
        return []

    with threaded(BrokersInMemory(1, {"t": 1})) as (fetching, stream):
        monkeypatch.setattr(fetching.store, "children", children)
        fetching.manager.start_connections([fetching.info(stream)])
        asked.wait()
        fetching.manager.stop_connections()
        fetching.manager.shutdown()
        assert caplog.messages == ["timed out waiting for threads to end: g_c-leader-finder-thread"]
        answer.set()
        monkeypatch.undo()


def test_thread_that_outlives_a_stop_cannot_reach_a_queue() -> None:
    gate, begun, go_on, ended = Gate(), threading.Event(), threading.Event(), []

    def late() -> None:
        begun.set()
        go_on.wait()
        ended.append(gate.run_if_open(lambda: True))

    thread = threading.Thread(target=late)
    thread.start()
    begun.wait()
    assert gate.run_if_open(lambda: True)
    gate.close()
    go_on.set()
    thread.join()
    assert ended == [False]


def test_a_stop_waits_for_what_is_just_passing() -> None:
    gate, inside, go_on, passed = Gate(), threading.Event(), threading.Event(), []

    def act() -> bool:
        inside.set()
        go_on.wait()
        passed.append(True)
        return True

    run_if_open = threading.Thread(target=gate.run_if_open, args=[act])
    closing = threading.Thread(target=lambda: (gate.close(), passed.append(False)))
    run_if_open.start()
    inside.wait()
    closing.start()
    go_on.set()
    run_if_open.join()
    closing.join()
    assert passed == [True, False]


class Failing(ShutdownableThread):
    def __init__(self) -> None:
        super().__init__("failing")
        self.turns = threading.Event()

    def do_work(self) -> None:
        self.turns.set()
        raise ValueError("a defect")


def test_a_thread_logs_a_defect_and_can_still_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    thread = Failing()
    thread.start()
    thread.turns.wait()
    thread.initiate_shutdown()
    assert thread.await_shutdown(60_000)
    assert caplog.messages == ["unexpected error in thread failing; it continues"]
