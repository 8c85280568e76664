"""The endpoints of brokers by listener."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol, addresses_on
from minikafka.base.ids import BrokerAddress

INSIDE = BrokerEndpoint("INSIDE", SecurityProtocol.SASL_SSL, "kafka", 9092)
OUTSIDE = BrokerEndpoint("OUTSIDE", SecurityProtocol.PLAINTEXT, "::1", 9093)
PROTOCOLS = {"INSIDE": "SASL_SSL", "OUTSIDE": "PLAINTEXT"}


@pytest.mark.parametrize("endpoint", [INSIDE, OUTSIDE])
def test_an_endpoint_survives_its_text(endpoint: BrokerEndpoint) -> None:
    assert BrokerEndpoint.parse(str(endpoint), PROTOCOLS) == endpoint


def test_ipv6_host_of_an_endpoint_is_in_brackets() -> None:
    assert str(OUTSIDE) == "OUTSIDE://[::1]:9093"


def test_listener_outside_the_map_is_named_as_its_protocol() -> None:
    found = BrokerEndpoint.parse("SSL://h:1", {})
    assert found == BrokerEndpoint("SSL", SecurityProtocol.SSL, "h", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NONSENSE",
        "PLAINTEXT://h",
        "PLAINTEXT://h:x",
        "SSL\n://h:1",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://h:-1",
        "A://h:1",
    ],
)
def test_text_that_is_no_endpoint_gives_none(text: str) -> None:
    assert BrokerEndpoint.parse(text, {}) is None


@pytest.mark.parametrize("protocol", ["QUIC", 1, None, ["SSL"]])
def test_endpoint_with_an_unknown_protocol_gives_none(protocol: object) -> None:
    assert BrokerEndpoint.parse("A://h:1", {"A": protocol}) is None


def test_a_broker_has_one_address_on_each_listener() -> None:
    broker = LiveBroker(3, (INSIDE, OUTSIDE), "r1")
    assert broker.address("INSIDE") == BrokerAddress(3, "kafka", 9092, "r1")
    assert broker.address("OUTSIDE") == BrokerAddress(3, "::1", 9093, "r1")
    assert broker.address("PLAINTEXT") is None


def test_endpoint_is_found_by_protocol_not_by_name() -> None:
    assert LiveBroker(3, (INSIDE, OUTSIDE)).endpoint_with(SecurityProtocol.PLAINTEXT) == OUTSIDE
    assert LiveBroker(3, (INSIDE,)).endpoint_with(SecurityProtocol.PLAINTEXT) is None


def test_brokers_without_the_listener_have_no_address_on_it() -> None:
    brokers = {1: LiveBroker(1, (OUTSIDE,)), 2: LiveBroker(2, (INSIDE,)), 3: LiveBroker(3, (INSIDE, OUTSIDE))}
    assert addresses_on("OUTSIDE", brokers) == {
        1: BrokerAddress(1, "::1", 9093),
        3: BrokerAddress(3, "::1", 9093),
    }


def test_a_broker_is_shown_with_all_its_endpoints() -> None:
    assert str(LiveBroker(3, (INSIDE, OUTSIDE))) == "broker 3 at INSIDE://kafka:9092, OUTSIDE://[::1]:9093"
    assert str(LiveBroker(3, ())) == "broker 3 at no known endpoint"
