"""Which topic each log is of: a name may be that of one topic after the other. ``topic-creations.json``.

Of a topic ZooKeeper tells the change that made it (the ``czxid`` of ``/brokers/topics/T``). Where a topic's
znodes alone were removed and it is made again, its logs are still there, on brokers that were away too; by
this file a broker tells that they are of the topic before.

    {"version":1,"cluster":"SM7-…","tree":2,"children":[7,190,5],"rolled_back":{},
     "topics":{"my_topic":{"0":187,"1":187}}}

``cluster`` is the cluster's id and ``tree`` the change that made that very znode: a tree that was copied to
another ZooKeeper counts its changes anew, and what was written down before says nothing then. In another
cluster no log is a topic's own. A log of which nothing is written down (of an earlier version, say) is taken
for it.

ZooKeeper may be restored from an older copy: then what was made since counts as never made there, and a topic
of that name is made again. Its log is the topic's own, as no other place has its records. So it is where the
topic's znode is older than the log's, and where ZooKeeper went back since the log's was made
(``rolled_back``). ``children`` tells that: how often the children of ``/brokers/topics`` have changed, by
which change last, and which change made that znode (``cversion``, ``pzxid``, ``czxid``). A smaller number is
that of another history, and so is an older znode. A znode that is newer than all that was seen was removed
and made again, with all topics: then nothing went back, although the number begins anew. The same number with
an earlier change counts only where a log is of a topic that was made later: ZooKeeper before 3.6 may lose the
change of a deletion when it is restarted (ZOOKEEPER-3125).

One file in each data directory. It is written before a log takes its first message: one that says too little
only makes a log look like the topic's own, one that says an earlier change would have it set aside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.layout import CREATIONS_FILE

_logger = logging.getLogger(__name__)

VERSION = 1

_ELSEWHERE = -1
"""For the change of ZooKeeper that made a topic of another cluster."""


@dataclass(frozen=True, slots=True)
class Children:
    """The topics in ZooKeeper, by the stat of ``/brokers/topics``."""

    changes: int
    """How often topics were made or removed."""
    changed_at: int
    """The change of ZooKeeper that did it last."""
    made_at: int | None = None
    """The change that made the znode; None where a file of an earlier version does not tell."""

    @property
    def age(self) -> tuple[int, int, int]:
        """What is larger was seen later, as long as ZooKeeper does not go back."""
        return self.made_at or 0, self.changes, self.changed_at


Tree = tuple[str, int]
"""The cluster's id, and the change of ZooKeeper that made the znode of it."""


class TopicIncarnations:
    """Of the data directories that were entered. For the thread that opens and creates logs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._directories: list[DataDirectory] = []
        self._known: dict[TopicPartition, int] = {}
        self._tree: Tree | None = None
        self._stale: dict[str, Tree | None] = {}
        """Directories whose file does not say what is known, and the tree that it is of."""
        self._children: Children | None = None
        """As they were when somebody looked last; before ``begin``, as a file says."""
        self._rolled_back: set[TopicPartition] = set()
        """Those whose topics may have been made by changes that ZooKeeper has lost."""
        self._written: dict[str, Children] = {}
        """What the file of each directory said."""

    def enter(self, directory: DataDirectory, partitions: Collection[TopicPartition]) -> None:
        """Read the file of a directory in which these lie; nothing where it makes no sense."""
        self._directories.append(directory)
        try:
            read = _parse(read_file(self._files, directory.file(CREATIONS_FILE)))
        except FileNotFoundError:
            return
        except (StorageError, ValueError, KeyError, TypeError, AttributeError) as error:
            path = directory.file(CREATIONS_FILE)
            _logger.warning("ignoring %s, assuming that the logs belong to the topics: %r", path, error)
            return
        self._known |= {key: change for key, change in read.known.items() if key in partitions}
        self._rolled_back |= read.rolled_back.intersection(partitions)
        if read.children is not None:
            self._written[directory.path] = read.children
        self._stale[directory.path] = read.tree

    def begin(self, tree: Tree) -> None:
        """This is the tree that changes are counted in from now on. Before anything else is asked."""
        self._tree = tree
        for directory in self._directories:
            before = self._stale.pop(directory.path, None)
            if before is None or before == tree:
                continue
            self._written.pop(directory.path, None)
            if before[0] == tree[0]:
                what = f"znodes of cluster {tree[0]} were copied: assuming that the logs belong to the topics"
                self._known = {key: at for key, at in self._known.items() if key not in directory.partitions}
            else:
                what = f"the logs belong to cluster {before[0]}, not to this cluster {tree[0]}"
                self._known |= dict.fromkeys(directory.partitions & self._known.keys(), _ELSEWHERE)
            _logger.warning("%s: %s", directory.path, what)
        # The one that was written last. Where no log lies nobody writes any more.
        told = [self._written[one.path] for one in self._directories if self._tells(one)]
        self._children = max(told, key=lambda children: children.age, default=None)

    def _tells(self, directory: DataDirectory) -> bool:
        return bool(directory.partitions) and directory.path in self._written

    def look(self, children: Children) -> None:
        """These are the children now. Before it is asked which topic a log is of."""
        before = self._children
        if before is None or not self._went_back(before, children):
            # An earlier change of the same number is ZooKeeper's own fault.
            if before is None or children.age > before.age:
                self._children = children
            return
        self._children = children
        _logger.error(
            "ZooKeeper data was restored from an older copy: %d topics were created or deleted there, %d "
            "before. Topics created since are missing there, and their logs stay here: a topic that is "
            "created again with the same name and as many partitions has its records",
            children.changes,
            before.changes,
        )
        self._rolled_back |= {key for key, change in self._known.items() if change != _ELSEWHERE}
        self._stale |= {one.path: None for one in self._directories if one.partitions}
        try:
            self._write_stale()
        except StorageError as error:
            _logger.warning("%s; will retry when a topic is created", error)

    def _went_back(self, before: Children, now: Children) -> bool:
        if now.made_at is not None and now.made_at != before.made_at:
            if now.made_at > before.changed_at:
                return False  # removed with all topics, and made again
            if before.made_at is not None:
                return True
        if now.changes != before.changes:
            return now.changes < before.changes
        if now.changed_at < before.changed_at:
            return any(self._known[key] > now.changed_at for key in self._known.keys() - self._rolled_back)
        return now.changed_at > before.changed_at

    def of(self, partition: TopicPartition) -> int | None:
        """The change that made the topic whose log lies here; None where nobody knows."""
        return self._known.get(partition)

    def is_of_another(self, partition: TopicPartition, created: int) -> bool:
        """Whether the log is certainly of an earlier topic than the one that the change ``created`` made."""
        known = self._known.get(partition)
        return known is not None and known < created and partition not in self._rolled_back

    def is_of_later(self, partition: TopicPartition, created: int) -> bool:
        """Return whether the log may be of a later topic, which ZooKeeper has lost."""
        known = self._known.get(partition)
        if known is None or known in {created, _ELSEWHERE}:
            return False
        return known > created or partition in self._rolled_back

    def forget(self, partition: TopicPartition) -> None:
        """The log is gone. The file may say so later."""
        self._known.pop(partition, None)
        self._rolled_back.discard(partition)

    def record(self, changes: Mapping[TopicPartition, int]) -> None:
        """The logs of these are of the topics that these changes made. Raises StorageError: then nothing may
        be written to logs that were made or begun anew.
        """
        if self._tree is None:
            return
        new = {
            key: change
            for key, change in changes.items()
            if self._known.get(key) != change or key in self._rolled_back
        }
        self._known |= new
        self._rolled_back -= new.keys()
        self._stale |= {
            one.path: None for one in self._directories if not one.partitions.isdisjoint(new.keys())
        }
        self._write_stale()

    def _write_stale(self) -> None:
        if self._tree is None:
            return
        for directory in self._directories:
            if directory.path in self._stale and directory.failure is None:
                self._write(directory)
                del self._stale[directory.path]

    def _write(self, directory: DataDirectory) -> None:
        assert self._tree is not None
        topics: dict[str, dict[str, int]] = {}
        for topic, partition in sorted(directory.partitions):
            change = self._known.get(TopicPartition(topic, partition))
            if change is not None:
                topics.setdefault(topic, {})[str(partition)] = change
        rolled_back: dict[str, list[int]] = {}
        for topic, partition in sorted(self._rolled_back & directory.partitions):
            rolled_back.setdefault(topic, []).append(partition)
        held = {
            "version": VERSION,
            "cluster": self._tree[0],
            "tree": self._tree[1],
            "children": None if self._children is None else _told(self._children),
            "rolled_back": rolled_back,
            "topics": topics,
        }
        data = json.dumps(held, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            replace_file(self._files, directory.file(CREATIONS_FILE), data)
        except FileNotFoundError as error:
            raise StorageError(f"cannot write {CREATIONS_FILE}: {directory.path} was deleted") from error


@dataclass(frozen=True, slots=True)
class _Read:
    """What a file says."""

    tree: Tree
    known: Mapping[TopicPartition, int]
    children: Children | None
    rolled_back: frozenset[TopicPartition]


def _told(children: Children) -> list[int]:
    told = [children.changes, children.changed_at]
    return told if children.made_at is None else [*told, children.made_at]


def _parse(data: bytes) -> _Read:
    held = json.loads(data)
    if held["version"] != VERSION:
        raise ValueError(f"version {held['version']}")
    children = held.get("children")
    return _Read(
        tree=(str(held["cluster"]), int(held["tree"])),
        known={
            TopicPartition(topic, int(partition)): int(change)
            for topic, changes in held["topics"].items()
            for partition, change in changes.items()
        },
        # Files of an earlier version do not have these.
        children=None if children is None else Children(*map(int, children[:3])),
        rolled_back=frozenset(
            TopicPartition(topic, int(partition))
            for topic, partitions in held.get("rolled_back", {}).items()
            for partition in partitions
        ),
    )
