"""Which topic each log is of: a name may be that of one topic after the other. ``topic-creations.json``.

Of a topic ZooKeeper tells the change that made it (the ``czxid`` of ``/brokers/topics/T``). Where a topic's
znodes alone were removed and it is made again, its logs are still there, on brokers that were away too; by
this file a broker tells that they are of the topic before.

    {"version":1,"cluster":"SM7-…","tree":2,"topics":{"my_topic":{"0":187,"1":187}}}

``cluster`` is the cluster's id and ``tree`` the change that made that very znode: a tree that was copied to
another ZooKeeper counts its changes anew, and what was written down before says nothing then. In another
cluster no log is a topic's own. A log of which nothing is written down (of an earlier version, say) is taken
for it.

One file in each data directory. It is written before a log takes its first message: one that says too little
only makes a log look like the topic's own, one that says an earlier change would have it set aside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import TopicPartition
from minikafka.log.data_directory import DataDirectory
from minikafka.log.layout import CREATIONS_FILE

_logger = logging.getLogger(__name__)

VERSION = 1

_ELSEWHERE = -1
"""For the change of ZooKeeper that made a topic of another cluster."""

Tree = tuple[str, int]
"""The cluster's id, and the change of ZooKeeper that made the znode of it."""


class Creations:
    """Of the data directories that were entered. For the thread that opens and creates logs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._directories: list[DataDirectory] = []
        self._known: dict[TopicPartition, int] = {}
        self._tree: Tree | None = None
        self._stale: dict[str, Tree | None] = {}
        """Directories whose file does not say what is known, and the tree that it is of."""

    def enter(self, directory: DataDirectory, partitions: Collection[TopicPartition]) -> None:
        """Read the file of a directory in which these lie; nothing where it makes no sense."""
        self._directories.append(directory)
        try:
            tree, known = _parse(read_file(self._files, directory.file(CREATIONS_FILE)))
        except FileNotFoundError:
            return
        except (StorageError, ValueError, KeyError, TypeError, AttributeError) as error:
            path = directory.file(CREATIONS_FILE)
            _logger.warning("%s is left out, the logs count as those of the topics: %r", path, error)
            return
        self._known |= {key: change for key, change in known.items() if key in partitions}
        self._stale[directory.path] = tree

    def begin(self, tree: Tree) -> None:
        """This is the tree that changes are counted in from now on. Before anything else is asked."""
        self._tree = tree
        for directory in self._directories:
            before = self._stale.pop(directory.path, None)
            if before is None or before == tree:
                continue
            if before[0] == tree[0]:
                what = (
                    f"the znodes of cluster {tree[0]} were copied: its logs are taken for those of the topics"
                )
                self._known = {key: at for key, at in self._known.items() if key not in directory.partitions}
            else:
                what = f"its logs are of cluster {before[0]}, and not of this one, {tree[0]}"
                self._known |= dict.fromkeys(directory.partitions & self._known.keys(), _ELSEWHERE)
            _logger.warning("%s: %s", directory.path, what)

    def of(self, partition: TopicPartition) -> int | None:
        """The change that made the topic whose log lies here; None where nobody knows."""
        return self._known.get(partition)

    def forget(self, partition: TopicPartition) -> None:
        """The log is gone. The file may say so later."""
        self._known.pop(partition, None)

    def record(self, changes: Mapping[TopicPartition, int]) -> None:
        """The logs of these are of the topics that these changes made. Raises StorageError: then nothing may
        be written to logs that were made or begun anew.
        """
        if self._tree is None:
            return
        new = {key: change for key, change in changes.items() if self._known.get(key) != change}
        self._known |= new
        self._stale |= {
            one.path: None for one in self._directories if not one.partitions.isdisjoint(new.keys())
        }
        for directory in self._directories:
            if directory.path in self._stale:
                self._write(directory)
                del self._stale[directory.path]

    def _write(self, directory: DataDirectory) -> None:
        assert self._tree is not None
        topics: dict[str, dict[str, int]] = {}
        for topic, partition in sorted(directory.partitions):
            change = self._known.get(TopicPartition(topic, partition))
            if change is not None:
                topics.setdefault(topic, {})[str(partition)] = change
        held = {"version": VERSION, "cluster": self._tree[0], "tree": self._tree[1], "topics": topics}
        data = json.dumps(held, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            replace_file(self._files, directory.file(CREATIONS_FILE), data)
        except FileNotFoundError as error:
            raise StorageError(f"cannot write {CREATIONS_FILE}: {directory.path} is gone") from error


def _parse(data: bytes) -> tuple[Tree, dict[TopicPartition, int]]:
    held = json.loads(data)
    if held["version"] != VERSION:
        raise ValueError(f"version {held['version']}")
    tree = str(held["cluster"]), int(held["tree"])
    return tree, {
        TopicPartition(topic, int(partition)): int(change)
        for topic, changes in held["topics"].items()
        for partition, change in changes.items()
    }
