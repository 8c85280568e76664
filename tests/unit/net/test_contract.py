"""The contract of both networks: over sockets and in memory."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from minikafka.base.errors import NetworkError, PeerClosed, RemoteWireError, StorageError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.net.interfaces import Exchange
from minikafka.security.principals import ANONYMOUS, KafkaPrincipal
from tests.support.network import HOST, Answering, Keeping, NetworkHarness


def test_a_request_gets_its_response(harness: NetworkHarness) -> None:
    handler = Answering(lambda frame: [b"<", memoryview(frame), b"", bytearray(b">")])
    connection = harness.connect(harness.listen(handler))
    assert bytes(connection.request([b"he", memoryview(b"llo")]).result()) == b"<hello>"
    assert handler.seen == [b"hello"]


def test_responses_come_in_the_order_of_the_requests(harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(Answering()))
    pending = [connection.request([str(number).encode()]) for number in range(20)]
    assert [bytes(response.result()) for response in reversed(pending)] == [
        str(n).encode() for n in range(19, -1, -1)
    ]


def test_next_request_waits_until_the_first_is_answered(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    first, second = connection.request([b"1"]), connection.request([b"2"])
    harness.until(lambda: handler.exchanges, "the first request has come")
    harness.settle()
    assert len(handler.exchanges) == 1
    handler.exchanges[0].respond([b"one"])
    assert bytes(first.result()) == b"one"
    harness.until(lambda: len(handler.exchanges) == 2, "the second request has come")
    handler.exchanges[1].respond([b"two"])
    assert bytes(second.result()) == b"two"


@pytest.mark.parametrize("end", ["close", "abort"])
def test_exchange_tells_that_its_peer_has_closed(handler: Keeping, harness: NetworkHarness, end: str) -> None:
    connection = harness.connect(harness.listen(handler))
    pending = connection.request([b"1"])
    harness.until(lambda: handler.exchanges, "the request has come")
    (exchange,) = handler.exchanges
    assert not exchange.is_abandoned
    getattr(connection, end)()
    harness.until(lambda: exchange.is_abandoned, "the close has come")
    with pytest.raises(NetworkError):
        pending.result()
    exchange.respond([b"one"])
    harness.settle()
    assert exchange.is_abandoned


def test_connections_do_not_wait_for_each_other(handler: Keeping, harness: NetworkHarness) -> None:
    server = harness.listen(handler)
    slow, quick = harness.connect(server), harness.connect(server)
    waiting = slow.request([b"slow"])
    harness.until(lambda: len(handler.exchanges) == 1, "the slow request has come")
    pending = quick.request([b"quick"])
    harness.until(lambda: len(handler.exchanges) == 2, "the quick request has come")
    handler.exchanges[1].respond([b"done"])
    assert bytes(pending.result()) == b"done"
    assert not waiting.done()
    handler.exchanges[0].respond([b"late"])
    assert bytes(waiting.result()) == b"late"


def test_a_request_without_response_lets_the_next_one_in(harness: NetworkHarness) -> None:
    handler = Answering(lambda frame: [] if frame.startswith(b"acks=0") else [frame])
    connection = harness.connect(harness.listen(handler))
    connection.send([b"acks=0 first"])
    connection.send([b"acks=0 second"])
    assert bytes(connection.request([b"third"]).result()) == b"third"
    assert handler.seen == [b"acks=0 first", b"acks=0 second", b"third"]


@pytest.mark.parametrize("answer", [[b"one"], []], ids=["answered", "without answer"])
def test_pause_delays_the_next_request(
    handler: Keeping, harness: NetworkHarness, answer: list[bytes]
) -> None:
    connection = harness.connect(harness.listen(handler))
    first = connection.request([b"1"]) if answer else connection.send([b"1"])
    harness.until(lambda: handler.exchanges, "the first request has come")
    second = connection.request([b"2"])
    harness.settle()
    began_ms = harness.clock.monotonic_ms()
    handler.exchanges[0].respond(answer, pause_ms=30)
    if first is not None:
        assert bytes(first.result()) == b"one"
    assert not harness.connector.wait_any([second], 5)
    harness.until_later(lambda: len(handler.exchanges) == 2, "the second request has come")
    assert harness.clock.monotonic_ms() - began_ms >= 30
    handler.exchanges[1].respond([b"two"])
    assert bytes(second.result()) == b"two"


def test_a_slice_of_a_file_arrives_among_memory(harness: NetworkHarness, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    file = RealFiles().open(str(tmp_path / "segment"), create=True)
    try:
        file.write_at(0, content)
        piece = FileSlice(file, 100, len(content) - 300)
        connection = harness.connect(
            harness.listen(Answering(lambda frame: [b"head", piece, b"mid", piece, b"tail"]))
        )
        whole = content[100:-200]
        assert bytes(connection.request([b"?"]).result()) == b"head" + whole + b"mid" + whole + b"tail"
    finally:
        file.close()


def test_a_file_shorter_than_promised_ends_the_connection(
    harness: NetworkHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = RealFiles().open(str(tmp_path / "short"), create=True)
    try:
        file.write_at(0, b"too short")
        connection = harness.connect(harness.listen(Answering(lambda frame: [FileSlice(file, 0, 1000)])))
        with pytest.raises(PeerClosed, match=f"{HOST}:.*closed the connection"):
            connection.request([b"?"]).result()
        assert connection.closed
        (record,) = [record for record in caplog.records if "short ends" in record.getMessage()]
        assert record.levelno == logging.WARNING
    finally:
        file.close()


@pytest.mark.parametrize("failure", [ZeroDivisionError, BlockingIOError, ConnectionResetError, StorageError])
def test_failing_handler_ends_only_its_connection_with_a_traceback(
    harness: NetworkHarness, caplog: pytest.LogCaptureFixture, failure: type[Exception]
) -> None:
    def answer(frame: bytes) -> list[bytes]:
        if frame == b"bad":
            raise failure("on purpose")
        return [frame]

    server = harness.listen(Answering(answer))
    other = harness.connect(server)
    assert bytes(other.request([b"before"]).result()) == b"before"
    connection = harness.connect(server)
    pending = [connection.request([b"good"]), connection.request([b"bad"]), connection.request([b"good"])]
    assert bytes(pending[0].result()) == b"good"
    for response in pending[1:]:
        with pytest.raises(NetworkError):
            response.result()
    assert bytes(other.request([b"after"]).result()) == b"after"
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.ERROR
    assert "on purpose" in caplog.text


def test_invalid_request_ends_the_connection_with_one_log_line(
    harness: NetworkHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(frame: bytes) -> list[bytes]:
        raise RemoteWireError("API key 99 is not served")

    connection = harness.connect(harness.listen(Answering(answer)))
    with pytest.raises(NetworkError):
        connection.request([b"?"]).result()
    # The client also asks whether the listener has TLS.
    (record,) = [line for line in caplog.records if "API key 99 is not served" in line.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.exc_info is None


def test_a_handler_can_end_the_connection_in_place_of_an_answer(
    harness: NetworkHarness, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.close("not with me")

    connection = harness.connect(harness.listen(Closing()))
    with pytest.raises(NetworkError):
        connection.request([b"?"]).result()
    assert "not with me" in caplog.text


@pytest.mark.parametrize("response", [[b"denied"], []], ids=["answered", "silent"])
@pytest.mark.parametrize("delay_ms", [0, 30])
def test_connection_closes_after_a_last_response(
    handler: Keeping,
    harness: NetworkHarness,
    caplog: pytest.LogCaptureFixture,
    response: list[bytes],
    delay_ms: int,
) -> None:
    connection = harness.connect(harness.listen(handler))
    first, second = connection.request([b"1"]), connection.request([b"2"])
    harness.until(lambda: handler.exchanges, "the first request has come")
    began_ms = harness.clock.monotonic_ms()
    handler.exchanges[0].close("wrong password", response, delay_ms)
    if response:
        assert bytes(first.result()) == b"denied"
    for pending in (second,) if response else (first, second):
        with pytest.raises(NetworkError):
            pending.result()
    assert harness.clock.monotonic_ms() - began_ms >= delay_ms
    assert len(handler.exchanges) == 1
    harness.until_later(lambda: "closed: wrong password" in caplog.text, "the reason is logged")


def test_other_connections_are_served_during_the_delay_of_a_last_response(
    handler: Keeping, harness: NetworkHarness
) -> None:
    server = harness.listen(handler)
    refused, other = harness.connect(server), harness.connect(server)
    first = refused.request([b"1"])
    harness.until(lambda: handler.exchanges, "the first request has come")
    handler.exchanges[0].close("wrong password", [b"denied"], 600_000)
    second = other.request([b"2"])
    harness.until(lambda: len(handler.exchanges) == 2, "the second request has come")
    handler.exchanges[1].respond([b"served"])
    assert bytes(second.result()) == b"served"
    assert not first.done()


def test_a_principal_holds_for_its_connection(handler: Keeping, harness: NetworkHarness) -> None:
    server = harness.listen(handler)
    one, other = harness.connect(server), harness.connect(server)
    alice = KafkaPrincipal.user("alice")
    one.request([b"1"])
    harness.until(lambda: handler.exchanges, "the first request has come")
    assert handler.exchanges[0].principal == ANONYMOUS
    handler.exchanges[0].principal = alice
    handler.exchanges[0].respond([])
    one.request([b"2"])
    harness.until(lambda: len(handler.exchanges) == 2, "the second request has come")
    other.request([b"3"])
    harness.until(lambda: len(handler.exchanges) == 3, "the third request has come")
    assert [exchange.principal for exchange in handler.exchanges[1:]] == [alice, ANONYMOUS]
    assert handler.exchanges[0].peer_certificate is None


def test_authentication_lifts_the_limit_of_request_bytes(
    harness: NetworkHarness, caplog: pytest.LogCaptureFixture
) -> None:
    class Authenticating:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            if frame == b"secret":
                exchange.authenticated()
            exchange.respond([b"%d" % len(frame)])

    server = harness.listen(Authenticating(), max_request_bytes=1 << 20, demands_authentication=True)
    one, other = harness.connect(server), harness.connect(server)
    assert bytes(one.request([bytes(524_288)]).result()) == b"524288"
    assert bytes(one.request([b"secret"]).result()) == b"6"
    assert bytes(one.request([bytes(524_289)]).result()) == b"524289"
    with pytest.raises(NetworkError):
        other.request([bytes(524_289)]).result()
    assert "invalid frame length 524289: expected 0 to 524288" in caplog.text


def test_a_request_above_the_limit_ends_its_connection_only(
    harness: NetworkHarness, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Answering()
    server = harness.listen(handler, max_request_bytes=100)
    other, connection = harness.connect(server), harness.connect(server)
    assert bytes(connection.request([bytes(100)]).result()) == bytes(100)
    with pytest.raises(NetworkError):
        connection.request([bytes(101)]).result()
    assert bytes(other.request([b"fine"]).result()) == b"fine"
    assert len(handler.seen) == 2
    assert "invalid frame length 101: expected 0 to 100" in caplog.text


def test_exchange_memory_belongs_to_its_connection(harness: NetworkHarness) -> None:
    class Counting:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.memory["requests"] = exchange.memory.get("requests", 0) + 1
            exchange.respond([str(exchange.memory["requests"]).encode()])

    server = harness.listen(Counting())
    one, other = harness.connect(server), harness.connect(server)
    found = [bytes(connection.request([b"?"]).result()) for connection in (one, one, other, one)]
    assert found == [b"1", b"2", b"1", b"3"]


def test_an_exchange_is_answered_once(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    pending = connection.request([b"?"])
    harness.until(lambda: handler.exchanges, "the request has come")
    handler.exchanges[0].respond([b"!"])
    with pytest.raises(RuntimeError, match="answered twice"):
        handler.exchanges[0].respond([b"!"])
    assert bytes(pending.result()) == b"!"


def test_response_to_an_ended_connection_does_nothing(handler: Keeping, harness: NetworkHarness) -> None:
    server = harness.listen(handler)
    connection = harness.connect(server)
    connection.request([b"?"])
    harness.until(lambda: handler.exchanges, "the request has come")
    connection.close()
    harness.settle()
    handler.exchanges[0].respond([b"!"])
    other = harness.connect(server)
    pending = other.request([b"next"])
    harness.until(lambda: len(handler.exchanges) == 2, "another connection is served")
    handler.exchanges[1].respond([b"fine"])
    assert bytes(pending.result()) == b"fine"


def test_a_request_is_writable_memory_of_its_own(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    sent = b"abc"
    pending = connection.request([sent])
    harness.until(lambda: handler.exchanges, "the request has come")
    handler.frames[0][0] = ord("x")
    handler.exchanges[0].respond([handler.frames[0]])
    assert (bytes(pending.result()), sent) == (b"xbc", b"abc")


def test_a_response_is_writable_memory_of_its_own(harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(Answering()))
    frame = connection.request([b"abc"]).result()
    frame[0] = ord("x")
    assert bytes(frame) == b"xbc"


def test_the_server_knows_where_a_request_comes_from(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    connection.request([b"?"])
    harness.until(lambda: handler.exchanges, "the request has come")
    assert handler.exchanges[0].client_host


def test_address_without_a_server_is_an_error(harness: NetworkHarness) -> None:
    server = harness.listen(Answering())
    server.stop()
    with pytest.raises(NetworkError, match=rf"^{HOST}:{server.port}: cannot connect: Connection refused$"):
        harness.connect(server)


def test_an_address_can_be_listened_on_once_at_a_time(harness: NetworkHarness) -> None:
    server = harness.listen(Answering())
    with pytest.raises(NetworkError, match=rf"cannot listen on {HOST}:{server.port}: Address already in use"):
        harness.listen(Answering(), port=server.port)
    server.stop()
    again = harness.listen(Answering(), port=server.port)
    assert bytes(harness.connect(again).request([b"again"]).result()) == b"again"


def test_no_response_in_time_ends_the_connection(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    first, second = connection.request([b"1"]), connection.request([b"2"])
    for _ in range(2):
        with pytest.raises(NetworkError, match=f"{HOST}:.*: no response within 30 ms"):
            first.result(timeout_ms=30)
    assert connection.closed
    with pytest.raises(NetworkError, match="no response within 30 ms"):
        second.result()
    with pytest.raises(NetworkError, match="no response within 30 ms"):
        connection.request([b"3"])


def test_closing_a_connection_fails_its_waiting_requests(harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(Keeping()))
    pending = connection.request([b"?"])
    assert not pending.done()
    connection.close()
    connection.close()
    assert connection.closed
    assert pending.done()
    with pytest.raises(NetworkError, match="closed by this client"):
        pending.result()
    with pytest.raises(NetworkError, match="closed by this client"):
        connection.send([b"?"])


def test_done_reads_arrived_bytes(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    pending = connection.request([b"?"])
    harness.until(lambda: handler.exchanges, "the request has come")
    assert not pending.done()
    handler.exchanges[0].respond([b"!"])
    harness.until(pending.done, "the response has come")
    assert bytes(pending.result(timeout_ms=0)) == b"!"


def test_a_stop_closes_connections_and_a_second_one_does_nothing(harness: NetworkHarness) -> None:
    server = harness.listen(Answering())
    connection = harness.connect(server)
    assert bytes(connection.request([b"1"]).result()) == b"1"
    server.stop()
    server.stop()
    harness.until(lambda: connection.closed, "the client has noticed")
    with pytest.raises(NetworkError, match=f"^{HOST}:{server.port}: "):
        connection.request([b"2"])


def test_stop_waits_no_longer_than_its_timeout(
    handler: Keeping, harness: NetworkHarness, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.listen(handler)
    pending = harness.connect(server).request([b"?"])
    harness.until(lambda: handler.exchanges, "the request has come")
    server.stop(drain_ms=20)
    with pytest.raises(NetworkError):
        pending.result()
    assert "was not answered before the stop" in caplog.text


def test_of_several_responses_the_first_to_come_ends_the_wait(harness: NetworkHarness) -> None:
    slow, quick = Keeping(), Answering()
    pending = [harness.connect(harness.listen(handler)).request([b"?"]) for handler in (slow, quick, slow)]
    assert harness.connector.wait_any(pending, 10_000)
    assert [response.done() for response in pending] == [False, True, False]


def test_timed_out_wait_for_any_leaves_the_connections_open(
    handler: Keeping, harness: NetworkHarness
) -> None:
    pending = [harness.connect(harness.listen(handler)).request([b"?"]) for _ in range(2)]
    harness.until(lambda: len(handler.exchanges) == 2, "both requests have come")
    assert not harness.connector.wait_any(pending, 5)
    for exchange in handler.exchanges:
        exchange.respond([b"!"])
    assert [bytes(response.result()) for response in pending] == [b"!", b"!"]


def test_wait_for_any_ends_when_a_connection_breaks(harness: NetworkHarness) -> None:
    connections = [harness.connect(harness.listen(Keeping())) for _ in range(2)]
    pending = [connection.request([b"?"]) for connection in connections]
    connections[1].close()
    assert harness.connector.wait_any(pending, 10_000)
    assert [response.done() for response in pending] == [False, True]


def test_close_that_drains_waits_for_the_responses(handler: Keeping, harness: NetworkHarness) -> None:
    answering = Answering(lambda frame: [frame])
    connection = harness.connect(harness.listen(answering))
    pending = [connection.request([str(number).encode()]) for number in range(3)]
    connection.close(drain_ms=10_000)
    assert [bytes(response.result()) for response in pending] == [b"0", b"1", b"2"]
    assert connection.closed
    with pytest.raises(NetworkError, match="closed by this client"):
        connection.request([b"more"])


def test_close_that_drains_ends_with_its_time(handler: Keeping, harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(handler))
    pending = connection.request([b"never answered"])
    connection.close(drain_ms=20)
    with pytest.raises(NetworkError, match="closed by this client"):
        pending.result()


def test_connection_whose_session_ends_is_closed_once_it_is_idle(harness: NetworkHarness) -> None:
    connection = harness.connect(harness.listen(Answering()))
    pending = connection.request([b"in flight"])
    connection.session_end_ms = harness.clock.monotonic_ms()
    assert not connection.closed
    assert bytes(pending.result()) == b"in flight"
    assert connection.closed
    connection.session_end_ms += 60_000
    assert not connection.closed
