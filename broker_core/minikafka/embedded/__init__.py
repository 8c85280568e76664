"""Clusters on this machine: for tests, notebooks, ``minikafka up`` and Spark's data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

__all__ = ["Cluster"]

# Every pytest run of a user imports this package for its plugin, and most need no cluster.
__getattr__ = lazy_exports(__name__, {"Cluster": "minikafka.embedded.cluster"})
