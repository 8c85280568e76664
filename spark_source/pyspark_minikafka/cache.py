"""Connections kept for as long as a Python worker lives.

Spark makes a reader or writer anew for every task, but uses its Python workers again, so module globals are
the one place where a connection survives. One ``Cluster`` is kept for each purpose, addresses and
connection settings; it is safe to use from several threads. A worker that was forked from one with
connections starts with none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable

from minikafka.base.errors import MinikafkaError
from minikafka.clients.cluster import Cluster
from minikafka.clients.metadata import ClusterMetadata
from pyspark_minikafka.kafka_options import ConnectionOptions

KEPT_MAX = 8
"""Clusters that one worker keeps; the one used longest ago goes first."""


class ReadingCluster(Cluster):
    """A cluster of which nothing is asked that could create a topic.

    Brokers with ``auto.create.topics.enable`` make a topic whose metadata is asked for by name. A reader
    that did so would bring a deleted topic back, empty, and its records would be lost without a word. So
    this one always asks for all topics, and keeps the answer as long as the base class keeps a topic's.
    """

    def __init__(self, bootstrap: str, *, client_id: str, request_timeout_ms: int) -> None:
        super().__init__(bootstrap, client_id=client_id, request_timeout_ms=request_timeout_ms)
        self._seen: ClusterMetadata | None = None
        self._doubtful: set[str] = set()

    def metadata(
        self, topics: Iterable[str] | None = None, *, refresh: bool = False, timeout_ms: int | None = None
    ) -> ClusterMetadata:
        seen = self._seen
        if topics is not None and not refresh and seen is not None:
            wanted = set(topics)
            if wanted <= set(seen.topics) and not wanted & self._doubtful:
                return seen
        # Cleared before asking: what another thread finds wrong meanwhile stays in doubt.
        self._doubtful = set()
        self._seen = super().metadata(None, timeout_ms=timeout_ms)
        return self._seen

    def invalidate(self, topic: str) -> None:
        super().invalidate(topic)
        self._doubtful.add(topic)


_Key = tuple[type[Cluster], str, ConnectionOptions]
_lock = threading.Lock()
_clusters: dict[_Key, Cluster] = {}
_pid = os.getpid()


def reading(bootstrap_servers: str, connection: ConnectionOptions) -> Cluster:
    """The kept cluster to read from, made when there is none. No connection is opened here."""
    return _kept(ReadingCluster, bootstrap_servers, connection)


def writing(bootstrap_servers: str, connection: ConnectionOptions) -> Cluster:
    """The kept cluster to write to, where topics are created as the brokers are configured."""
    return _kept(Cluster, bootstrap_servers, connection)


def _kept(kind: type[Cluster], bootstrap_servers: str, connection: ConnectionOptions) -> Cluster:
    global _pid
    key = (kind, bootstrap_servers, connection)
    with _lock:
        if _pid != os.getpid():
            # The sockets belong to the parent: dropped here, not closed politely.
            _clusters.clear()
            _pid = os.getpid()
        found = _clusters.pop(key, None)
        if found is None:
            found = kind(
                bootstrap_servers,
                client_id=connection.client_id,
                request_timeout_ms=connection.request_timeout_ms,
            )
        _clusters[key] = found
        while len(_clusters) > KEPT_MAX:
            _close(_clusters.pop(next(iter(_clusters))))
        return found


def close_all() -> None:
    """Close every kept cluster, as at the end of a streaming query's runner."""
    with _lock:
        while _clusters:
            _close(_clusters.popitem()[1])


def _close(kept: Cluster) -> None:
    with contextlib.suppress(MinikafkaError, OSError):
        kept.close()
