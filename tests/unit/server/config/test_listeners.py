"""Where a broker listens, and what it tells clients to go to."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.ids import BrokerAddress
from minikafka.server.__main__ import announce
from minikafka.server.assembly import RunningBroker
from minikafka.server.config.listeners import (
    Listener,
    Protocol,
    check_not_registered,
    parse_listeners,
    registered_endpoints,
    unreachable,
)
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.core.metadata_cache import MetadataCache


def parse(
    listeners: str, advertised: str | None = None, protocol_map: str | None = None
) -> tuple[Listener, ...]:
    return parse_listeners(listeners, advertised, protocol_map, "node")


def config(**properties: str) -> tuple[Listener, ...]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", **named}).listeners


def test_a_listener_gives_what_to_bind_and_what_to_advertise() -> None:
    (made,) = parse("PLAINTEXT://127.0.0.1:19092")
    assert made == Listener("PLAINTEXT", Protocol.PLAINTEXT, "127.0.0.1", 19092, "127.0.0.1", 19092)


def test_an_advertised_listener_wins_over_the_bound_one() -> None:
    (made,) = parse("PLAINTEXT://:9092", "PLAINTEXT://broker.example:29092")
    assert (made.host, made.port) == ("", 9092)
    assert (made.advertised_host, made.advertised_port) == ("broker.example", 29092)


def test_address_that_another_broker_registered_is_refused() -> None:
    made = parse("PLAINTEXT://:9092,OUT://:9093", "PLAINTEXT://a:1,OUT://b:2", "OUT:SSL")
    free = [LiveBroker.plaintext(6, "a", 2), LiveBroker.plaintext(4, "b", 1)]
    check_not_registered(made, free)
    with pytest.raises(
        ConfigError, match=r"advertised.listeners='b:2': is already registered by broker 7 at "
    ):
        check_not_registered(made, [*free, LiveBroker.plaintext(7, "b", 2)])


@pytest.mark.parametrize("everywhere", ["", "0.0.0.0", "[::]"])
def test_listener_on_all_addresses_advertises_the_host_name(everywhere: str) -> None:
    (made,) = parse(f"PLAINTEXT://{everywhere}:9092")
    assert made.advertised_host == "node"


def test_listeners_of_two_networks_have_their_own_addresses() -> None:
    inside, outside = parse(
        "INTERNAL://:9092, external://0.0.0.0:9093",
        "EXTERNAL://localhost:29093,INTERNAL://kafka:9092",
        "INTERNAL:PLAINTEXT, EXTERNAL:plaintext",
    )
    assert inside == Listener("INTERNAL", Protocol.PLAINTEXT, "", 9092, "kafka", 9092)
    assert outside == Listener("EXTERNAL", Protocol.PLAINTEXT, "0.0.0.0", 9093, "localhost", 29093)


def test_classic_listener_needs_no_advertised_address() -> None:
    plain, classic = parse("PLAINTEXT://:9092,CLASSIC://[::1]:9094", "PLAINTEXT://kafka:9092")
    assert plain.advertised_host == "kafka"
    assert classic == Listener("CLASSIC", Protocol.CLASSIC, "::1", 9094, "::1", 9094)


def test_all_listeners_of_kafka_are_registered_with_bound_ports() -> None:
    listeners = parse("CLASSIC://:1,A://:0,B://:3", "A://a:0,B://b:9", "A:PLAINTEXT,B:PLAINTEXT")
    protocol = SecurityProtocol.PLAINTEXT
    assert registered_endpoints(listeners, {"CLASSIC": 1, "A": 7, "B": 3}) == (
        BrokerEndpoint("A", protocol, "a", 7),
        BrokerEndpoint("B", protocol, "b", 9),
    )


TWO = {"listeners": "CLASSIC://:1,A://:2,B://:3", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
NAME, PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"


def inter_broker(**properties: str) -> str:
    given = {"zookeeper.connect": "localhost:2181", **properties}
    return BrokerConfig.from_properties(given).inter_broker.listener


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({}, "PLAINTEXT"),
        ({PROTOCOL: "PLAINTEXT"}, "PLAINTEXT"),
        ({NAME: "plaintext"}, "PLAINTEXT"),
        (
            {"listeners": "A://:2,PLAINTEXT://:3", "listener.security.protocol.map": "A:PLAINTEXT"},
            "PLAINTEXT",
        ),
        (TWO, "A"),
        ({**TWO, NAME: "B"}, "B"),
        ({**TWO, NAME: "b"}, "B"),
    ],
)
def test_brokers_connect_on_the_named_listener(properties: dict[str, str], name: str) -> None:
    assert inter_broker(**properties) == name


@pytest.mark.parametrize(
    ("properties", "key", "complaint"),
    [
        ({NAME: "PLAINTEXT", PROTOCOL: "PLAINTEXT"}, NAME, f"only one of {NAME} and {PROTOCOL}"),
        (
            {**TWO, NAME: "C"},
            NAME,
            "must be a listener name defined in advertised.listeners: the valid options based on",
        ),
        ({**TWO, NAME: "CLASSIC"}, NAME, "options based on the configured listeners are A, B"),
        ({**TWO, PROTOCOL: "PLAINTEXT"}, PROTOCOL, f"no listener is named PLAINTEXT: set {NAME} instead"),
        ({PROTOCOL: "SASL_SSL"}, PROTOCOL, "PLAINTEXT"),
    ],
)
def test_invalid_inter_broker_listener_is_rejected_with_advice(
    properties: dict[str, str], key: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        inter_broker(**properties)
    assert refused.value.name == key
    assert complaint in str(refused.value)


def test_listener_names_are_refused_beside_0_10_brokers() -> None:
    with pytest.raises(ConfigError) as refused:
        inter_broker(**TWO, **{"inter.broker.protocol.version": "0.10.1"})
    assert refused.value.name == "listeners"
    assert "name it PLAINTEXT" in str(refused.value)
    plain = {"listeners": "CLASSIC://:1,PLAINTEXT://:2", "inter.broker.protocol.version": "0.10.1"}
    assert inter_broker(**plain) == "PLAINTEXT"


def test_the_names_of_0_8_count_where_those_of_today_are_not_given() -> None:
    assert config(**{"host.name": "10.0.0.1", "port": "1"}) == parse("PLAINTEXT://10.0.0.1:1")
    configured = config(**{"advertised.host.name": "kafka", "advertised.port": "5"})
    assert configured == parse("PLAINTEXT://:9092", "PLAINTEXT://kafka:5")
    both = config(listeners="PLAINTEXT://10.0.0.1:1", **{"advertised.port": "5"})
    assert both == parse("PLAINTEXT://10.0.0.1:1", "PLAINTEXT://10.0.0.1:5")


@pytest.mark.parametrize(
    ("listeners", "advertised", "protocol_map", "key", "complaint"),
    [
        ("PLAINTEXT://localhost", None, None, "listeners", "NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:x", None, None, "listeners", "NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:65536", None, None, "listeners", "NAME://HOST:PORT"),
        ("PLAINTEXT://::1:9092", None, None, "listeners", "NAME://HOST:PORT"),
        (",", None, None, "listeners", "NAME://HOST:PORT"),
        ("A://:9093", None, None, "listeners", "set listener.security.protocol.map=A:PLAINTEXT"),
        ("A://:9093", None, "A:HTTP", "listener.security.protocol.map", "unknown protocol HTTP"),
        ("A://:9093", None, "A", "listener.security.protocol.map", "NAME:PROTOCOL"),
        ("A://:9", None, "A:CLASSIC,a:PLAINTEXT", "listener.security.protocol.map", "each name once"),
        ("PLAINTEXT://:1,plaintext://:2", None, None, "listeners", "listener PLAINTEXT appears twice"),
        ("PLAINTEXT://:1,CLASSIC://:1", None, None, "listeners", "a different port"),
        ("CLASSIC://:1", None, None, "listeners", "another listener is required"),
        (
            "PLAINTEXT://:1",
            "PLAINTEXT://0.0.0.0:1",
            None,
            "advertised.listeners",
            "cannot connect to 0.0.0.0",
        ),
        ("PLAINTEXT://:1", "CLASSIC://a:1", None, "advertised.listeners", "PLAINTEXT://HOST:PORT"),
        ("PLAINTEXT://:1", "PLAINTEXT://a:1,B://b:2", None, "advertised.listeners", "unknown listener B"),
    ],
)
def test_invalid_listeners_are_rejected_with_advice(
    listeners: str, advertised: str | None, protocol_map: str | None, key: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(listeners, advertised, protocol_map)
    assert refused.value.name == key
    assert complaint in str(refused.value)


ADDRESSES = {
    "localhost": ["127.0.0.1", "::1"],
    "127.0.0.1": ["127.0.0.1"],
    "10.0.0.1": ["10.0.0.1"],
    "kafka": ["10.0.0.1"],
    "debian": ["127.0.1.1"],
}


def complaint_about(listeners: str, advertised: str, *, answers: bool = True) -> str | None:
    (listener,) = parse(listeners, advertised)
    return unreachable(
        listener, listener.advertised_port, lambda host: ADDRESSES.get(host, []), lambda host, port: answers
    )


@pytest.mark.parametrize(
    ("listeners", "advertised", "problem"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://nowhere:9092", "which this host cannot resolve"),
        ("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092", "which is the client itself on every other"),
        ("PLAINTEXT://10.0.0.1:9092", "PLAINTEXT://debian:9092", "which is the client itself on every other"),
    ],
)
def test_advertised_address_that_clients_cannot_reach_is_logged(
    listeners: str, advertised: str, problem: str
) -> None:
    complaint = complaint_about(listeners, advertised)
    assert complaint is not None
    assert advertised.removeprefix("PLAINTEXT://") in complaint
    assert problem in complaint
    assert "set advertised.listeners=PLAINTEXT://HOST:PORT" in complaint


def test_advertised_address_without_a_server_is_logged() -> None:
    complaint = complaint_about("PLAINTEXT://:9092", "PLAINTEXT://kafka:1", answers=False)
    assert complaint is not None
    assert "kafka:1, which does not accept connections" in complaint


@pytest.mark.parametrize(
    ("listeners", "advertised"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://kafka:9092"),
        ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://localhost:9092"),
    ],
)
def test_an_address_that_is_right_is_not_complained_of(listeners: str, advertised: str) -> None:
    assert complaint_about(listeners, advertised) is None


class Unbuffered(io.StringIO):
    """Notes each write, as a stream without a buffer would send it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def test_ready_line_comes_before_warnings_of_addresses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = Unbuffered()
    monkeypatch.setattr("sys.stdout", out)
    made = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "zk:1/c",
            "listeners": "PLAINTEXT://:1,CLASSIC://:2",
            "advertised.listeners": "PLAINTEXT://nowhere.invalid:1",
        }
    )
    serving = threading.Event()
    serving.set()
    running = SimpleNamespace(
        serving=serving,
        address=BrokerAddress(0, "nowhere.invalid", 1),
        endpoints=(BrokerEndpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "nowhere.invalid", 1),),
        broker=SimpleNamespace(metadata_cache=MetadataCache("id")),
    )
    announce(cast("RunningBroker", running), made)
    # In one piece: another thread's log, in the same file, could come between the line and its end.
    assert out.writes == ["ready nowhere.invalid:1 zookeeper zk:1/c cluster id\n"]
    (warning,) = caplog.messages
    assert "listener PLAINTEXT advertises nowhere.invalid:1, which this host cannot resolve" in warning
