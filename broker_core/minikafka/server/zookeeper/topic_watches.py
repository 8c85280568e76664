"""Topics that somebody writes anew in ZooKeeper: more partitions, as 0.10.1's tools give them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from minikafka.registry import paths
from minikafka.registry.store import Stat, Store, Watch


class TopicWatches:
    """A watch for each topic, as long as this broker is the controller. For the jobs of the worker."""

    def __init__(self, store: Store, written: Callable[[], None]) -> None:
        """``written`` is called on ZooKeeper's thread: there is something for ``look``."""
        self._store = store
        self._has_written = written
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()
        self._read_at: dict[str, int] = {}
        """Of topics whose watch has reported nothing yet: the change of ZooKeeper that wrote what the
        controller has read.
        """
        self._written: dict[str, None] = {}

    def keep(self, topics: Mapping[str, Stat]) -> None:
        """Watch these topics, and no others; with their znodes as the controller has read them."""
        self.drop([topic for topic in self._watches if topic not in topics])
        self.add(topics)

    def add(self, topics: Mapping[str, Stat]) -> None:
        """Watch these too."""
        for topic, stat in topics.items():
            if topic not in self._watches:
                self._read_at[topic] = stat.modified_at
                seen = partial(self._seen, topic)
                self._watches[topic] = self._store.watch_data(paths.topic_path(topic), seen)

    def drop(self, topics: Collection[str]) -> None:
        """Watch these no longer."""
        for topic in topics:
            watch = self._watches.pop(topic, None)
            if watch is not None:
                watch.cancel()
            self._read_at.pop(topic, None)

    def look(self, see: Callable[[Collection[str]], None]) -> None:
        """Have ``see`` look at the topics that were written since the last look."""
        with self._lock:
            written, self._written = self._written, {}
        try:
            see(written)
        except BaseException:
            with self._lock:
                self._written = written | self._written
            raise

    def _seen(self, topic: str, data: bytes | None, stat: Stat | None) -> None:
        # The first state is news where it is not the one that the controller has read.
        read_at = self._read_at.pop(topic, None)
        if stat is not None and stat.modified_at != read_at:
            with self._lock:
                self._written[topic] = None
            self._has_written()
