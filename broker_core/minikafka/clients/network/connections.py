"""All connections of one client: one for each address and pool, made when first used.

A broker serves the requests of one connection in order, so a fetch that waits for data delays every request
behind it: requests for different purposes use different pools.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from enum import Enum

from minikafka.base.errors import NetworkError
from minikafka.base.ids import BrokerAddress
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
                connection = BrokerConnection(name, endpoint.host, endpoint.port, self._config)
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
