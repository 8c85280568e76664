"""Large requests wait until those before them have let their memory go."""

from __future__ import annotations

import pytest

from minikafka.net.interfaces import Exchange
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.workers.request_admission import RequestAdmission, leave
from tests.support.recorded_exchange import RecordedExchange


class Harness:
    """Requests by the memory that they need, and those that were begun."""

    def __init__(self, most_bytes: int) -> None:
        self.admission = RequestAdmission(most_bytes)
        self.begun: list[Exchange] = []

    def admit(self, *need_bytes: int, exchange: RecordedExchange | None = None) -> None:
        for need in need_bytes:
            self.admission.admit(exchange or RecordedExchange(), need, self.begun.append)


def test_requests_begin_in_order_while_they_fit_together() -> None:
    harness = Harness(100)
    harness.admit(40, 50, 30, 10)
    assert len(harness.begun) == 2  # the small one that came last waits, too
    harness.begun[0].respond([])
    assert len(harness.begun) == 4


def test_a_request_larger_than_all_that_is_allowed_begins_alone() -> None:
    harness = Harness(100)
    harness.admit(10, 500, 10)
    assert len(harness.begun) == 1
    harness.begun[0].close("why")
    assert len(harness.begun) == 2
    harness.begun[1].respond([])
    assert len(harness.begun) == 3


def test_a_request_that_waits_for_others_leaves_once() -> None:
    harness = Harness(100)
    harness.admit(100, 100, 100)
    leave(harness.begun[0])
    leave(harness.begun[0])
    harness.begun[0].respond([])
    assert len(harness.begun) == 2


def test_a_response_that_cannot_be_sent_leaves() -> None:
    harness = Harness(100)
    harness.admit(100, exchange=RecordedExchange(fails=True))
    harness.admit(100)
    with pytest.raises(ValueError, match="cannot be sent"):
        harness.begun[0].respond([])
    assert len(harness.begun) == 2


def test_calls_reach_the_exchange() -> None:
    harness, exchange = Harness(100), RecordedExchange()
    harness.admit(100, exchange=exchange)
    (admitted,) = harness.begun
    admitted.memory["key"] = 1
    admitted.park()
    admitted.keep_counted(False)
    admitted.respond([b"x"], 7)
    admitted.close("why")
    admitted.authenticated()
    admitted.principal = KafkaPrincipal.user("alice")
    exchange.peer_certificate = b"DER"
    assert admitted.principal == exchange.principal == KafkaPrincipal.user("alice")
    assert admitted.peer_certificate == b"DER"
    assert (admitted.client_host, admitted.listener, exchange.memory) == ("host", "PLAINTEXT", {"key": 1})
    assert exchange.calls == [
        ("park",),
        ("keep_counted", False),
        ("respond", [b"x"], 7),
        ("close", "why"),
        ("authenticated",),
    ]


def test_other_exchanges_have_nothing_to_leave() -> None:
    leave(RecordedExchange())


def test_very_many_requests_that_are_answered_at_once_all_begin() -> None:
    admission, begun = RequestAdmission(1), []

    def begin(exchange: Exchange) -> None:
        begun.append(exchange)
        exchange.respond([])

    first: list[Exchange] = []
    admission.admit(RecordedExchange(), 1, first.append)
    for _ in range(10_000):
        admission.admit(RecordedExchange(), 1, begin)
    first[0].respond([])
    assert len(begun) == 10_000
