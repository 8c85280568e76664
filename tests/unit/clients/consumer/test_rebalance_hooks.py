"""``clients/consumer``: rebalance listeners, and calls of other threads during a rebalance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from minikafka.base.clock import SystemClock
from minikafka.base.errors import CoordinationLost, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.runtime import Scheduler
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.registry import paths
from tests.support.connector_harness import ZooKeeperGroupHarness
from tests.support.consumer_streams import offsets
from tests.support.fetcher_harness import SteppedFetcher

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class CallingListener:
    """A rebalance listener that calls a function at a release or a start."""

    def __init__(
        self, release: Callable[[], object] | None = None, start: Callable[[], object] | None = None
    ) -> None:
        self._release = release
        self._start = start

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        if self._release is not None and ownership:
            self._release()

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, Any]]) -> None:
        if self._start is not None:
            self._start()


def test_rebalance_listeners_commit_precedes_the_release() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a", auto_commit_enable=False)
    a.connector.set_consumer_rebalance_listener(CallingListener(release=a.connector.commit_offsets))
    a.reads(t=1)
    harness.deliver(a, 3)
    assert offsets(a.take(6)) == [0, 1, 2, 0, 1, 2]
    b = harness.consumer("b").joins(t=1)
    assert harness.owners() == ["g_a-0", "g_b-0"]
    assert (harness.offset(0), harness.offset(1)) == (b"3", b"3")
    assert b.fetcher.infos[T1].fetched_offset == 3


@pytest.mark.parametrize("place", ["release", "start"])
def test_rebalance_listener_may_shut_the_consumer_down(place: str) -> None:
    harness = ZooKeeperGroupHarness(t=2)
    a = harness.consumer("a")
    a.connector.set_consumer_rebalance_listener(CallingListener(**{place: a.connector.shutdown}))
    a.reads(t=1)
    harness.go(80)
    harness.consumer("b").reads(t=1)
    harness.go(80)
    assert a.connector.is_shutting_down
    assert a.fetcher.ended
    assert a.fetcher.infos == {}
    assert harness.owners() == ["g_b-0", "g_b-0"]


def on_threads(
    harness: ZooKeeperGroupHarness, fetcher: SteppedFetcher | None = None, **settings: Any
) -> ZookeeperConsumerConnector:
    settings = {"rebalance_backoff_ms": 1, "auto_commit_enable": False, **settings}
    config = ConsumerConfig(group_id="g", zookeeper_connect="memory:1", consumer_id="a", **settings)
    return ZookeeperConsumerConnector(
        config, store=harness.zookeeper.connect(), fetcher=fetcher or SteppedFetcher(harness.brokers)
    )


def ends(act: Callable[[], object]) -> bool:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


@pytest.mark.parametrize("place", ["release", "start"])
def test_rebalance_listener_may_shut_down_a_threaded_consumer(place: str) -> None:
    harness, done = ZooKeeperGroupHarness(t=2), threading.Event()
    fetcher = SteppedFetcher(harness.brokers)
    connector = on_threads(harness, fetcher)
    calls = []

    def shut_down() -> None:
        calls.append(threading.current_thread())
        if place == "release" or len(calls) == 2:
            connector.shutdown()
            done.set()

    connector.set_consumer_rebalance_listener(CallingListener(**{place: shut_down}))
    connector.create_message_streams({"t": 1})
    harness.brokers.add_topic("t", 3)
    harness.zookeeper.deliver()
    assert done.wait(5)
    assert ends(connector.shutdown)
    assert fetcher.ended
    assert fetcher.infos == {}


def test_rebalance_listener_may_shut_down_during_another_shutdown() -> None:
    harness, started, done = ZooKeeperGroupHarness(t=2), threading.Event(), threading.Event()
    connector = on_threads(harness)

    def shut_down() -> None:
        started.set()
        connector._stopping.wait(5)
        connector.shutdown()
        done.set()

    connector.set_consumer_rebalance_listener(CallingListener(release=shut_down))
    connector.create_message_streams({"t": 1})
    harness.brokers.add_topic("t", 3)
    harness.zookeeper.deliver()
    assert started.wait(5)
    assert ends(connector.shutdown)
    assert done.is_set()


def test_shutdown_at_the_start_of_a_rebalance_ends() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    connector = on_threads(harness)
    connector.create_message_streams({"t": 1})
    listener = connector.load_balancer_listener
    started, may_continue = threading.Event(), threading.Event()

    class LateClear(threading.Event):
        """An event that is cleared only after the shutdown has set it."""

        def clear(self) -> None:
            started.set()
            may_continue.wait(5)
            super().clear()

        def set(self) -> None:
            super().set()
            if connector.is_shutting_down:
                may_continue.set()

    before = listener._triggered
    listener._triggered = LateClear()
    before.set()
    listener.rebalance_event_triggered()
    assert started.wait(5)
    assert ends(connector.shutdown)


def test_shutdown_during_a_rebalance_counts_delivered_messages() -> None:
    harness, waits = ZooKeeperGroupHarness(t=2), threading.Event()
    fetcher = SteppedFetcher(harness.brokers)
    connector = on_threads(harness, fetcher, rebalance_backoff_ms=60_000, auto_commit_enable=True)
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    fetcher.deliver(2)
    assert next(stream.iterator()).offset == 0
    stream.clear = waits.set  # type: ignore[method-assign]  # the last before the wait
    harness.brokers.add_topic("t", 3)
    harness.zookeeper.deliver()
    assert waits.wait(5)
    assert ends(connector.shutdown)
    assert sorted(filter(None, (harness.offset(0), harness.offset(1)))) == [b"0", b"1"]


def test_consumer_waiting_for_its_name_can_be_shut_down() -> None:
    harness, tried = ZooKeeperGroupHarness(t=2), threading.Event()
    harness.zookeeper.connect().create(
        paths.consumer_id_path("g", "g_a"), b"", ephemeral=True, make_parents=True
    )
    connector = on_threads(harness)

    def create() -> None:
        with pytest.raises(CoordinationLost, match="g_a is shut down"):
            connector.create_message_streams({"t": 1})
        tried.set()

    threading.Thread(target=create, daemon=True).start()
    assert ends(connector.shutdown)
    assert tried.wait(5)


def test_task_that_raises_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    twice, calls = threading.Event(), []

    def fails() -> None:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        raise OSError("task failed")

    scheduler = Scheduler(SystemClock(), threads=True)
    scheduler.schedule("a task", fails, 1)
    assert twice.wait(5)
    scheduler.shutdown()
    assert "unexpected error in task a task" in caplog.text


def test_shutdown_ends_a_commit_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ZooKeeperGroupHarness(t=1)
    config = {"offsets_storage": "kafka", "auto_commit_enable": False, "offsets_commit_max_retries": 0}
    consumer = harness.consumer("a", **config).joins(t=1).receives(1)
    assert offsets(consumer.take(1)) == [0]
    committing, closed = threading.Event(), threading.Event()

    def commit(_: object) -> None:
        committing.set()
        raise NetworkError("closed" if closed.wait(5) else "timed out")

    monkeypatch.setattr(consumer.connector.offsets_channel, "commit", commit)
    monkeypatch.setattr(consumer.connector.offsets_channel, "close", closed.set)
    shutdown = threading.Thread(target=lambda: (committing.wait(), consumer.connector.shutdown()))
    shutdown.start()
    with pytest.raises(NetworkError, match="closed"):
        consumer.connector.commit_offsets()
    shutdown.join()
    assert consumer.connector.owned_partitions == ()
