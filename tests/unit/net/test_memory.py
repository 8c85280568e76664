"""The network in memory: faults, and time that the test advances."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import NetworkError
from minikafka.net.memory import Fault, MemoryNetwork
from tests.support.network import Answering, Keeping


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


def test_clock_advances_only_during_a_wait_with_its_steps() -> None:
    clock = ManualClock()
    network = MemoryNetwork(clock, step_ms=10)
    handler = Keeping()
    connection = network.connect("a", network.listen("a", 9092, handler).port)
    pending = connection.request([b"?"])
    network.run()
    assert clock.monotonic_ms() == 0

    def answer_after_30_ms() -> None:
        if clock.monotonic_ms() == 30:
            handler.exchanges[0].respond([b"!"])

    network.on_step(answer_after_30_ms)
    assert bytes(pending.result()) == b"!"
    assert clock.monotonic_ms() == 30


def test_a_time_out_is_exact_on_the_clock() -> None:
    network = MemoryNetwork(step_ms=400, request_timeout_ms=1000)
    network.listen("a", 9092, Keeping())
    pending = network.connect("a", 9092).request([b"?"])
    with pytest.raises(NetworkError, match="a:9092: no response within 1000 ms"):
        pending.result()
    assert network.clock.monotonic_ms() == 1000


def test_frames_of_several_connections_take_turns(network: MemoryNetwork) -> None:
    handler = Answering()
    network.listen("a", 9092, handler)
    connections = [network.connect("a", 9092) for _ in range(3)]
    for number, connection in enumerate(connections):
        for letter in "xyz":
            connection.request([f"{letter}{number}".encode()])
    network.run()
    assert handler.seen == [b"x0", b"x1", b"x2", b"y0", b"y1", b"y2", b"z0", b"z1", b"z2"]


def test_refuse_fault_applies_the_given_number_of_times(network: MemoryNetwork) -> None:
    network.listen("a", 9092, Answering())
    network.inject("a", 9092, Fault.REFUSE, 2)
    for _ in range(2):
        with pytest.raises(NetworkError, match="a:9092: cannot connect: Connection refused"):
            network.connect("a", 9092)
    assert bytes(network.connect("a", 9092).request([b"?"]).result()) == b"?"


@pytest.mark.parametrize(
    ("fault", "served", "message"),
    [
        (Fault.DROP_REQUEST, [], "no response within"),
        (Fault.DROP_RESPONSE, [b"1", b"2"], "no response within"),
        (Fault.CUT_REQUEST, [], "Connection reset by peer"),
        (Fault.CUT_RESPONSE, [b"1"], "Connection reset by peer"),
    ],
)
def test_a_fault_strikes_where_its_name_says(
    network: MemoryNetwork, fault: Fault, served: list[bytes], message: str
) -> None:
    handler = Answering()
    network.listen("a", 9092, handler)
    network.inject("a", 9092, fault)
    connection = network.connect("a", 9092)
    pending = [connection.request([b"1"]), connection.request([b"2"])]
    for response in pending:
        with pytest.raises(NetworkError, match=message):
            response.result()
    assert connection.closed
    assert handler.seen == served
    assert bytes(network.connect("a", 9092).request([b"3"]).result()) == b"3", "the fault is over"


def test_faults_concern_their_address_only_and_can_be_taken_back(network: MemoryNetwork) -> None:
    for host in ("a", "b"):
        network.listen(host, 9092, Answering())
        network.inject(host, 9092, Fault.CUT_REQUEST)
    network.heal("a", 9092)
    assert bytes(network.connect("a", 9092).request([b"?"]).result()) == b"?"
    with pytest.raises(NetworkError):
        network.connect("b", 9092).request([b"?"]).result()


def test_a_cut_breaks_all_connections_of_the_address_now(network: MemoryNetwork) -> None:
    handlers = {host: Keeping() for host in "ab"}
    for host, handler in handlers.items():
        network.listen(host, 9092, handler)
    cut, other = network.connect("a", 9092), network.connect("b", 9092)
    pending = cut.request([b"?"])
    network.run()
    network.cut("a", 9092)
    assert pending.done()
    assert cut.closed
    assert not other.closed
    handlers["a"].exchanges[0].respond([b"too late"])
    with pytest.raises(NetworkError, match="reset"):
        pending.result()


def test_requests_sent_before_a_close_still_arrive(network: MemoryNetwork) -> None:
    handler = Answering()
    network.listen("a", 9092, handler)
    connection = network.connect("a", 9092)
    connection.send([b"1"])
    connection.send([b"2"])
    connection.close()
    network.run()
    assert handler.seen == [b"1", b"2"]


def test_stop_waits_for_responses_in_flight(network: MemoryNetwork) -> None:
    handler = Keeping()
    server = network.listen("a", 9092, handler)
    pending = network.connect("a", 9092).request([b"?"])
    network.run()
    network.on_step(lambda: handler.exchanges.pop().respond([b"!"]) if handler.exchanges else None)
    server.stop()
    assert bytes(pending.result()) == b"!"


def test_port_zero_takes_the_next_number(network: MemoryNetwork) -> None:
    ports = [network.listen("a", 0, Answering()).port for _ in range(3)]
    assert ports == [40000, 40001, 40002]


def test_steps_before_a_callback_has_work_are_passed_over() -> None:
    clock = ManualClock()
    network = MemoryNetwork(clock, step_ms=10)
    ran: list[int] = []
    network.on_step(lambda: ran.append(clock.monotonic_ms()), lambda: 25 if not ran else 1_000)
    assert not network.wait(lambda: False, 50)
    assert ran == [30, 50]


def test_a_pause_that_ends_is_no_step_to_pass_over() -> None:
    network = MemoryNetwork(step_ms=10)
    network.on_step(lambda: None, lambda: 1_000)
    handler = Keeping()
    network.listen("a", 9092, handler)
    connection = network.connect("a", 9092)
    first, second = connection.request([b"1"]), connection.request([b"2"])
    network.run()
    handler.exchanges[0].respond([b"!"], 35)
    assert bytes(first.result()) == b"!"
    network.wait(lambda: len(handler.exchanges) == 2, 1_000)
    assert network.clock.monotonic_ms() == 40
    assert not second.done()
