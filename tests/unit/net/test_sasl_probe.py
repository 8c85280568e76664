"""``net.sasl_probe``: whether a listener that closes connections demands a login."""

from __future__ import annotations

import pytest

from minikafka.net.interfaces import Exchange
from minikafka.net.memory import Fault, MemoryNetwork
from minikafka.net.sasl_probe import demanded_mechanisms
from tests.support.broker_harness import FIRST_PORT, BrokerHarness
from tests.support.broker_harness import HOST as PLAIN_HOST
from tests.support.sasl_broker import HOST, NEW, PORT, TABLES, SaslBroker


@TABLES
def test_listener_with_sasl_tells_its_mechanisms(table: dict[int, tuple[int, int]]) -> None:
    network = MemoryNetwork()
    broker = SaslBroker(network, table)
    found = demanded_mechanisms(network, HOST, PORT, "c")
    assert found == ("PLAIN", "SCRAM-SHA-256")
    assert [header.client_id for header in broker.seen] == ["c", "c"]
    network.run()
    assert not network._connections


def test_listener_without_sasl_is_known_as_such() -> None:
    brokers = BrokerHarness()
    assert demanded_mechanisms(brokers.network, PLAIN_HOST, FIRST_PORT + 1, "c") == ()


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.CUT_REQUEST, Fault.DROP_RESPONSE])
def test_listener_that_does_not_answer_is_unknown(fault: Fault) -> None:
    network = MemoryNetwork()
    SaslBroker(network, NEW)
    network.inject(HOST, PORT, fault)
    assert demanded_mechanisms(network, HOST, PORT, "c") == ()


def test_listener_of_another_protocol_is_unknown() -> None:
    class Silly:
        def on_request(self, exchange: Exchange, frame: memoryview) -> None:
            exchange.respond([b"HTTP/1.1 400 Bad Request"])

    network = MemoryNetwork()
    network.listen(HOST, PORT, Silly())
    assert demanded_mechanisms(network, HOST, PORT, "c") == ()
