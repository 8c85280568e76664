"""``clients/network/connections``: one connection for each address and pool."""

from __future__ import annotations

import pytest

from minikafka.base.errors import NetworkError
from minikafka.clients.network.bootstrap import HostPort
from minikafka.clients.network.broker_connection import BrokerConnection, ConnectionConfig
from minikafka.clients.network.connections import BrokerConnections, ConnectionPool, DedicatedConnectionPool
from minikafka.clients.network.retry import Deadline
from tests.support.broker_harness import FIRST_PORT, HOST, BrokerHarness

FIRST, SECOND = (HostPort(HOST, FIRST_PORT + broker) for broker in (1, 2))


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2)


def connections(brokers: BrokerHarness, *, one_connection: bool = False) -> BrokerConnections:
    config = ConnectionConfig(brokers.network, brokers.clock, brokers.waiter, "tester")
    return BrokerConnections(config, one_connection=one_connection)


def connected(brokers: BrokerHarness, connection: BrokerConnection) -> BrokerConnection:
    connection.connect(Deadline(brokers.clock, 1_000))
    return connection


def test_each_pool_and_address_has_its_own_connection(brokers: BrokerHarness) -> None:
    kept = connections(brokers)
    pools = (ConnectionPool.CONTROL, ConnectionPool.FETCH, DedicatedConnectionPool())
    found = [kept.get(endpoint, "a broker", pool) for endpoint in (FIRST, SECOND) for pool in pools]
    assert len(set(found)) == 6
    assert kept.get(FIRST, "a broker") is found[0]


def test_a_connection_takes_the_newest_name_of_its_broker(brokers: BrokerHarness) -> None:
    kept = connections(brokers)
    connection = kept.get(FIRST, "bootstrap server memory:9001")
    kept.get(FIRST, "broker 1 at memory:9001")
    assert connection.name == "broker 1 at memory:9001"


def test_one_connection_serves_all_shared_pools_but_no_dedicated_one(brokers: BrokerHarness) -> None:
    kept = connections(brokers, one_connection=True)
    control = kept.get(FIRST, "a broker")
    assert kept.get(FIRST, "a broker", ConnectionPool.FETCH) is control
    assert kept.get(FIRST, "a broker", DedicatedConnectionPool()) is not control


def test_connections_to_brokers_no_longer_in_use_are_closed(brokers: BrokerHarness) -> None:
    kept = connections(brokers)
    first, second = (connected(brokers, kept.get(e, "a broker")) for e in (FIRST, SECOND))
    kept.keep({SECOND})
    assert (first.connected, second.connected) == (False, True)
    assert kept.get(FIRST, "a broker") is not first


def test_a_closed_pool_leaves_the_other_connections_open(brokers: BrokerHarness) -> None:
    kept, pool = connections(brokers), DedicatedConnectionPool()
    shared, own = (connected(brokers, kept.get(FIRST, "a", p)) for p in (ConnectionPool.CONTROL, pool))
    kept.close_pool(pool)
    assert (shared.connected, own.connected) == (True, False)


def test_closed_connections_are_not_opened_again(brokers: BrokerHarness) -> None:
    kept = connections(brokers)
    connection = connected(brokers, kept.get(FIRST, "broker 1"))
    kept.close()
    kept.close()
    assert not connection.connected
    with pytest.raises(NetworkError, match="broker 1: the client is closed"):
        kept.get(FIRST, "broker 1")
