"""A whole broker under random invalid requests, while a well-behaved client keeps working.

The broker is a process of its own with little more address space than it has at the start. It must answer
each request or close its connection, die of none, log no defect, keep its memory, and serve the other client
without a single error. ``MINIKAFKA_FUZZ`` is how many inputs are tried (a tenth of it, at least 1,500). One
input again, by itself::

    python -m tests.faults.test_request_fuzz SEED NUMBER [transactional]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from minikafka import TransactionalProducer
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.simple_consumer import FetchRequest, SimpleConsumer
from minikafka.embedded.process import wait_until
from minikafka.records.columns import decode
from minikafka.records.format.message_set import Record, build_message_set
from tests.faults import fuzzed_broker
from tests.faults.attack import HOST, AttackedBroker
from tests.faults.request_inputs import STEADY, TRANSACTED, Input, made
from tests.support import requests

if TYPE_CHECKING:
    from typing_extensions import Self

INPUTS = max(1500, int(os.environ.get("MINIKAFKA_FUZZ", "0")) // 10)
PATIENCE_SECONDS = 20
AT_A_TIME = 16
"""Connections on which wrong requests are open together."""


class FuzzedBroker(AttackedBroker):
    """A broker with little more address space than it has at the start."""

    program = fuzzed_broker.__name__
    environment: ClassVar = {**AttackedBroker.environment, "MALLOC_ARENA_MAX": "1"}

    def report(self) -> fuzzed_broker.Report:
        """End it, and ask how it went."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        report = fuzzed_broker.Report(**json.loads(self.line()))
        assert self.process.wait(PATIENCE_SECONDS) == 0
        return report


class SteadyWork:
    """Works in a thread of its own until the end of the block."""

    def __init__(self, broker: FuzzedBroker) -> None:
        self._broker = broker
        self.error: BaseException | None = None
        self._end = threading.Event()
        broker.create_topic(STEADY, 1)
        broker.create_topic(TRANSACTED, 2)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def _work(self) -> None:
        raise NotImplementedError


class SteadyClient(SteadyWork):
    """Writes a message and reads it back in both protocols, again and again."""

    rounds = 0

    def _work(self) -> None:
        with (
            SimpleConsumer(HOST, self._broker.port) as today,
            SimpleConsumer(HOST, self._broker.ports["CLASSIC"], classic=True) as classic,
        ):
            while not self._end.is_set():
                self._round(today, classic)
                self.rounds += 1

    def _round(self, today: SimpleConsumer, classic: SimpleConsumer) -> None:
        value = b"%08d" % self.rounds
        message_set = build_message_set([Record(b"k", value, 1)])
        (part,) = self._broker.call(requests.produce(STEADY, message_set)).topics[0].partitions
        assert (part.error_code, part.base_offset) == (0, self.rounds)
        for consumer in (today, classic):
            found = consumer.fetch(FetchRequest(STEADY, 0, self.rounds, 1 << 16))
            assert [(message.offset, message.value) for message in found] == [(self.rounds, value)]


class SteadyTransactions(SteadyWork):
    """Commits and aborts transactions in turn, again and again."""

    def __init__(self, broker: FuzzedBroker) -> None:
        super().__init__(broker)
        self.committed: list[bytes] = []
        self._address = f"{HOST}:{broker.port}"

    def _work(self) -> None:
        with (
            ClusterClient(self._address) as cluster,
            TransactionalProducer(cluster, transactional_id=STEADY) as producer,
        ):
            producer.init_transactions()
            for number in itertools.count():
                producer.begin()
                producer.send(STEADY, b"%08d" % number, partition=0)
                producer.flush()
                if number % 2:
                    producer.abort()
                else:
                    producer.commit()
                    self.committed.append(b"%08d" % number)
                if self._end.is_set():
                    return

    def read(self) -> list[bytes]:
        """The values of committed transactions, once all have ended."""
        tp, ends = TopicPartition(STEADY, 0), dict.fromkeys(IsolationLevel, 0)
        with ClusterClient(self._address) as cluster:

            def settled() -> bool:
                for isolation in IsolationLevel:
                    ends[isolation] = Admin(cluster).offsets({tp: LATEST}, isolation=isolation)[tp] or 0
                return len(set(ends.values())) == 1

            assert wait_until(settled, PATIENCE_SECONDS), "a transaction stays open"
            end, values = ends[IsolationLevel.READ_COMMITTED], []
            for data in RangeFetcher(cluster, tp, 0, end, isolation=IsolationLevel.READ_COMMITTED):
                values += decode(data, 0, end).value_array().to_pylist()
        return values


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FuzzedBroker]:
    broker = FuzzedBroker(tmp_path / "data")
    with broker:
        yield broker


def send(broker: FuzzedBroker, one: Input) -> socket.socket:
    """A connection on which ``one`` was sent, and nothing else will be."""
    sock = socket.create_connection((HOST, broker.ports["CLASSIC" if one.to_classic else "PLAINTEXT"]))
    sock.settimeout(PATIENCE_SECONDS)
    with contextlib.suppress(OSError):  # it may be closed already for its first bytes
        sock.sendall(one.data)
        sock.shutdown(socket.SHUT_WR)
    return sock


def may_wait(one: Input) -> bool:
    """Return True if it joins a group, whose other members may take their session time-out."""
    return not one.to_classic and one.data[4:6] in {b"\0\x0b", b"\0\x0e"}


def ended(sock: socket.socket) -> bool:
    """Return True if the broker sent its response, if any, and closed the connection."""
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True  # it was reset
    return True


@pytest.mark.timeout(0)
def test_invalid_requests_do_not_disturb_other_connections(broker: FuzzedBroker) -> None:
    with SteadyClient(broker) as mannered:
        attack(broker, mannered, INPUTS, transactional=False)
    assert mannered.error is None
    assert mannered.rounds > 10
    report = broker.report()
    assert report.defects == []
    assert report.peak_bytes < (96 << 20) + 1000 * INPUTS


@pytest.mark.timeout(0)
def test_invalid_requests_of_transactions_do_not_disturb_others(broker: FuzzedBroker) -> None:
    with SteadyTransactions(broker) as mannered:
        attack(broker, mannered, INPUTS, transactional=True)
    assert mannered.error is None
    assert len(mannered.committed) > 10
    assert mannered.read() == mannered.committed
    assert broker.report().defects == []


def attack(
    broker: FuzzedBroker, mannered: SteadyClient | SteadyTransactions, count: int, *, transactional: bool
) -> None:
    """Send so many inputs; each must be answered, or its connection be closed, and ``mannered`` served."""
    seed = 1
    for first in range(0, count, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, count))
        with contextlib.ExitStack() as stack:
            inputs = [made(seed, number, transactional=transactional) for number in numbers]
            socks = [stack.enter_context(send(broker, one)) for one in inputs]
            for number, one, sock in zip(numbers, inputs, socks, strict=True):
                assert may_wait(one) or ended(sock), f"no answer and no end to input {number} of seed {seed}"
        assert broker.process.poll() is None, f"the broker died of inputs {numbers} of seed {seed}"
        assert mannered.error is None, f"with inputs {numbers} of seed {seed}"


@pytest.mark.timeout(120)
def test_announced_lengths_take_no_memory_and_no_room_from_others(broker: FuzzedBroker) -> None:
    """More than the limit of all requests is announced, and does not come."""
    announced = fuzzed_broker.REQUEST_BYTES.to_bytes(4, "big")
    with contextlib.ExitStack() as stack, SteadyClient(broker) as mannered:
        for _ in range(100):
            sock = stack.enter_context(socket.create_connection((HOST, broker.ports["PLAINTEXT"])))
            sock.sendall(announced + b"\0" * 100)
        before = mannered.rounds
        while mannered.rounds < before + 50 and mannered.error is None:
            threading.Event().wait(0.005)
    assert mannered.error is None
    report = broker.report()
    assert report.defects == []
    assert report.peak_bytes < 48 << 20


if __name__ == "__main__":
    import tempfile

    wrong = made(int(sys.argv[1]), int(sys.argv[2]), transactional="transactional" in sys.argv)
    print(wrong.to_classic, wrong.data.hex(" ", 4))  # noqa: T201
    with tempfile.TemporaryDirectory() as directory:
        attacked = FuzzedBroker(Path(directory))
        with attacked:
            print("ended" if ended(send(attacked, wrong)) else "no end", attacked.report())  # noqa: T201
