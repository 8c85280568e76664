"""Connections kept for as long as a Python worker lives.

Spark makes a reader or writer anew for every task, but uses its Python workers again, so module globals are
the one place where a connection survives. One ``ClusterClient`` is kept for each purpose, addresses and
connection settings; it is safe to use from several threads. A worker that was forked from one with
connections starts with none.

A producer is kept, too, and used by one task at a time: its number among the broker's idempotent producers
would otherwise be another one in each task of each micro-batch. One whose task has failed is not used again.

A worker reads over one connection to each broker. One that was idle for ``kafka.connections.max.idle.ms`` is
closed by the next task that the worker gets; a worker that gets none for a minute is ended by Spark.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minikafka.base.errors import MinikafkaError
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka.kafka_options import ConnectionOptions

if TYPE_CHECKING:
    from minikafka.clients.produce import BatchingConfig, BatchingProducer

KEPT_MAX = 8
"""Clusters that one worker keeps; the one used longest ago goes first."""


_Key = tuple[bool, str, ConnectionOptions]
_lock = threading.Lock()
_clusters: dict[_Key, ClusterClient] = {}
_producers: dict[tuple[ClusterClient, BatchingConfig], BatchingProducer] = {}
_pid = os.getpid()


def reading(bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    """The kept cluster to read from, made when there is none. No connection is opened here.

    It creates no topics: a deleted one would come back empty, and its records would be lost without a word.
    """
    return _kept(False, bootstrap_servers, connection)


def writing(bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    """The kept cluster to write to, where topics are created as the brokers are configured."""
    return _kept(True, bootstrap_servers, connection)


@contextlib.contextmanager
def producing(cluster: ClusterClient, config: BatchingConfig) -> Iterator[BatchingProducer]:
    """A producer for the kept ``cluster``, for one task; kept for the next one if this one ends well."""
    from minikafka.clients.produce import BatchingProducer  # only here, as readers need none

    with _lock:
        producer = _producers.pop((cluster, config), None)
    if producer is None:
        producer = BatchingProducer(cluster, config)
    try:
        yield producer
    except BaseException:
        # What is not on its way yet stays here: the task has failed, and Spark will run it again or give up.
        producer.close(timeout_ms=0)
        raise
    with _lock:
        if cluster in _clusters.values() and (cluster, config) not in _producers:
            _producers[cluster, config] = producer
            return
    producer.close()


def _kept(creates_topics: bool, bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    global _pid
    key = (creates_topics, bootstrap_servers, connection)
    with _lock:
        if _pid != os.getpid():
            # The sockets belong to the parent: dropped here, not closed politely.
            _clusters.clear()
            _producers.clear()
            _pid = os.getpid()
        found = _clusters.pop(key, None)
        if found is None:
            found = ClusterClient(
                bootstrap_servers,
                creates_topics=creates_topics,
                client_id=connection.client_id,
                request_timeout_ms=connection.request_timeout_ms,
                connections_max_idle_ms=connection.connections_max_idle_ms,
                metadata_max_age_ms=_metadata_max_age_ms(creates_topics, connection),
                # Not where it writes: what waits for replicas would hold up the question for a new leader.
                one_connection=not creates_topics,
            )
        _clusters[key] = found
        for kept in _clusters.values():
            kept.close_idle()
        while len(_clusters) > KEPT_MAX:
            _close(_clusters.pop(next(iter(_clusters))))
        return found


def _metadata_max_age_ms(writes: bool, connection: ConnectionOptions) -> int:
    """Of what a task knows; the planner of a read keeps its own time.

    A second at least: a batch could not leave before what is known of its leader is too old.
    """
    age_ms = connection.metadata_max_age_ms
    return max(age_ms, 1_000) if writes and age_ms is not None else 300_000


def close_all() -> None:
    """Close every kept cluster, as at the end of a streaming query's runner."""
    with _lock:
        while _clusters:
            _close(_clusters.popitem()[1])


def _close(kept: ClusterClient) -> None:
    for key in [key for key in _producers if key[0] is kept]:
        _producers.pop(key).close(timeout_ms=0)
    with contextlib.suppress(MinikafkaError, OSError):
        kept.close()
