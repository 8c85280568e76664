"""Clusters of this machine: in tests, in notebooks, under ``minikafka up`` and below Spark's data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    # Every pytest run of a user imports this package for its plugin: the cluster comes only when asked for.
    if name == "Cluster":
        from minikafka.embedded.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
