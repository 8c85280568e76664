"""Faults for a cluster of real processes. A seed decides the kind, victim, time and duration of each.

The timing of processes varies, so a seed gives the same faults, not the same run. ``Nemesis.messages`` lists
them with their actual times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random

from minikafka.base.errors import MinikafkaError
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.zookeeper import elections
from minikafka.embedded.broker import BrokerFailed
from tests.faults.links import CLIENTS, Way
from tests.faults.whole_cluster import ZOOKEEPER, WholeCluster

MOST_AT_ONCE = 3
STARTS = 5
"""The limit of attempts to start a broker."""


class Kind(Enum):
    """A fault, with its minimum and maximum duration in seconds. A session ends after two seconds."""

    KILL = ("kill -9", 0.0, 4.0)
    STOP = ("clean stop", 0.0, 2.0)
    PAUSE = ("SIGSTOP, shorter than a session", 0.1, 1.5)
    LONG_PAUSE = ("SIGSTOP, longer than a session", 2.5, 6.0)
    CUT_ONE = ("link to a broker cut", 0.5, 6.0)
    CUT_ALL = ("links to all brokers cut", 0.5, 6.0)
    CLOG_OUT = ("links to all brokers clogged", 0.5, 6.0)
    CLOG_IN = ("links from all brokers clogged", 0.5, 6.0)
    CUT_ZOOKEEPER = ("link to ZooKeeper cut", 0.3, 5.0)
    CLOG_ZOOKEEPER = ("link to ZooKeeper clogged", 0.3, 5.0)
    ALONE = ("links to brokers and ZooKeeper cut, not those to clients", 2.5, 7.0)
    CUT_CLIENTS = ("links of clients cut", 0.3, 4.0)
    CLOG_CLIENTS = ("links to clients clogged", 0.3, 4.0)
    ELECTION = ("preferred election", 0.0, 0.0)
    PAUSE_ZOOKEEPER = ("SIGSTOP of ZooKeeper", 0.3, 4.0)
    KILL_ZOOKEEPER = ("kill -9 of ZooKeeper", 0.0, 2.0)

    def __init__(self, words: str, least_s: float, most_s: float) -> None:
        self.words = words
        self.least_s = least_s
        self.most_s = most_s


PROCESSES = (Kind.KILL, Kind.STOP, Kind.PAUSE, Kind.LONG_PAUSE)
"""A broker has one of these faults at a time."""
WEIGHTS = {Kind.KILL: 5, Kind.LONG_PAUSE: 3, Kind.ALONE: 3, Kind.CLOG_OUT: 2, Kind.CUT_ALL: 2}
"""The weights of frequent faults; 1 for the others."""
CLOGGED = {
    # (from, to), where 0 is the victim
    Kind.CUT_ONE: ((0, 1),),
    Kind.CUT_ALL: ((0, 1), (0, 2)),
    Kind.CLOG_OUT: ((0, 1), (0, 2)),
    Kind.CLOG_IN: ((1, 0), (2, 0)),
    Kind.CUT_ZOOKEEPER: ((0, ZOOKEEPER),),
    Kind.CLOG_ZOOKEEPER: ((0, ZOOKEEPER), (ZOOKEEPER, 0)),
    Kind.ALONE: ((0, 1), (0, 2), (0, ZOOKEEPER)),
    Kind.CUT_CLIENTS: ((0, CLIENTS),),
    Kind.CLOG_CLIENTS: ((0, CLIENTS),),
}
"""The links of a fault: the victim is broker 0, the next ones are 1 and 2."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault; ``role`` is looked up when it happens."""

    at_s: float
    lasts_s: float
    kind: Kind
    role: str
    number: int
    """The number of the partition whose leader is the victim, or of the broker."""


def faults(seed: int, seconds: float) -> Iterator[Fault]:
    """Yield the faults of a seed within ``seconds``, in order; the last ones may end later."""
    dice = Random(seed)
    kinds = list(Kind)
    at_s = 0.0
    while True:
        at_s += dice.uniform(0.2, 3.0)
        if at_s >= seconds:
            return
        (kind,) = dice.choices(kinds, [WEIGHTS.get(each, 1) for each in kinds])
        role = dice.choice(["leader", "leader", "controller", "coordinator", "broker"])
        yield Fault(at_s, dice.uniform(kind.least_s, kind.most_s), kind, role, dice.randrange(6))


class Nemesis:
    """Executes faults. ``struck`` counts them by kind, ``passed_over`` the faults that were skipped."""

    def __init__(self, system: WholeCluster) -> None:
        self.struck: Counter[str] = Counter()
        self.passed_over = 0
        self.messages: list[str] = []
        self.failed: list[str] = []
        self._system = system
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._suffering: set[object] = set()
        self._threads: list[threading.Thread] = []
        self._never = threading.Event()

    def round(self, seed: int, seconds: float) -> None:
        """Execute all faults of a seed and wait for their ends."""
        self.messages.append(f"seed {seed}:")
        began_s = time.monotonic()
        for fault in faults(seed, seconds):
            self._never.wait(max(0.0, began_s + fault.at_s - time.monotonic()))
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) >= MOST_AT_ONCE:
                self.passed_over += 1
                continue
            thread = threading.Thread(target=self._suffer, args=(fault,), name=fault.kind.words)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise AssertionError(self.failed)

    def _suffer(self, fault: Fault) -> None:
        try:
            broker = self._victim(fault)
            with self._alone(fault.kind, broker) as free:
                if not free:
                    self.passed_over += 1
                    return
                self.struck[fault.kind.words] += 1
                at_s = time.monotonic() - self._began_s
                what = f"{fault.kind.words}: broker {broker} ({fault.role}), {fault.lasts_s:.2f} s"
                self.messages.append(f"{at_s:7.2f} s  {what}")
                end = self._strike(fault.kind, broker)
                self._never.wait(fault.lasts_s)
                end()
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            self.failed.append(f"{fault}: {type(error).__name__}: {error}")

    @contextlib.contextmanager
    def _alone(self, kind: Kind, broker: int) -> Iterator[bool]:
        """Yield True if the victim has no other fault of this sort, and reserve it."""
        key: object = kind, broker
        if kind in PROCESSES:
            key = broker
        elif kind in (Kind.PAUSE_ZOOKEEPER, Kind.KILL_ZOOKEEPER, Kind.ELECTION):
            key = ZOOKEEPER
        with self._lock:
            free = key not in self._suffering
            if free:
                self._suffering.add(key)
        try:
            yield free
        finally:
            if free:
                self._suffering.discard(key)

    def _victim(self, fault: Fault) -> int:
        system, found = self._system, -1
        with contextlib.suppress(MinikafkaError, KeyError):
            if fault.role == "leader":
                found = system.leader(fault.number % system.partitions)
            elif fault.role == "controller":
                found = system.controller()
            elif fault.role == "coordinator":
                found = system.coordinator()
        return found if found >= 0 else fault.number % system.count

    def _strike(self, kind: Kind, broker: int) -> Callable[[], None]:
        """Start the fault. Return the function that ends it."""
        system = self._system
        if kind is Kind.KILL:
            system.cluster.kill(broker)
            return lambda: self._restart(broker)
        if kind is Kind.STOP:
            system.cluster.stop_broker(broker)
            return lambda: self._restart(broker)
        if kind in (Kind.PAUSE, Kind.LONG_PAUSE):
            return _paused(system.cluster.broker(broker).pid)
        if kind is Kind.ELECTION:
            with contextlib.suppress(MinikafkaError):
                elections.request(system.store, zookeeper_metadata.assigned(system.store))
            return lambda: None
        if kind is Kind.PAUSE_ZOOKEEPER:
            assert system.zookeeper.process is not None
            return _paused(system.zookeeper.process.pid)
        if kind is Kind.KILL_ZOOKEEPER:
            system.zookeeper.stop()
            return lambda: bool(system.zookeeper.start()) and None
        return self._links(kind, broker)

    def _restart(self, broker: int) -> None:
        """Restart a broker as a supervisor does: again, if ZooKeeper failed during the start."""
        for _ in range(STARTS):
            try:
                self._system.cluster.restart(broker)
            except BrokerFailed as error:
                self.struck["start without ZooKeeper"] += 1
                self.messages.append(f"{error}")
            else:
                return
        raise AssertionError(f"broker {broker} did not start in {STARTS} attempts")

    def _links(self, kind: Kind, broker: int) -> Callable[[], None]:
        way = Way.CLOGGED if "clogged" in kind.words else Way.CUT

        def name(end: int | str) -> str:
            return str((broker + end) % self._system.count) if isinstance(end, int) else end

        links = [(name(source), name(target)) for source, target in CLOGGED[kind]]
        for source, target in links:
            self._system.links.begin(source, target, way)

        def end() -> None:
            for source, target in links:
                self._system.links.end(source, target, way)

        return end


def _paused(pid: int) -> Callable[[], None]:
    os.kill(pid, signal.SIGSTOP)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return end
