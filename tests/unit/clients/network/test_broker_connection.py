"""``network.broker_connection``: opened when needed, negotiated, and reopened after a failure."""

from __future__ import annotations

from typing import NoReturn

import pytest

from minikafka.base import __version__
from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    NetworkError,
    PeerClosed,
    RemoteWireError,
    SslAuthenticationFailed,
)
from minikafka.clients.network.broker_connection import BrokerConnection, ConnectionConfig
from minikafka.clients.network.retry import Deadline
from minikafka.clients.network.used_versions import NEWEST_USED
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, is_valid
from minikafka.wire.apis.fetch import FETCH
from minikafka.wire.apis.metadata import METADATA, MetadataResponse, metadata_request
from minikafka.wire.apis.produce import PRODUCE, ProduceRequest
from tests.support.broker_harness import FIRST_PORT, HOST, BrokerHarness

NO_TOPICS = metadata_request(())


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness()


def link_to(brokers: BrokerHarness, idle_ms: int = 540_000, **newest: int) -> BrokerConnection:
    config = ConnectionConfig(
        brokers.network,
        brokers.clock,
        brokers.waiter,
        "tester",
        connections_max_idle_ms=idle_ms,
        newest_versions={ApiKey[name.upper()]: version for name, version in newest.items()},
    )
    return BrokerConnection("broker 1 at memory:9001", HOST, FIRST_PORT + 1, config)


def ask(brokers: BrokerHarness, connection: BrokerConnection, timeout_ms: int = 1_000) -> MetadataResponse:
    deadline = Deadline(brokers.clock, timeout_ms)
    return connection.send(METADATA, lambda _: NO_TOPICS, deadline).result(timeout_ms)


def test_nothing_is_connected_before_the_first_request(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    assert not connection.connected
    assert ask(brokers, connection).controller_id == 1
    assert connection.connected
    assert [key for _, key, _, _ in brokers.requests] == [ApiKey.API_VERSIONS, ApiKey.METADATA]


def test_versions_are_asked_once_per_connection(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    ask(brokers, connection)
    assert len(brokers.asked(ApiKey.API_VERSIONS)) == 1
    connection.disconnect()
    brokers.newest[ApiKey.METADATA] = 1
    ask(brokers, connection)
    assert [version for _, key, version, _ in brokers.requests if key is ApiKey.METADATA] == [12, 12, 1]


def test_the_newest_common_version_is_used(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.FETCH] = 1
    connection = link_to(brokers, metadata=0)
    deadline = Deadline(brokers.clock, 1_000)
    assert connection.version(FETCH, deadline) == 1
    assert connection.version(PRODUCE, deadline) == NEWEST_USED[ApiKey.PRODUCE]
    assert connection.version(METADATA, deadline) == 0


def test_no_common_version_is_told_with_both_ranges(brokers: BrokerHarness) -> None:
    brokers.newest[ApiKey.METADATA], brokers.oldest[ApiKey.METADATA] = 15, 13
    with pytest.raises(
        BrokerError,
        match=r"of Metadata: broker 1 at memory:9001 supports versions 13 to 15, this client 0 to 12",
    ) as caught:
        ask(brokers, link_to(brokers))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    brokers.unknown.add(ApiKey.FETCH)
    with pytest.raises(BrokerError, match="of Fetch: broker 1 at memory:9001 supports no version"):
        link_to(brokers).version(FETCH, Deadline(brokers.clock, 1_000))


def test_requests_are_pipelined_and_answered_in_any_order_of_asking(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    deadline = Deadline(brokers.clock, 1_000)
    topics = [("a",), ("b",), ("c",)]
    replies = [connection.send(METADATA, lambda _, t=t: metadata_request(t), deadline) for t in topics]
    assert len(brokers.asked(ApiKey.METADATA)) == 0  # all were sent before anything moved
    answers = [reply.result() for reply in reversed(replies)]
    assert [answer.topics[0].name for answer in answers] == ["c", "b", "a"]


def test_refused_connections_back_off_and_are_told_with_the_address(brokers: BrokerHarness) -> None:
    brokers.fault(1, Fault.REFUSE, 3)
    connection = link_to(brokers)
    for _ in range(3):
        with pytest.raises(
            NetworkError, match=r"^broker 1 at memory:9001: cannot connect: Connection refused$"
        ):
            ask(brokers, connection)
    ask(brokers, connection)
    assert brokers.waiter.waits == [50, 100, 200]
    # After a success it begins again.
    connection.disconnect()
    brokers.fault(1, Fault.REFUSE, 1)
    with pytest.raises(NetworkError):
        ask(brokers, connection)
    ask(brokers, connection)
    assert brokers.waiter.waits == [50, 100, 200, 50]


def test_back_off_beyond_the_deadline_ends_with_the_last_reason(brokers: BrokerHarness) -> None:
    brokers.fault(1, Fault.REFUSE, 5)
    connection = link_to(brokers)
    for _ in range(5):
        with pytest.raises(NetworkError):
            ask(brokers, connection)
    before = brokers.clock.monotonic_ms()
    with pytest.raises(NetworkError, match=r"^broker 1 at memory:9001: cannot connect: Connection refused$"):
        ask(brokers, connection, timeout_ms=100)
    assert brokers.clock.monotonic_ms() - before == 100


def test_broken_connection_fails_requests_and_the_next_one_reconnects(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    brokers.fault(1, Fault.CUT_RESPONSE)
    deadline = Deadline(brokers.clock, 1_000)
    first, second = (connection.send(METADATA, lambda _: NO_TOPICS, deadline) for _ in range(2))
    for reply in (first, second):
        with pytest.raises(NetworkError, match=r"^broker 1 at memory:9001: Metadata: Connection reset"):
            reply.result()
    assert not connection.connected
    assert ask(brokers, connection).controller_id == 1


def test_a_request_that_is_not_answered_in_time_closes_the_connection(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    brokers.fault(1, Fault.DROP_RESPONSE)
    with pytest.raises(NetworkError, match=r"^broker 1 at memory:9001: Metadata: no response within 700 ms$"):
        ask(brokers, connection, timeout_ms=700)
    assert not connection.connected


def test_a_broker_without_api_versions_is_told_as_too_old(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.API_VERSIONS, lambda *_: Fault.CUT_REQUEST)
    with pytest.raises(
        NetworkError, match=r"cannot connect: ApiVersions \(needs Kafka 0\.10 or newer\): the peer closed"
    ):
        ask(brokers, link_to(brokers))


def test_an_answer_to_another_request_closes_the_connection(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    deadline = Deadline(brokers.clock, 1_000)
    reply = connection.send(METADATA, lambda _: NO_TOPICS, deadline)
    reply._correlation_id += 1
    with pytest.raises(
        RemoteWireError, match=r"broker 1 at memory:9001, Metadata 12: expected correlation id 3, got 2"
    ):
        reply.result()
    assert not connection.connected


def test_requests_without_an_answer_do_not_disturb_the_others(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    deadline = Deadline(brokers.clock, 1_000)
    connection.send_without_response(PRODUCE, lambda _: ProduceRequest(None, 0, 1, ()), deadline)
    assert ask(brokers, connection).controller_id == 1
    assert len(brokers.asked(ApiKey.PRODUCE)) == 1


def test_a_closed_link_connects_no_more(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    connection.close()
    connection.close()
    with pytest.raises(NetworkError, match="broker 1 at memory:9001: the client is closed"):
        ask(brokers, connection)


def test_the_broker_is_told_the_software_of_the_client(brokers: BrokerHarness) -> None:
    ask(brokers, link_to(brokers))
    (_, key, version, request) = brokers.requests[0]
    assert (key, version) == (ApiKey.API_VERSIONS, NEWEST_USED[ApiKey.API_VERSIONS])
    assert request == ApiVersionsRequest("minikafka", __version__)
    assert is_valid(request, version)


@pytest.mark.parametrize(
    ("table", "versions"),
    [((), [4, 0]), ((ApiVersion(18, 0, 3),), [4, 3]), ((ApiVersion(18, 0, 4),), [4, 3])],
)
def test_older_brokers_are_asked_again_in_their_version(
    brokers: BrokerHarness, table: tuple[ApiVersion, ...], versions: list[int]
) -> None:
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, table)
    brokers.script(ApiKey.API_VERSIONS, lambda *_: refusal)
    assert ask(brokers, link_to(brokers)).controller_id == 1
    assert [version for _, key, version, _ in brokers.requests if key is ApiKey.API_VERSIONS] == versions


def connections(brokers: BrokerHarness) -> int:
    """The number of connections so far: each requests the versions once."""
    return len(brokers.asked(ApiKey.API_VERSIONS))


def test_a_connection_idle_for_too_long_is_not_used_again(brokers: BrokerHarness) -> None:
    connection = link_to(brokers, idle_ms=1_000)
    for pause_ms, made in ((0, 1), (999, 1), (999, 1), (1_000, 2)):
        brokers.advance(pause_ms)
        assert ask(brokers, connection).controller_id == 1
        assert connections(brokers) == made


def test_of_a_connection_that_is_idle_the_descriptor_is_given_back(brokers: BrokerHarness) -> None:
    connection = link_to(brokers, idle_ms=1_000)
    connection.close_idle()
    ask(brokers, connection)
    brokers.advance(999)
    connection.close_idle()
    assert connection.connected
    brokers.advance(1)
    connection.close_idle()
    assert not connection.connected
    assert ask(brokers, connection).controller_id == 1


def test_a_broker_that_closed_an_idle_connection_costs_no_error(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    brokers.stop(1)
    brokers.start(1)
    assert ask(brokers, connection).controller_id == 1
    assert connections(brokers) == 2


def test_session_that_ends_soon_is_left_when_its_requests_are_answered(brokers: BrokerHarness) -> None:
    connection = link_to(brokers)
    ask(brokers, connection)
    deadline = Deadline(brokers.clock, 1_000)
    before = connection.send(METADATA, lambda _: metadata_request(("a",)), deadline)
    first = connection._connection
    assert first is not None
    first.session_end_ms = brokers.clock.monotonic_ms()
    after = connection.send(METADATA, lambda _: metadata_request(("b",)), deadline)
    assert first.closed
    assert connection._connection is not first
    assert [reply.result().topics[0].name for reply in (after, before)] == ["b", "a"]
    keys = [key for _, key, _, _ in brokers.requests]
    assert keys[1:] == [ApiKey.METADATA, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.METADATA]


def test_failed_login_is_raised_at_once_and_delays_the_next_one(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    def refuse(host: str, port: int) -> NoReturn:
        times.append(brokers.clock.monotonic_ms())
        raise AuthenticationFailed("wrong password", "wrong password")

    monkeypatch.setattr(brokers.network, "connect", refuse)
    connection = link_to(brokers)
    for _ in range(3):
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            ask(brokers, connection)
    assert times == [0, 50, 150]


class Asking:
    """Says why a listener closes connections, and counts the questions."""

    def __init__(self, reason: str | None) -> None:
        self.asked = 0
        self._reason = reason

    def __call__(self, host: str, port: int) -> str | None:
        self.asked += 1
        return self._reason


def asking_link(brokers: BrokerHarness, asking: Asking) -> BrokerConnection:
    config = ConnectionConfig(brokers.network, brokers.clock, brokers.waiter, "tester", why_closed=asking)
    return BrokerConnection("broker 1 at memory:9001", HOST, FIRST_PORT + 1, config)


def closing_connect(brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the broker close each connection, as on a listener with another protocol."""

    def close(host: str, port: int) -> NoReturn:
        raise PeerClosed("cannot connect: closed by the peer", f"{host}:{port}")

    monkeypatch.setattr(brokers.network, "connect", close)


DEMANDED = r"^ILLEGAL_SASL_STATE: broker 1 at memory:9001: the listener demands a login$"


def test_listener_that_demands_a_login_is_a_lasting_error(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing_connect(brokers, monkeypatch)
    connection = asking_link(brokers, Asking("the listener demands a login"))
    with pytest.raises(AuthenticationFailed, match=DEMANDED) as refused:
        ask(brokers, connection)
    assert not isinstance(refused.value, SslAuthenticationFailed)  # TLS, if there is any, is well
    assert not refused.value.is_retriable


def test_listener_is_asked_once_in_ten_seconds(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing_connect(brokers, monkeypatch)
    asking = Asking(None)
    connection = asking_link(brokers, asking)
    for _ in range(3):
        with pytest.raises(NetworkError, match="closed by the peer"):
            ask(brokers, connection)
    assert asking.asked == 1
    brokers.clock.advance(10_000)
    with pytest.raises(NetworkError, match="closed by the peer"):
        ask(brokers, connection)
    assert asking.asked == 2


def test_broker_that_has_answered_is_not_asked(brokers: BrokerHarness) -> None:
    asking = Asking("the listener demands a login")
    connection = asking_link(brokers, asking)
    ask(brokers, connection)
    reply = connection.send(METADATA, lambda _: NO_TOPICS, Deadline(brokers.clock, 1_000))
    assert connection._connection is not None
    brokers.network._connections[0].close_by_server()
    with pytest.raises(NetworkError, match="Metadata: the peer closed"):
        reply.result()
    assert asking.asked == 0


def test_first_request_that_ends_the_connection_asks_the_listener(brokers: BrokerHarness) -> None:
    connection = asking_link(brokers, Asking("the listener demands a login"))
    reply = connection.send(METADATA, lambda _: NO_TOPICS, Deadline(brokers.clock, 1_000))
    brokers.network._connections[0].close_by_server()
    with pytest.raises(AuthenticationFailed, match=DEMANDED):
        reply.result()
