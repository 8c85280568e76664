"""What of the requests that wait is work to be done, for which the network holds others back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.wire.framing import RequestHeader
from minikafka.wire.parts import Part, join
from minikafka.wire.table import APIS
from tests.scenarios import simulation
from tests.scenarios.simulation import Request, Simulation


class Recording:
    """An exchange that remembers."""

    client_host = "somewhere"
    listener = "PLAINTEXT"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.parked = False
        self.answered = False

    def park(self) -> None:
        self.parked = True

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        self.answered = True

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def dispatched(world: Simulation, request: Request) -> Recording:
    server = world.machine._server
    assert server is not None
    exchange = Recording()
    header = RequestHeader(int(request.key), request.version, 1, "test")
    frame = join([header.encode(), *APIS[request.key].encode_request(request.version, request.body)])
    server.handler.on_request(exchange, memoryview(bytearray(frame)))
    return exchange


def test_a_long_poll_keeps_nobody_out_while_it_waits() -> None:
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    waiting = dispatched(world, simulation.fetch("t", wait_ms=30_000))
    assert (waiting.parked, waiting.answered) == (True, False)
    world.produce("t", b"x")
    assert waiting.answered


def test_what_zookeeper_has_yet_to_be_told_counts_until_it_is_answered() -> None:
    world = Simulation()
    world.machine.start()
    asked = dispatched(world, simulation.create_topic("t"))
    assert (asked.parked, asked.answered) == (False, False)
    world.settle()
    assert asked.answered
