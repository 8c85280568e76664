"""The registrations of live brokers, in the JSON of each release, and those that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import CoordinationError
from minikafka.base.ids import BrokerAddress
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration, addresses_with, live_brokers
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper

GOLDEN = Path(__file__).parents[2] / "data" / "zookeeper"
PATH = paths.broker_path(7)
PLAINTEXT = BrokerEndpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 29192)
SASL_SSL = BrokerEndpoint("SASL_SSL", SecurityProtocol.SASL_SSL, "::1", 9093)
OUTSIDE = BrokerEndpoint("OUTSIDE", SecurityProtocol.PLAINTEXT, "kafka", 9094)
NOW_MS = 1795241004646


@pytest.fixture
def store() -> MemoryStore:
    """Brokers 2 and 10, and one whose znode is nonsense."""
    store = MemoryZooKeeper().connect()
    for number in (10, 2):
        data = BrokerRegistration(LiveBroker.plaintext(number, "h", 9000 + number)).to_json()
        store.create(paths.broker_path(number), data, make_parents=True)
    store.create(paths.broker_path(3), b"nonsense")
    return store


def written(*endpoints: BrokerEndpoint, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BrokerRegistration(LiveBroker(7, endpoints), **options).to_json())
    return found


def read(**fields: Any) -> BrokerRegistration:
    given = {"host": None, "port": -1, "jmx_port": -1, "timestamp": "12", **fields}
    return BrokerRegistration.from_json(json.dumps(given).encode(), PATH)


# --- as it is written ---------------------------------------------------------------------------------------


def test_registration_has_all_endpoints_and_their_protocols() -> None:
    assert written(SASL_SSL, OUTSIDE, timestamp_ms=NOW_MS) == {
        "listener_security_protocol_map": {"SASL_SSL": "SASL_SSL", "OUTSIDE": "PLAINTEXT"},
        "endpoints": ["SASL_SSL://[::1]:9093", "OUTSIDE://kafka:9094"],
        "jmx_port": -1,
        "host": "kafka",
        "timestamp": str(NOW_MS),
        "port": 9094,
        "version": 4,
    }


def test_registration_without_plaintext_has_no_host_and_port() -> None:
    fields = written(SASL_SSL)
    assert (fields["host"], fields["port"]) == (None, -1)


def test_registration_beside_0_10_equals_that_of_a_real_broker() -> None:
    made = BrokerRegistration.beside_0_10(LiveBroker(0, (PLAINTEXT,)), NOW_MS)
    node = json.loads((GOLDEN / "01-after-start.json").read_text(encoding="utf-8"))["/brokers/ids/0"]
    assert json.loads(made.to_json()) == json.loads(node["data"])


def test_registration_beside_0_10_has_only_endpoints_it_can_parse() -> None:
    made = BrokerRegistration.beside_0_10(LiveBroker(7, (OUTSIDE, SASL_SSL, PLAINTEXT)))
    fields = json.loads(made.to_json())
    assert fields["endpoints"] == ["SASL_SSL://[::1]:9093", "PLAINTEXT://127.0.0.1:29192"]
    assert (fields["host"], fields["port"], fields["version"]) == ("127.0.0.1", 29192, 3)
    assert "listener_security_protocol_map" not in fields


def test_rack_is_in_the_json_only_if_set() -> None:
    assert "rack" not in written(PLAINTEXT)
    with_rack = BrokerRegistration(LiveBroker(0, (PLAINTEXT,), "r1"))
    assert json.loads(with_rack.to_json())["rack"] == "r1"


@pytest.mark.parametrize("rack", [None, "r1"])
def test_registration_of_several_listeners_is_read_as_written(rack: str | None) -> None:
    made = BrokerRegistration(LiveBroker(7, (PLAINTEXT, SASL_SSL, OUTSIDE), rack), NOW_MS)
    assert BrokerRegistration.from_json(made.to_json(), PATH) == made


# --- as others have written it ------------------------------------------------------------------------------


def test_a_broker_registers_below_a_number() -> None:
    data = BrokerRegistration(LiveBroker.plaintext(1, "h", 9092)).to_json()
    with pytest.raises(CoordinationError, match="/brokers/ids/x"):
        BrokerRegistration.from_json(data, "/brokers/ids/x")


def test_a_registration_of_a_later_release_is_read() -> None:
    found = read(
        listener_security_protocol_map={"INSIDE": "SSL", "PLAINTEXT": "PLAINTEXT"},
        endpoints=["INSIDE://h:1", "PLAINTEXT://h:2"],
        features={},
        host="h",
        port=2,
        version=5,
    )
    assert found.address == BrokerAddress(7, "h", 2)
    assert found.broker.endpoints[0] == BrokerEndpoint("INSIDE", SecurityProtocol.SSL, "h", 1)


@pytest.mark.parametrize("version", [2, 3])
def test_endpoints_before_0_10_2_are_named_as_their_protocols(version: int) -> None:
    found = read(endpoints=["PLAINTEXT://127.0.0.1:29192", "SASL_SSL://[::1]:9093"], version=version)
    assert found.broker.endpoints == (PLAINTEXT, SASL_SSL)


def test_a_registration_of_an_early_release_is_read() -> None:
    found = read(version=1, host="h", port=9092)
    assert found.broker == LiveBroker.plaintext(7, "h", 9092)


def test_a_broker_without_a_plain_listener_has_no_address() -> None:
    assert read(version=3, endpoints=["SSL://h:1"]).address is None


def test_endpoints_that_cannot_be_parsed_are_left_out() -> None:
    found = read(
        version=4,
        listener_security_protocol_map={"NEW": "QUIC", "OUTSIDE": "PLAINTEXT"},
        endpoints=["NEW://h:1", "nonsense", "OUTSIDE://kafka:9094"],
    )
    assert found.broker.endpoints == (OUTSIDE,)


def test_host_and_port_count_where_no_endpoint_can_be_parsed() -> None:
    found = read(version=3, endpoints=["nonsense"], host="h", port=9092)
    assert found.broker == LiveBroker.plaintext(7, "h", 9092)


def test_last_of_two_endpoints_of_one_listener_counts() -> None:
    found = read(version=3, endpoints=["SSL://a:1", "SSL://b:2"])
    assert [endpoint.host for endpoint in found.broker.endpoints] == ["b"]


@pytest.mark.parametrize("protocols", [None, [], "SSL"])
def test_registration_with_an_invalid_map_cannot_be_read(protocols: object) -> None:
    with pytest.raises(CoordinationError, match="listener_security_protocol_map"):
        read(version=4, listener_security_protocol_map=protocols, endpoints=["A://h:1"])


# --- all of them --------------------------------------------------------------------------------------------


def test_brokers_come_in_the_order_of_their_ids(store: MemoryStore) -> None:
    assert list(live_brokers(store)) == [2, 10]
    assert addresses_with(SecurityProtocol.PLAINTEXT, store) == ["h:9002", "h:9010"]


def test_without_any_registration_there_are_none() -> None:
    assert live_brokers(MemoryZooKeeper().connect()) == {}


def test_a_broker_without_a_listener_in_plain_text_has_no_address(store: MemoryStore) -> None:
    secured = b'{"jmx_port":-1,"timestamp":"0","endpoints":["SSL://h:1"],"host":null,"version":3,"port":-1}'
    store.write(paths.broker_path(2), secured)
    assert list(live_brokers(store)) == [2, 10]
    assert addresses_with(SecurityProtocol.PLAINTEXT, store) == ["h:9010"]
    assert addresses_with(SecurityProtocol.SSL, store) == ["h:1"]
