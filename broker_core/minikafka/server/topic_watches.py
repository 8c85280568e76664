"""Topics that somebody writes anew in ZooKeeper: more partitions, as 0.10.1's tools give them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from minikafka.registry import paths
from minikafka.registry.store import Stat, Store, Watch


class TopicWatches:
    """A watch for each topic, as long as this broker is the controller. For the jobs of the worker."""

    def __init__(self, store: Store, written: Callable[[str], None]) -> None:
        """``written`` is told of each topic whose assignment was written, on ZooKeeper's thread."""
        self._store = store
        self._written = written
        self._watches: dict[str, Watch] = {}

    def keep(self, topics: Collection[str]) -> None:
        """Watch these topics, and no others."""
        self.drop([topic for topic in self._watches if topic not in topics])
        self.add(topics)

    def add(self, topics: Collection[str]) -> None:
        """Watch these too."""
        for topic in topics:
            if topic not in self._watches:
                seen = partial(self._seen, topic)
                self._watches[topic] = self._store.watch_data(paths.topic_path(topic), seen)

    def drop(self, topics: Collection[str]) -> None:
        """Watch these no longer."""
        for topic in topics:
            watch = self._watches.pop(topic, None)
            if watch is not None:
                watch.cancel()

    def _seen(self, topic: str, data: bytes | None, stat: Stat | None) -> None:
        # The first state, which the controller reads anyway, is news as well: it may have changed since.
        if data is not None:
            self._written(topic)
