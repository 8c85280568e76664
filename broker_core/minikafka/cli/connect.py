"""From ``--bootstrap`` or ``--data-dir`` to a connected client."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ConfigError, MinikafkaError, NetworkError
from minikafka.base.ids import OFFSETS_TOPIC, check_topic_name, host_port
from minikafka.cli.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    check_data_dir,
    check_has_cluster,
    make_data_dir,
)
from minikafka.cli.output import note
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.group_stores import GroupStores
    from minikafka.embedded.local import LocalCluster
    from minikafka.registry.store import Store

CLIENT_ID = "minikafka-cli"
REACH_TIMEOUT_MS = 5_000
UNKNOWN_TOPIC_TIMEOUT_MS = 800
"""Whoever types a name wants to know soon that there is no such topic (any more)."""


@contextlib.contextmanager
def cluster_client(
    bootstrap: str | None, data_dir: Path | None, *, writes: bool = False
) -> Iterator[ClusterClient]:
    """A client of the cluster that the options name; closed at the end of the block.

    Only a command that ``writes`` makes what is not there: a cluster in ``data_dir``, or a topic.
    """
    cluster = ClusterClient(
        bootstrap_address(bootstrap, data_dir, writes=writes),
        client_id=CLIENT_ID,
        creates_topics=writes,
        unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS,
    )
    try:
        # Whoever types an address wants to know soon that nobody is there; requests may take longer.
        try:
            cluster.metadata(None, timeout_ms=REACH_TIMEOUT_MS)
        except NetworkError as error:
            if data_dir is None:
                raise
            raise MinikafkaError(
                f"{error}, where the cluster of {data_dir} says that it is (advertised.listeners); "
                "name another of its addresses by --bootstrap"
            ) from error
        yield cluster
    finally:
        cluster.close()


def bootstrap_address(bootstrap: str | None, data_dir: Path | None, *, writes: bool) -> str:
    """The bootstrap list. A data directory wins, as MINIKAFKA_BOOTSTRAP may be set for everything else."""
    if data_dir is None:
        return bootstrap or DEFAULT_BOOTSTRAP
    _check_one(bootstrap, data_dir)
    return _local(data_dir, writes=writes).bootstrap_servers


def _check_one(bootstrap: str | None, data_dir: Path) -> None:
    if is_typed(bootstrap):
        raise ConfigError(
            "--bootstrap", bootstrap, f"--data-dir {data_dir} names a cluster too: give one of them"
        )


def is_typed(bootstrap: str | None) -> bool:
    """Whether it was given as an option, and not by the environment."""
    return bool(bootstrap) and bootstrap != os.environ.get(BOOTSTRAP_VARIABLE)


@contextlib.contextmanager
def zookeeper_store(zookeeper: str | None, bootstrap: str | None, data_dir: Path | None) -> Iterator[Store]:
    """ZooKeeper of the cluster that the options name, where there is one; closed at the end of the block."""
    if is_typed(bootstrap):
        reason = "brokers do not tell: give --zookeeper HOST:PORT/CHROOT"
        if zookeeper:
            reason = f"--zookeeper {zookeeper} names a cluster too: give one of them"
        raise ConfigError("--bootstrap", bootstrap, reason)
    if zookeeper and data_dir is not None:
        raise ConfigError(
            "--zookeeper", zookeeper, f"--data-dir {data_dir} names a cluster too: give one of them"
        )
    from minikafka.registry.entity_configs import check_cluster as check_coordinated
    from minikafka.registry.zookeeper import ZooKeeperStore

    if zookeeper:
        connect = zookeeper
    elif data_dir is not None:
        connect = _local(data_dir, writes=False).zookeeper_connect
    else:
        raise ConfigError(
            "--zookeeper", None, "give the address that `minikafka up` printed, or --data-dir D"
        )
    store = ZooKeeperStore(connect, connect_timeout_ms=REACH_TIMEOUT_MS, make_chroot=False)
    try:
        check_coordinated(store, connect)
        yield store
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class GroupAccess:
    """The groups of a cluster: ``cluster`` is None where its brokers cannot be asked, which ``why`` tells;
    ``store`` where nobody said where its ZooKeeper is.
    """

    cluster: ClusterClient | None
    store: Store | None
    why: str = ""

    @property
    def stores(self) -> GroupStores:
        """All that can be asked."""
        from minikafka.clients.admin.group_stores import GroupStores
        from minikafka.clients.admin.groups import GroupAdmin
        from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups
        from minikafka.registry.paths import topic_path

        kept = self.store is None or self.store.exists(topic_path(OFFSETS_TOPIC)) is not None
        return GroupStores(
            None if self.cluster is None else GroupAdmin(self.cluster),
            None if self.store is None else ZooKeeperGroups(self.store),
            keeps_offsets=kept,
        )

    @property
    def brokers(self) -> ClusterClient:
        """A client of the brokers. MinikafkaError where they cannot be asked."""
        if self.cluster is None:
            raise MinikafkaError(f"the brokers have to be asked: {self.why}")
        return self.cluster


@contextlib.contextmanager
def group_access(
    zookeeper: str | None, bootstrap: str | None, data_dir: Path | None
) -> Iterator[GroupAccess]:
    """The groups of the cluster that the options name, at its brokers and, where that is known, in ZooKeeper.

    With ``zookeeper`` the brokers are those that are registered there, unless some were named as an option.
    """
    with contextlib.ExitStack() as stack:
        if data_dir is not None:
            _check_one(bootstrap, data_dir)
            store = stack.enter_context(zookeeper_store(zookeeper, None, data_dir))
            yield GroupAccess(stack.enter_context(cluster_client(None, data_dir)), store)
        elif not zookeeper:
            yield GroupAccess(stack.enter_context(cluster_client(bootstrap, None)), None)
        else:
            store = stack.enter_context(zookeeper_store(zookeeper, None, None))
            if is_typed(bootstrap):
                yield GroupAccess(stack.enter_context(cluster_client(bootstrap, None)), store)
                return
            yield _beside(store, str(zookeeper), stack)


def _beside(store: Store, zookeeper: str, stack: contextlib.ExitStack) -> GroupAccess:
    """ZooKeeper with the brokers that are registered there, as far as they can be asked."""
    found = _registered(store)
    if not found:
        return GroupAccess(None, store, f"none that takes plain text is registered at {zookeeper}")
    try:
        return GroupAccess(stack.enter_context(cluster_client(found, None)), store)
    except NetworkError as error:
        return GroupAccess(None, store, str(error))


def _registered(store: Store) -> str:
    """The bootstrap list of the brokers that live, empty where there is none."""
    from minikafka.clients.admin.zookeeper.groups import live_addresses

    return ",".join(host_port(one.host, one.port) for one in live_addresses(store))


def _local(data_dir: Path, *, writes: bool) -> LocalCluster:
    (check_data_dir if writes else check_has_cluster)(data_dir)
    make_data_dir(data_dir)
    from minikafka.embedded import local, owners

    # For as long as this command runs, not the nearest JVM above it, which may be the editor.
    itself = owners.owner_of(os.getpid())
    assert itself is not None
    if local.running(str(data_dir)) is None:
        note(f"minikafka: starting a local Kafka cluster in {data_dir.absolute()} …")
    return local.ensure(str(data_dir), [itself], lambda state: note(f"minikafka: {state}"))


def existing_topic(admin: Admin, name: str) -> TopicMetadata:
    """What is known of a topic. Raises BrokerError where there is none, and never makes one."""
    check_topic_name(name)
    found = admin.describe_topics([name])[name]
    if isinstance(found, BrokerError):
        raise found
    return found
