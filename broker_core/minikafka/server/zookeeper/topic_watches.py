"""Watches on the topics' znodes, which tools rewrite, for example to add partitions as in 0.10.1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from minikafka.registry import paths
from minikafka.registry.store import Stat, Store, Watch


class TopicWatches:
    """A watch on each topic while this broker is the controller. For the jobs of the worker."""

    def __init__(self, store: Store, written: Callable[[], None]) -> None:
        """``written`` is called on ZooKeeper's thread when ``look`` has something to process."""
        self._store = store
        self._has_written = written
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()
        self._read_at: dict[str, int] = {}
        """The zxid of the version that the controller read, for topics whose watch has not fired yet."""
        self._written: dict[str, None] = {}

    def keep(self, topics: Mapping[str, Stat]) -> None:
        """Watch exactly these topics, whose stats are those that the controller has read."""
        self.drop([topic for topic in self._watches if topic not in topics])
        self.add(topics)

    def add(self, topics: Mapping[str, Stat]) -> None:
        """Watch these topics too."""
        for topic, stat in topics.items():
            if topic not in self._watches:
                self._read_at[topic] = stat.modified_at
                seen = partial(self._seen, topic)
                self._watches[topic] = self._store.watch_data(paths.topic_path(topic), seen)

    def drop(self, topics: Collection[str]) -> None:
        """Stop watching these topics."""
        for topic in topics:
            watch = self._watches.pop(topic, None)
            if watch is not None:
                watch.cancel()
            self._read_at.pop(topic, None)

    def look(self, see: Callable[[Collection[str]], None]) -> None:
        """Call ``see`` with the topics whose znodes were written since the last call."""
        with self._lock:
            written, self._written = self._written, {}
        try:
            see(written)
        except BaseException:
            with self._lock:
                self._written = written | self._written
            raise

    def _seen(self, topic: str, data: bytes | None, stat: Stat | None) -> None:
        # The first state is a change if it differs from the one that the controller has read.
        read_at = self._read_at.pop(topic, None)
        if stat is not None and stat.modified_at != read_at:
            with self._lock:
                self._written[topic] = None
            self._has_written()
