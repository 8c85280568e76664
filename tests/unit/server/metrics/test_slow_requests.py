"""The log of slow requests: which are slow, and what the line says."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.log_lines import fields_of
from minikafka.net.interfaces import Exchange
from minikafka.server.metrics.slow_requests import SlowRequests
from minikafka.wire.api import ApiKey
from minikafka.wire.framing import RequestHeader
from tests.support.recorded_exchange import RecordedExchange

MS = 1_000_000
BEGAN = 1_000 * MS
LOGGER = "minikafka.server.metrics.slow_requests"


class CountedRequests:
    """An observer that counts."""

    counts_errors = True

    def __init__(self) -> None:
        self.count = 0

    def completed(self, exchange: Exchange, sent_ns: int) -> None:
        self.count += 1


def request(api_key: ApiKey, *, local_ms: int = 0, remote_ms: int = 0, queue_ms: int = 0) -> RecordedExchange:
    """Return a request with these times, whose response then waits 2 ms and is sent in 3 ms."""
    exchange = RecordedExchange()
    times = exchange.times
    times.header = RequestHeader(api_key, 7, 42, "app\n1")
    times.start_ns = BEGAN
    times.dequeue_ns = BEGAN + queue_ms * MS if queue_ms else 0
    times.api_local_complete_ns = BEGAN + (queue_ms + local_ms) * MS
    times.response_complete_ns = times.api_local_complete_ns + remote_ms * MS
    times.request_bytes = 100
    times.begin_response(200, 0)
    times.response_dequeue_ns = times.response_complete_ns + 2 * MS
    return exchange


def lines(caplog: pytest.LogCaptureFixture, exchange: RecordedExchange, slow_ms: int = 100) -> list[str]:
    """Return what is logged when the request is completed."""
    counted = CountedRequests()
    caplog.clear()
    SlowRequests(counted, slow_ms).completed(exchange, exchange.times.response_dequeue_ns + 3 * MS)
    assert counted.count == 1
    return [record.getMessage() for record in caplog.records]


def test_a_slow_request_is_one_line_with_its_times(caplog: pytest.LogCaptureFixture) -> None:
    exchange = request(ApiKey.PRODUCE, queue_ms=10, local_ms=20, remote_ms=70)
    exchange.times.throttle_ms = 5
    (line,) = lines(caplog, exchange)
    assert line.startswith("slow request: api=Produce version=7 correlation_id=42 client_id=app")
    assert "listener=PLAINTEXT host=host" in line
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    fields = fields_of(record)
    assert fields["principal"] == "User:ANONYMOUS"
    times = {name: value for name, value in fields.items() if name.endswith("_ms")}
    assert times == {
        "total_ms": 110.0,
        "queue_ms": 10.0,
        "local_ms": 20.0,
        "remote_ms": 70.0,
        "throttle_ms": 5,
        "response_queue_ms": 2.0,
        "send_ms": 3.0,
    }
    assert (fields["request_bytes"], fields["response_bytes"]) == (100, 200)


@pytest.mark.parametrize(
    ("exchange", "slow"),
    [
        (request(ApiKey.PRODUCE, local_ms=94), False),
        (request(ApiKey.PRODUCE, local_ms=95), True),
        (request(ApiKey.FETCH, remote_ms=500), False),
        (request(ApiKey.JOIN_GROUP, remote_ms=5_000), False),
        (request(ApiKey.FETCH, remote_ms=500, local_ms=95), True),
        (request(ApiKey.CREATE_TOPICS, remote_ms=500), True),
    ],
    ids=["below", "at the limit", "waits for data", "waits for members", "reads slowly", "waits for others"],
)
def test_what_a_client_waits_for_is_not_slow(
    caplog: pytest.LogCaptureFixture, exchange: RecordedExchange, slow: bool
) -> None:
    assert bool(lines(caplog, exchange)) is slow


def test_a_fetch_of_a_follower_is_named(caplog: pytest.LogCaptureFixture) -> None:
    exchange = request(ApiKey.FETCH, local_ms=95)
    exchange.times.from_follower = True
    assert "api=FetchFollower" in lines(caplog, exchange)[0]


def test_minus_one_logs_none_and_0_logs_all(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, request(ApiKey.PRODUCE, local_ms=1 << 40), -1) == []
    assert len(lines(caplog, request(ApiKey.HEARTBEAT), 0)) == 1


def test_a_request_that_cannot_be_decoded_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    exchange = request(ApiKey.PRODUCE, local_ms=95)
    exchange.times.header = None
    assert lines(caplog, exchange) == []


def test_slow_requests_are_logged_while_nobody_reads_metrics(caplog: pytest.LogCaptureFixture) -> None:
    observer = SlowRequests(None, 100)
    assert not observer.counts_errors
    observer.completed(request(ApiKey.PRODUCE, local_ms=500), BEGAN + 600 * MS)
    assert len(caplog.records) == 1
