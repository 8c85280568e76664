"""A client's connections to a cluster: bootstrap list, metadata, broker connections, retries and deadlines.

Every client is built on this package. Imports ``net``, ``wire`` and ``base``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.network.broker_connection import ConnectionConfig
    from minikafka.clients.network.cluster import ClusterClient

__all__ = ["ClusterClient", "ConnectionConfig"]

__getattr__ = lazy_exports(
    __name__,
    {
        "ClusterClient": "minikafka.clients.network.cluster",
        "ConnectionConfig": "minikafka.clients.network.broker_connection",
    },
)
