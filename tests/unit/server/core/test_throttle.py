"""Requests count for the quotas of their client: their bytes, their time, the partitions that they change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.exposition import Exposition
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry.users import ClientEntity, QuotaType
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.context import RequestContext
from minikafka.server.core import throttle
from minikafka.server.core.throttle import RequestMeter, metered
from minikafka.server.metrics.definitions import THROTTLED
from minikafka.wire.api import Api
from minikafka.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from minikafka.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsResponse
from minikafka.wire.apis.fetch import NEW_SESSION_EPOCH, NO_SESSION, FetchPartition, FetchTopic
from minikafka.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.apis.update_metadata import UPDATE_METADATA
from minikafka.wire.apis.write_txn_markers import WRITE_TXN_MARKERS
from minikafka.wire.framing import RequestHeader
from tests.support import requests
from tests.support.recorded_exchange import RecordedExchange
from tests.support.simulation import Simulation

CLIENT = ClientEntity.of(client_id="simulation")
MILLISECOND = 1_000_000


class ThreadTime:
    """The processor time of the thread; it stands still until it is set."""

    nanoseconds = 0

    def thread_time_ns(self) -> int:
        return self.nanoseconds


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving(properties={"quota.window.num": "2"})


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> ThreadTime:
    thread = ThreadTime()
    monkeypatch.setattr(throttle, "time", thread)
    return thread


def context_of(
    world: Simulation, api: Api[Any, Any], version: int, *, user: str = "bob", size: int = 100
) -> tuple[RequestContext, RecordedExchange, RequestMeter]:
    exchange = RecordedExchange()
    exchange.principal = KafkaPrincipal.user(user)
    broker = world.machine.broker
    meter = RequestMeter(broker, user, size)
    context = RequestContext(RequestHeader(int(api.key), version, 1, "simulation"), api, exchange)
    return metered(broker, context, None, meter), exchange, meter


def pause_of(exchange: RecordedExchange) -> int:
    return int(exchange.calls[-1][-1])


def heartbeat_pause(context: RequestContext, exchange: RecordedExchange) -> int:
    """Answer a heartbeat; return the pause of its connection."""
    context.reply(HeartbeatResponse(0, ErrorCode.NONE))
    return pause_of(exchange)


def throttled(world: Simulation) -> list[str]:
    """Return the metrics of the requests that quotas have paused."""
    out = Exposition()
    world.machine.broker.metrics.expose_events(out, (THROTTLED,))
    return [line for line in out.encode().decode().splitlines() if not line.startswith("#")]


def limit(world: Simulation, **quotas: str) -> None:
    world.machine.broker.quotas.change(CLIENT, quotas)


def test_a_request_counts_for_the_user_of_its_connection(world: Simulation) -> None:
    world.machine.broker.quotas.change(ClientEntity.of(user="al ice"), {"producer_byte_rate": "1000"})
    for user, pause_ms in (("bob", 0), ("al ice", 1000), ("al ice", 3000)):
        context, exchange, _ = context_of(world, PRODUCE, 3, user=user, size=2000)
        context.no_reply()
        assert pause_of(exchange) == pause_ms


def test_the_time_of_a_request_pauses_its_client(world: Simulation, thread: ThreadTime) -> None:
    limit(world, request_percentage="10")
    context, exchange, meter = context_of(world, HEARTBEAT, 2)
    with meter:
        thread.nanoseconds += 150 * MILLISECOND
    # 15 hundredths of a second, of which 10 may be used in the one window that counts at first.
    assert heartbeat_pause(context, exchange) == 500
    assert HEARTBEAT.decode_response(2, exchange.frame[4:]).throttle_time_ms == 500


def test_the_pause_for_time_is_a_window_at_most(world: Simulation, thread: ThreadTime) -> None:
    limit(world, request_percentage="0.5")
    context, exchange, meter = context_of(world, HEARTBEAT, 2)
    with meter:
        thread.nanoseconds += 5_000 * MILLISECOND
    assert heartbeat_pause(context, exchange) == 1000


def test_the_time_to_send_a_response_counts_for_the_next_request(
    world: Simulation, thread: ThreadTime
) -> None:
    limit(world, request_percentage="10")
    context, exchange, meter = context_of(world, HEARTBEAT, 2)
    assert heartbeat_pause(context, exchange) == 0
    assert exchange.meter is meter
    meter.sent(150 * MILLISECOND)
    assert throttled(world) == []  # no request is paused yet
    context, exchange, _ = context_of(world, HEARTBEAT, 2)
    assert heartbeat_pause(context, exchange) == 500
    assert throttled(world) == ['minikafka_throttled_requests_total{quota="request_percentage"} 1']


def test_bytes_that_are_taken_back_are_no_throttled_request(world: Simulation) -> None:
    limit(world, consumer_byte_rate="1000")
    client = (world.machine.broker, "bob", "simulation", QuotaType.FETCH)
    assert throttle.pause_of(*client, 5000) > throttle.pause_of(*client, -1000) > 0
    assert throttled(world) == ['minikafka_throttled_requests_total{quota="consumer_byte_rate"} 1']


def test_steps_in_a_pool_count_and_the_time_between_them_does_not(
    world: Simulation, thread: ThreadTime
) -> None:
    limit(world, request_percentage="10")
    context, exchange, meter = context_of(world, HEARTBEAT, 2)

    def steps() -> Any:
        for _ in range(3):
            thread.nanoseconds += 50 * MILLISECOND
            yield 7

    for need_bytes in meter.timed(steps()):
        assert need_bytes == 7
        thread.nanoseconds += 1_000 * MILLISECOND
    assert heartbeat_pause(context, exchange) == 500


def test_a_step_within_a_step_counts_once(world: Simulation, thread: ThreadTime) -> None:
    limit(world, request_percentage="10")
    context, exchange, meter = context_of(world, HEARTBEAT, 2)
    with meter:
        thread.nanoseconds += 50 * MILLISECOND
        with meter:
            thread.nanoseconds += 50 * MILLISECOND
        thread.nanoseconds += 50 * MILLISECOND
        assert heartbeat_pause(context, exchange) == 500


@pytest.mark.parametrize(
    ("api", "version"), [(UPDATE_METADATA, 2), (WRITE_TXN_MARKERS, 1), (ADD_PARTITIONS_TO_TXN, 4)]
)
def test_requests_of_brokers_are_exempt(world: Simulation, api: Api[Any, Any], version: int) -> None:
    limit(world, request_percentage="10")
    context, exchange, _ = context_of(world, api, version)
    assert type(context) is RequestContext
    assert exchange.meter is None


def test_partitions_that_a_client_adds_count(world: Simulation) -> None:
    limit(world, request_percentage="10")
    _, exchange, _ = context_of(world, ADD_PARTITIONS_TO_TXN, 3)
    assert exchange.meter is not None


def test_without_a_quota_of_time_none_is_measured(world: Simulation) -> None:
    limit(world, producer_byte_rate="1000")
    _, exchange, meter = context_of(world, HEARTBEAT, 2)
    assert exchange.meter is None
    assert meter.exempt


def test_a_throttled_fetch_is_answered_empty_and_does_not_count(world: Simulation) -> None:
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x" * 700).error_code == 0
    limit(world, consumer_byte_rate="1000")
    assert world.fetch("t").records
    answer = world.call(requests.fetch("t"))
    assert answer.topics == ()
    assert 400 < answer.throttle_time_ms < 700
    # The next request is read after the pause, and gets what the one before did not.
    assert world.fetch("t").records


def test_a_throttled_fetch_begins_no_session(world: Simulation) -> None:
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x" * 700).error_code == 0
    limit(world, consumer_byte_rate="1000")
    asked = requests.fetch("t", version=10)
    asked = replace(asked, body=replace(asked.body, session_epoch=NEW_SESSION_EPOCH))
    assert world.call(asked).session_id != NO_SESSION
    answer = world.call(asked)
    assert answer.throttle_time_ms
    assert (answer.session_id, answer.topics) == (NO_SESSION, ())
    assert len(world.machine.broker.fetch_sessions) == 1


def test_a_throttled_session_tells_all_changes_after_the_pause(world: Simulation) -> None:
    assert world.create_topic("t", partitions=2) == 0
    assert world.produce("t", b"x" * 700).error_code == 0
    limit(world, consumer_byte_rate="1000")
    asked = requests.fetch("t", version=10)
    both = (FetchTopic("t", tuple(FetchPartition(index, -1, 0, -1, 1 << 20) for index in (0, 1))),)
    begun = world.call(replace(asked, body=replace(asked.body, session_epoch=NEW_SESSION_EPOCH, topics=both)))
    # Of the other partition only the high watermark has changed for this client.
    world.call(requests.produce("t", build_message_set([Record(None, b"y", 0)]), partitions=(1,)))
    moved = replace(both[0], partitions=(FetchPartition(1, -1, 1, -1, 1 << 20),))
    body = replace(asked.body, session_id=begun.session_id, session_epoch=1, topics=(moved,))
    answer = world.call(replace(asked, body=body))
    assert (answer.session_id, answer.topics, answer.error_code) == (begun.session_id, (), 0)
    assert answer.throttle_time_ms
    answer = world.call(replace(asked, body=replace(body, session_epoch=2, topics=())))
    assert [part.index for topic in answer.topics for part in topic.partitions] == [0, 1]


def test_a_message_that_exceeds_all_windows_is_sent_with_a_pause(world: Simulation) -> None:
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x" * 5000).error_code == 0
    limit(world, consumer_byte_rate="1000")
    answer = world.call(requests.fetch("t"))
    assert answer.topics[0].partitions[0].records
    assert 4000 < answer.throttle_time_ms < 5000


def test_a_fetch_gets_no_more_than_the_quota_allows_in_all_windows(world: Simulation) -> None:
    assert world.create_topic("t") == 0
    for _ in range(10):
        assert world.produce("t", b"x" * 300).error_code == 0
    limit(world, consumer_byte_rate="1000")
    answer = world.call(requests.fetch("t", min_bytes=2000))
    assert answer.throttle_time_ms < 100
    assert 600 < len(bytes(answer.topics[0].partitions[0].records)) <= 1000


def test_old_requests_above_the_mutation_rate_are_served_then_paused(world: Simulation) -> None:
    limit(world, controller_mutation_rate="2")
    for name in ("a", "b"):
        answer = world.call(requests.create_topic(name, partitions=12).at(2))
        assert answer.topics[0].error_code == 0
    # The second one may use what is left of 11 seconds, 10 partitions: 2 are owed.
    assert answer.throttle_time_ms == pytest.approx(1000, abs=100)


def test_validation_of_a_creation_uses_up_nothing(world: Simulation) -> None:
    limit(world, controller_mutation_rate="1")
    wanted = CreatableTopic("a", 12, 1, (), ())
    for _ in range(3):
        answer = world.call(requests.create_topics(wanted, validate_only=True).at(4))
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)


def test_newer_requests_are_refused_while_their_client_must_wait(world: Simulation) -> None:
    limit(world, controller_mutation_rate="2")
    context, exchange, _ = context_of(world, CREATE_TOPICS, 6)
    context.record_mutations(24)
    with pytest.raises(BrokerError, match="throttling quota") as caught:
        context.record_mutations(1)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    context.reply(CreateTopicsResponse(0, ()))
    assert pause_of(exchange) == 1000
