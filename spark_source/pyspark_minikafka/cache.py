"""Connections kept for as long as a Python worker lives.

Spark creates a reader or writer for every task but reuses its Python workers, so only module globals keep a
connection open. One ``ClusterClient`` is kept for each purpose, addresses and connection settings; it is safe
to use from several threads. A worker that was forked from one with connections starts with none.

Producers are kept, too, each used by one task at a time: otherwise every task of every micro-batch would need
a new producer id from the brokers. A producer whose task has failed is not used again.

A worker reads over one connection to each broker. A connection that was idle for
``kafka.connections.max.idle.ms`` is closed by the worker's next task; Spark ends a worker without a task for
a minute.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError, ConfigErrors, MinikafkaError
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka.options.kafka_options import SERVERS, ConnectionOptions

if TYPE_CHECKING:
    from minikafka.clients.produce import BatchingConfig, BatchingProducer

KEPT_MAX = 8
"""The most clusters that one worker keeps; the least recently used one is closed first."""
_CHECK_MS = 4_000
_CHECK_CONNECT_MS = 3_000
"""Limits of ``check_login``, for all brokers and for one connection: the user waits for it in ``load()``,
five seconds at most, as no other broker is tried in the last half of the first.
"""


class _Use(Enum):
    READS = "reads"
    WRITES = "writes"
    STAGES = "stages"


_Key = tuple[_Use, str, ConnectionOptions]
_lock = threading.Lock()
_clusters: dict[_Key, ClusterClient] = {}
_producers: dict[tuple[ClusterClient, BatchingConfig], BatchingProducer] = {}
_accepted: set[tuple[str, ConnectionOptions]] = set()
"""The servers that have accepted a login: each micro-batch that is written would log in once more."""
_pid = os.getpid()


def reading(bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    """Return the cached cluster to read from, created when missing. No connection is opened here.

    It creates no topics: a deleted one would reappear empty, and its records would be lost silently.
    """
    return _cached(_Use.READS, bootstrap_servers, connection)


def writing(bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    """Return the cached cluster to write to. It creates topics, if the brokers are configured to do so."""
    return _cached(_Use.WRITES, bootstrap_servers, connection)


def staging(bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    """Return the cached cluster of writes exactly once. It creates no topics: the staging topic of a sink has
    settings of its own.
    """
    return _cached(_Use.STAGES, bootstrap_servers, connection)


@contextlib.contextmanager
def producing(cluster: ClusterClient, config: BatchingConfig) -> Iterator[BatchingProducer]:
    """Yield a producer on the cached ``cluster`` for one task. It is cached again if the block succeeds."""
    from minikafka.clients.produce import BatchingProducer  # only here, as readers need none

    with _lock:
        producer = _producers.pop((cluster, config), None)
    if producer is None:
        producer = BatchingProducer(cluster, config)
    try:
        yield producer
    except BaseException:
        # Unsent batches are dropped: the task has failed, and Spark will run it again or give up.
        producer.close(timeout_ms=0)
        raise
    with _lock:
        if cluster in _clusters.values() and (cluster, config) not in _producers:
            _producers[cluster, config] = producer
            return
    producer.close()


def _cached(use: _Use, bootstrap_servers: str, connection: ConnectionOptions) -> ClusterClient:
    global _pid
    key = (use, bootstrap_servers, connection)
    with _lock:
        if _pid != os.getpid():
            # The sockets belong to the parent process: drop them without closing.
            _clusters.clear()
            _producers.clear()
            _pid = os.getpid()
        found = _clusters.pop(key, None)
        if found is None:
            found = _client(use, bootstrap_servers, connection)
        _clusters[key] = found
        for kept in _clusters.values():
            kept.close_idle()
        while len(_clusters) > KEPT_MAX:
            _close(_clusters.pop(next(iter(_clusters))))
        return found


def check_login(bootstrap_servers: str, connection: ConnectionOptions) -> None:
    """Raise AuthenticationFailed if the brokers refuse this client: at once, instead of in every task. Raise
    IdentityProviderUnreachable if there is no token, or no AWS credentials, for the login.

    Brokers that do not answer are no error: a stream may start while they are away. Those that have accepted
    it are not asked again by this process.
    """
    if (bootstrap_servers, connection) in _accepted:
        return
    with _client(_Use.READS, bootstrap_servers, connection, connect_timeout_ms=_CHECK_CONNECT_MS) as cluster:
        if not cluster.check_login(_CHECK_MS):
            return
    with _lock:
        if len(_accepted) >= KEPT_MAX:
            _accepted.clear()
        _accepted.add((bootstrap_servers, connection))


def _client(
    use: _Use, bootstrap_servers: str, connection: ConnectionOptions, connect_timeout_ms: int = 10_000
) -> ClusterClient:
    try:
        return ClusterClient(
            bootstrap_servers,
            security=connection.security,
            creates_topics=use is _Use.WRITES,
            client_id=connection.client_id,
            request_timeout_ms=connection.request_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            connections_max_idle_ms=connection.connections_max_idle_ms,
            metadata_max_age_ms=_metadata_max_age_ms(use is not _Use.READS, connection),
            # Not for writes: a produce request that waits for replicas would delay a metadata request.
            one_connection=use is _Use.READS,
            option=SERVERS,
        )
    except ConfigError as error:
        raise _at_this_host(error) from None


def _at_this_host(error: ConfigError) -> ConfigErrors:
    """Return the faults of key stores, which this host cannot use, with its name."""
    advice = f" (on host {platform.node()}: files must be on the driver and on every executor)"
    return ConfigErrors(
        ConfigError(
            fault.name, fault.value, fault.allowed + (advice if fault.name.endswith(".location") else "")
        )
        for fault in error.faults
    )


def _metadata_max_age_ms(writes: bool, connection: ConnectionOptions) -> int:
    """Return the age limit of a task's metadata; the planner of a read has its own.

    At least one second: otherwise the metadata could expire before a batch is sent.
    """
    age_ms = connection.metadata_max_age_ms
    return max(age_ms, 1_000) if writes and age_ms is not None else 300_000


def close_all() -> None:
    """Close every cached cluster, at the end of a streaming query's runner."""
    with _lock:
        _accepted.clear()
        while _clusters:
            _close(_clusters.popitem()[1])


def _close(kept: ClusterClient) -> None:
    for key in [key for key in _producers if key[0] is kept]:
        _producers.pop(key).close(timeout_ms=0)
    with contextlib.suppress(MinikafkaError, OSError):
        kept.close()
