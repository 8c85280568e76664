"""All connections of one client: one for each address and pool, made when first used.

A broker serves the requests of one connection in order, so a fetch that waits for data delays every request
behind it: requests for different purposes use different pools.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from enum import Enum

from minikafka.base.errors import NetworkError
from minikafka.base.ids import BrokerAddress
from minikafka.clients.metrics.connections import ConnectionReadings, NodeMetrics, connection_metrics
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.bootstrap import HostPort
from minikafka.clients.network.broker_connection import BrokerConnection, ConnectionConfig


class ConnectionPool(Enum):
    """The shared pools. Requests for different purposes do not share a connection."""

    CONTROL = "control"
    FETCH = "fetch"
    PRODUCE = "produce"

    __hash__ = object.__hash__
    """By identity: ``Enum`` hashes the name, in Python, at every look-up of a connection."""


class DedicatedConnectionPool:
    """The connections of one user, whose waits delay no other. ``ClusterClient.close_pool`` closes them."""


AnyPool = ConnectionPool | DedicatedConnectionPool


class BrokerConnections:
    """The connections of one client. Thread-safe. With ``one_connection`` all shared pools use one."""

    def __init__(self, config: ConnectionConfig, *, one_connection: bool = False) -> None:
        self._config = config
        self._one_connection = one_connection
        self._lock = threading.Lock()
        self._connections: dict[tuple[str, int, AnyPool], BrokerConnection] = {}
        self._nodes: dict[tuple[str, int], NodeMetrics] = {}
        """The metrics of each address."""
        self._gone = NodeMetrics()
        """The totals of addresses without a connection any more."""
        self._closed = False

    def get(
        self,
        endpoint: HostPort | BrokerAddress,
        name: str | BrokerAddress,
        pool: AnyPool = ConnectionPool.CONTROL,
    ) -> BrokerConnection:
        """Return the connection to ``endpoint``, which messages call ``name``. Raises NetworkError after
        ``close``.
        """
        if self._one_connection and isinstance(pool, ConnectionPool):
            pool = ConnectionPool.CONTROL
        with self._lock:
            if self._closed:
                raise NetworkError("the client is closed", str(name))
            connection = self._connections.get((endpoint.host, endpoint.port, pool))
            if connection is None:
                metrics = self._nodes.setdefault((endpoint.host, endpoint.port), NodeMetrics())
                connection = BrokerConnection(name, endpoint.host, endpoint.port, self._config, metrics)
                self._connections[endpoint.host, endpoint.port, pool] = connection
            # A bootstrap address turns out to be a broker of the metadata.
            connection.name = name
            return connection

    def keep(self, endpoints: Collection[HostPort]) -> None:
        """Close the connections to all other endpoints."""
        with self._lock:
            others = [key for key in self._connections if key[:2] not in endpoints]
        self._remove(others)

    def close_pool(self, pool: DedicatedConnectionPool) -> None:
        """Close the connections of ``pool``; requests in flight on them fail with a NetworkError."""
        with self._lock:
            members = [key for key in self._connections if key[2] is pool]
        self._remove(members)

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long, also those to brokers no longer in use."""
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.close_idle()

    def close(self) -> None:
        """Close all connections for good; requests in flight fail with a NetworkError."""
        with self._lock:
            self._closed = True
            everything = list(self._connections)
        self._remove(everything)

    def _remove(self, keys: Collection[tuple[str, int, AnyPool]]) -> None:
        with self._lock:
            removed = [self._connections.pop(key) for key in keys if key in self._connections]
        for connection in removed:
            connection.close()
        with self._lock:
            used = {key[:2] for key in self._connections}
            for address in [address for address in self._nodes if address not in used]:
                self._gone.add(self._nodes.pop(address))

    def metrics(self, prefix: str, brokers: Iterable[BrokerAddress] = ()) -> Metrics:
        """Return the metrics of all connections and of each broker, named for a kind of client.

        One of ``brokers``, or one that was named, is ``node-ID``. An address of the bootstrap list that is
        none of a known broker is ``node--1``, ``node--2``, …, as in Kafka's clients.
        """
        now_ms = self._config.clock.monotonic_ms()
        with self._lock:
            connections, nodes = list(self._connections.items()), dict(self._nodes)
        open_now = sum(connection.connected for _, connection in connections)
        names = {(broker.host, broker.port): f"node-{broker.broker_id}" for broker in brokers}
        for (host, port, _), connection in connections:
            if isinstance(connection.name, BrokerAddress):
                names[host, port] = f"node-{connection.name.broker_id}"
        unknown = (address for address in nodes if address not in names)
        names |= {address: f"node-{-number}" for number, address in enumerate(unknown, 1)}
        readings = ConnectionReadings((*nodes.values(), self._gone), open_now, now_ms)
        return connection_metrics(prefix, readings, [(names[at], node) for at, node in nodes.items()], now_ms)
