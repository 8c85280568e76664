"""A start in which ZooKeeper goes away: what is tried again, for how long, and what is left of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigError, CoordinationLost, MinikafkaError, SessionExpired
from minikafka.base.ids import BrokerAddress
from minikafka.base.memory_files import MemoryFiles
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.server.assembly import Ports, RunningBroker, start_patiently
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.workers.worker import InlineWorker
from tests.support.simulation import Simulation

PATIENCE_MS = 6_000
SERVING = cast(RunningBroker, SimpleNamespace())


class Attempts:
    """A start that meets these errors, one after the other, and then succeeds; a pause takes a second."""

    def __init__(self, *errors: MinikafkaError) -> None:
        self.clock = ManualClock()
        self.errors = list(errors)
        self.count = 0

    def start(self) -> RunningBroker:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return SERVING

    def run(self) -> RunningBroker:
        return start_patiently(self.start, PATIENCE_MS, self.clock, lambda: self.clock.advance(1_000))


@pytest.mark.parametrize("error", [CoordinationLost("no answer"), SessionExpired("it is over")])
def test_a_start_in_which_zookeeper_goes_away_is_tried_again(error: MinikafkaError) -> None:
    attempts = Attempts(error, error)
    assert attempts.run() is SERVING
    assert attempts.count == 3


def test_it_is_given_up_when_the_time_for_a_connection_is_over() -> None:
    attempts = Attempts(*[CoordinationLost("no answer")] * 100)
    with pytest.raises(CoordinationLost):
        attempts.run()
    assert attempts.count == 1 + PATIENCE_MS // 1_000


def test_another_error_ends_the_start_at_once() -> None:
    attempts = Attempts(ConfigError("broker.id", 1, "is taken"))
    with pytest.raises(ConfigError):
        attempts.run()
    assert attempts.count == 1


class Stoppable(InlineWorker):
    """Knows whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_a_start_that_zookeeper_does_not_answer_leaves_no_thread() -> None:
    worker, loader, zookeeper = Stoppable(), Stoppable(), MemoryZooKeeper()
    store = zookeeper.connect()
    zookeeper.lose_next_answer(store)
    unused: Any = None
    ports = Ports(
        files=MemoryFiles(),
        clock=ManualClock(),
        worker=worker,
        loader=loader,
        connect_store=lambda: store,
        listen=unused,
        random_bytes=bytes,
        connector=unused,
    )
    given = {"broker.id": "1", "log.dirs": "data", "zookeeper.connect": "memory"}
    with pytest.raises(CoordinationLost):
        RunningBroker(BrokerConfig.from_properties(given), ports)
    assert worker.stopped
    assert loader.stopped


def test_address_is_that_of_the_first_listener_that_is_not_classic() -> None:
    listeners = {
        "listeners": "CLASSIC://machine-0:9090,OUT://machine-0:9091,PLAINTEXT://machine-0:9092",
        "listener.security.protocol.map": "OUT:PLAINTEXT",
    }
    running = Simulation.serving(properties=listeners).machine.running
    assert running is not None
    assert running.address == BrokerAddress(0, "machine-0", 9091)
    assert [endpoint.listener for endpoint in running.endpoints] == ["OUT", "PLAINTEXT"]
