"""The offsets of groups in ZooKeeper, for their lag: read by the controller while somebody scrapes it.

They are read on a thread of its own, as ZooKeeper may be away for seconds: at most once in ``EVERY_S``, and
for a tenth of the time at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from minikafka.base.errors import MinikafkaError, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.server.zookeeper.guarded_store import GuardedStore

_log = logging.getLogger(__name__)

EVERY_S = 10.0
MAX_OFFSETS = 50_000
"""Groups are read, in the order of their names, until there are as many offsets."""

Offsets = Mapping[str, Mapping[TopicPartition, int]]


class ZooKeeperGroups:
    """The offsets of groups in ZooKeeper as they were a moment ago. Thread-safe."""

    def __init__(self, store: GuardedStore, wants_group: Callable[[str], bool]) -> None:
        self._store = store
        self._wants_group = wants_group
        self._lock = threading.Lock()
        self._known: Offsets = {}
        self._read_at_s = float("-inf")
        self._pause_s = EVERY_S
        self._reader: threading.Thread | None = None

    def offsets(self) -> Offsets:
        """Return the offsets by group, as they were read last; have them read again if that is long ago."""
        with self._lock:
            is_reading = self._reader is not None and self._reader.is_alive()
            if not is_reading and time.monotonic() - self._read_at_s >= self._pause_s:
                self._reader = threading.Thread(target=self.read, name="zookeeper-groups", daemon=True)
                self._reader.start()
            return self._known

    def read(self) -> None:
        """Read the offsets now."""
        began_s = time.monotonic()
        try:
            self._known = self._read()
        except MinikafkaError as error:
            _log.debug("failed to read the groups in ZooKeeper: %s", error)
        self._read_at_s = time.monotonic()
        self._pause_s = max(EVERY_S, 9 * (self._read_at_s - began_s))

    def _read(self) -> Offsets:
        try:
            names = sorted(filter(self._wants_group, self._store.children(paths.CONSUMERS)))
        except NoNode:
            return {}
        found: dict[str, Mapping[TopicPartition, int]] = {}
        count = 0
        for name in names:
            if count >= MAX_OFFSETS:
                break
            offsets = read_offsets(self._store, name)
            count += len(offsets)
            if offsets:
                found[name] = offsets
        return found
