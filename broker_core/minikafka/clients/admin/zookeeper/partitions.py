"""Partitions in ZooKeeper: the way for administration that brokers before Kafka 2.4 have no requests for.

Elections and reassignments are requested by znodes (``elections``, ``reassignments``); throttles are settings
there, of which running brokers are notified.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.client_quotas import ZooKeeperConfigs
from minikafka.clients.admin.log_dirs import LogDir
from minikafka.clients.admin.partitions import (
    ElectionOutcome,
    ElectionRound,
    LeaderAndIsr,
    LogDirErrors,
    Replicas,
    Settings,
)
from minikafka.clients.admin.zookeeper import elections, reassignments
from minikafka.registry import paths
from minikafka.registry.brokers import live_brokers
from minikafka.registry.store import Store
from minikafka.registry.topics import read_states
from minikafka.registry.znodes import children
from minikafka.wire.apis.elect_leaders import ElectionType


class ZooKeeperPartitions:
    """The partitions in ZooKeeper."""

    may_lag = False
    may_hide = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._configs = ZooKeeperConfigs(store)

    def topics(self) -> Collection[str]:
        """See ``PartitionsBackend``."""
        return children(self._store, paths.BROKER_TOPICS)

    def topics_to_delete(self) -> set[str]:
        """See ``PartitionsBackend``."""
        return zookeeper_metadata.topics_to_delete(self._store)

    def assigned(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """See ``PartitionsBackend``."""
        return zookeeper_metadata.assigned(self._store, topics)

    def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """See ``PartitionsBackend``."""
        return {
            tp: LeaderAndIsr(state.leader if state.leader >= 0 else None, state.isr)
            for tp, state in read_states(self._store, partitions).items()
        }

    def live_brokers(self) -> Mapping[int, str | None]:
        """See ``PartitionsBackend``."""
        return {number: live.broker.rack for number, live in sorted(live_brokers(self._store).items())}

    def under_way(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """See ``PartitionsBackend``: those that were requested here, not of brokers."""
        return reassignments.under_way(self._store)

    def check_reassignment(self, wanted: Replicas) -> None:
        """See ``PartitionsBackend``. Raises ConfigError (too many for a znode) or CoordinationError."""
        reassignments.check(self._store, wanted)

    def reassign(self, wanted: Replicas) -> None:
        """See ``PartitionsBackend``."""
        reassignments.request(self._store, wanted)

    def elect(
        self,
        partitions: Collection[TopicPartition],
        kind: ElectionType,
        timeout_s: float,
        report: Callable[[ElectionRound], None],
    ) -> ElectionOutcome:
        """See ``PartitionsBackend``. Raises ConfigError for an unclean election, which needs the brokers."""
        if kind is ElectionType.UNCLEAN:
            raise ConfigError("--unclean", "given", "must be asked of the brokers: leave out --zookeeper")
        return ElectionOutcome(elections.elect(self._store, partitions, timeout_s, report), frozenset())

    def settings(self, kind: str, names: Iterable[str] | None = None) -> dict[str, Settings]:
        """See ``PartitionsBackend``. Raises CoordinationError if one of them is invalid."""
        chosen = children(self._store, f"/config/{kind}") if names is None else names
        return {name: self._configs.read(kind, name) for name in chosen}

    def change_settings(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """See ``PartitionsBackend``."""
        self._configs.change(kind, name, changes)

    def log_dirs(self, brokers: Iterable[int]) -> list[LogDir]:
        """See ``PartitionsBackend``. Raises ConfigError: only brokers know them."""
        raise _no_log_dirs()

    def move_logs(self, broker_id: int, log_dirs: Mapping[TopicPartition, str]) -> LogDirErrors:
        """See ``PartitionsBackend``. Raises ConfigError: only brokers move logs."""
        raise _no_log_dirs()


def _no_log_dirs() -> ConfigError:
    allowed = "name directories, of which ZooKeeper does not know: leave out --zookeeper, or the directories"
    return ConfigError("log_dirs", None, allowed)
