"""The topic incarnation of each log, as one name may be used by several topics: ``topic-creations.json``, and
the ids of topics (``partition_metadata``).

ZooKeeper identifies a topic by the change that created it (the ``czxid`` of ``/brokers/topics/T``). When only
a topic's znodes were removed and it is created again, its old logs still exist, also on brokers that were
down. With this file a broker knows that they belong to the earlier topic.

    {"version":1,"cluster":"SM7-…","tree":2,"children":[7,190,5],"rolled_back":{},
     "topics":{"my_topic":{"0":187,"1":187}}}

``cluster`` is the cluster's id and ``tree`` the change that created its znode: a tree that was copied to
another ZooKeeper restarts its change numbers, and the recorded changes mean nothing then. In another cluster
no log belongs to a current topic. A log without a record (of an earlier version, say) is assumed to belong to
the current topic of its name.

ZooKeeper may be restored from an older copy: then it has lost the topics created since, and a topic of such a
name is created again. The log belongs to that topic, as its records are nowhere else. The same holds where
the topic's znode is older than the recorded one, and where ZooKeeper was restored since the recorded one was
created (``rolled_back``). ``children`` detects that: how often the children of ``/brokers/topics`` have
changed, by which change last, and which change created that znode (``cversion``, ``pzxid``, ``czxid``). A
smaller number belongs to another history, and so does an older znode. A znode that is newer than all seen
changes was removed and created again, with all topics: then nothing was restored, although the number
restarts. The same number with an earlier change counts only where a log's topic was created later: ZooKeeper
before 3.6 may lose the change of a deletion when it is restarted (ZOOKEEPER-3125).

One file in each data directory. It is written before a log takes its first message: a missing record only
makes a log look like the current topic's own, a record of an earlier change would have it set aside.

The id of its topic is in the directory of each log, as in Kafka. A log with the id of a topic belongs to it,
whatever is recorded: another program may have created the topic and the log meanwhile (a broker of Kafka
that used the data directory). With another id, the changes decide; an id does not tell which of two topics is
the later one, and an earlier tool may have written the znode anew without the id, and the controller a new
one. Without a recorded change such a log belongs to another topic. The files of ids are written some time
after the log gets its first leader, one flush for each, by the housekeeper: until then, the record suffices.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.checkpoints.partition_metadata import read_topic_id, write_topic_id
from minikafka.log.layout import TOPIC_INCARNATIONS_FILE

_logger = logging.getLogger(__name__)

VERSION = 1

_ELSEWHERE = -1
"""Stands for the change that created a topic in another cluster."""


@dataclass(frozen=True, slots=True)
class Children:
    """The history of the topics in ZooKeeper, from the stat of ``/brokers/topics``."""

    changes: int
    """The number of creations and deletions of topics (``cversion``)."""
    changed_at: int
    """The last of these changes (``pzxid``)."""
    made_at: int | None = None
    """The change that created the znode (``czxid``); None in a file of an earlier version."""

    @property
    def age(self) -> tuple[int, int, int]:
        """A sort key: larger means seen later, as long as ZooKeeper is not restored from an older copy."""
        return self.made_at or 0, self.changes, self.changed_at


@dataclass(frozen=True, slots=True)
class TopicIncarnation:
    """One of the topics that have had a name."""

    created: int | None = None
    """The change that created it (``czxid``); None when it is not known."""
    topic_id: bytes | None = None
    """None when it is not known, or the topic has none."""


Tree = tuple[str, int]
"""The cluster's id, and the change of ZooKeeper that created its znode."""


class TopicIncarnations:
    """The topic incarnations of all data directories.

    Used by the thread that opens and creates logs; ``load``, ``save_topic_ids`` and ``has_other_id`` may run
    on others.
    """

    def __init__(self, files: Files, mutex: AbstractContextManager[object]) -> None:
        self._files = files
        self._directories: list[DataDirectory] = []
        self._known: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, bytes] = {}
        self._unsaved: dict[TopicPartition, None] = {}
        """Partitions whose files lack the id."""
        self._unwritable: set[str] = set()
        """Data directories in which ids could not be written."""
        self._mutex = mutex
        """Held while a file of an id is written, and while ``_unsaved`` is changed."""
        self._tree: Tree | None = None
        self._stale: dict[str, Tree | None] = {}
        """Directory whose file must be written -> the tree of its file."""
        self._children: Children | None = None
        """The children at the last check; ``begin`` takes them from the files."""
        self._rolled_back: set[TopicPartition] = set()
        """Partitions whose topics may have been created by changes that ZooKeeper has lost."""
        self._written: dict[str, Children] = {}
        """Directory -> the children in its file."""

    def enter(self, directory: DataDirectory, partitions: Collection[TopicPartition]) -> None:
        """Add a data directory with these partitions and read its file; an invalid file counts as empty."""
        self._directories.append(directory)
        try:
            read = _parse(read_file(self._files, directory.file(TOPIC_INCARNATIONS_FILE)))
        except FileNotFoundError:
            return
        except (StorageError, ValueError, KeyError, TypeError, AttributeError) as error:
            path = directory.file(TOPIC_INCARNATIONS_FILE)
            _logger.warning("ignoring %s, assuming that the logs belong to the topics: %r", path, error)
            return
        self._known |= {key: change for key, change in read.known.items() if key in partitions}
        self._rolled_back |= read.rolled_back.intersection(partitions)
        if read.children is not None:
            self._written[directory.path] = read.children
        self._stale[directory.path] = read.tree

    def begin(self, tree: Tree) -> None:
        """Set the tree in which changes are counted. Called before the incarnations are used."""
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
        # The file that was written last. A directory without logs is not written any more.
        written = [self._written[home.path] for home in self._directories if self._is_written(home)]
        self._children = max(written, key=lambda children: children.age, default=None)

    def _is_written(self, directory: DataDirectory) -> bool:
        return bool(directory.partitions) and directory.path in self._written

    def update_children(self, children: Children) -> None:
        """Compare the current children with the last ones, to detect a ZooKeeper restored from an older copy.

        Called before the incarnation of a log is used.
        """
        before = self._children
        if before is None or not self._went_back(before, children):
            # An earlier change with the same number is a fault of ZooKeeper itself.
            if before is None or children.age > before.age:
                self._children = children
            return
        self._children = children
        _logger.error(
            "ZooKeeper was restored from an older copy: it counts %d creations and deletions of topics, "
            "before it counted %d. Topics created after that copy are missing in ZooKeeper; this broker "
            "keeps their logs. To read their records, create each topic again with the same number of "
            "partitions",
            children.changes,
            before.changes,
        )
        self._rolled_back |= {key for key, change in self._known.items() if change != _ELSEWHERE}
        self._stale |= {home.path: None for home in self._directories if home.partitions}
        try:
            self._write_stale()
        except StorageError as error:
            _logger.warning("%s; will retry when a topic is created", error)

    def _went_back(self, before: Children, now: Children) -> bool:
        if now.made_at is not None and now.made_at != before.made_at:
            if now.made_at > before.changed_at:
                return False  # removed with all topics, and created again
            if before.made_at is not None:
                return True
        if now.changes != before.changes:
            return now.changes < before.changes
        if now.changed_at < before.changed_at:
            return any(self._known[key] > now.changed_at for key in self._known.keys() - self._rolled_back)
        return now.changed_at > before.changed_at

    def of(self, partition: TopicPartition) -> TopicIncarnation:
        """Return what is known of the topic of a log."""
        return TopicIncarnation(self._known.get(partition), self._ids.get(partition))

    def has_other_id(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Return whether the log has another topic id."""
        return self._ids.get(partition, topic_id) != topic_id

    def is_of_another(self, partition: TopicPartition, topic: TopicIncarnation) -> bool:
        """Return whether the log certainly belongs to another topic of that name, which ZooKeeper has not
        lost.
        """
        log = self.of(partition)
        if log.topic_id is not None and log.topic_id == topic.topic_id:
            return False
        if log.created is None or topic.created is None:
            return log.topic_id is not None and topic.topic_id is not None
        return log.created < topic.created and partition not in self._rolled_back

    def is_of_later(self, partition: TopicPartition, topic: TopicIncarnation) -> bool:
        """Return whether the log may belong to a later topic, which ZooKeeper has lost."""
        log = self.of(partition)
        if log.topic_id is not None and log.topic_id == topic.topic_id:
            return False
        if log.created is None or topic.created is None or log.created in {topic.created, _ELSEWHERE}:
            return False
        return log.created > topic.created or partition in self._rolled_back

    def load(self, partition: TopicPartition, home: DataDirectory) -> None:
        """Read the topic id of a log that is being opened. Raises StorageError."""
        topic_id = read_topic_id(self._files, home.partition_path(partition))
        with self._mutex:
            if topic_id is not None and partition not in self._unsaved:
                self._ids[partition] = topic_id

    def forget(self, partition: TopicPartition) -> None:
        """Remove the record of a deleted log, whose directory has another name now. The file may be updated
        later.
        """
        self._known.pop(partition, None)
        self._rolled_back.discard(partition)
        with self._mutex:
            self._ids.pop(partition, None)
            self._unsaved.pop(partition, None)

    def record(self, topics: Mapping[TopicPartition, TopicIncarnation]) -> None:
        """Record the topics of these logs. After a StorageError nothing may be written to logs that were
        created or restarted. The files of ids are written by ``save_topic_ids``.
        """
        with self._mutex:
            for key, topic in topics.items():
                if topic.topic_id is not None and topic.topic_id != self._ids.get(key):
                    self._ids[key] = topic.topic_id
                    self._unsaved[key] = None
        if self._tree is None:
            return
        new = {
            key: topic.created
            for key, topic in topics.items()
            if topic.created is not None
            and (self._known.get(key) != topic.created or key in self._rolled_back)
        }
        self._known |= new
        self._rolled_back -= new.keys()
        self._stale |= {
            home.path: None for home in self._directories if not home.partitions.isdisjoint(new.keys())
        }
        self._write_stale()

    def save_topic_ids(self, most: int | None = None) -> None:
        """Write the files of ids that are not written yet, at most so many. The next call tries again in a
        directory that cannot be written, which is logged once.
        """
        failed: set[str] = set()
        written = 0
        for partition in list(self._unsaved):
            if written == most:
                break
            with self._mutex:
                home = next((home for home in self._directories if partition in home.partitions), None)
                if partition not in self._unsaved or home is None or home.failure or home.path in failed:
                    continue
                try:
                    write_topic_id(self._files, home.partition_path(partition), self._ids[partition])
                except StorageError as error:
                    failed.add(home.path)
                    self._unsaved[partition] = self._unsaved.pop(partition)  # after those of the others
                    if home.path not in self._unwritable:
                        _logger.warning("failed to write the id of a topic, retrying: %s", error)
                    continue
                except FileNotFoundError:
                    pass  # removed by hand, or being deleted
                del self._unsaved[partition]
                written += 1
                self._unwritable.discard(home.path)
        self._unwritable |= failed

    def save_topic_id_of_copy(self, partition: TopicPartition, directory: str) -> None:
        """Write the topic id of a log into the directory of its copy. Raises StorageError."""
        topic_id = self._ids.get(partition)
        if topic_id is not None:
            write_topic_id(self._files, directory, topic_id)

    def move(self, old: DataDirectory, new: DataDirectory) -> None:
        """Write the files of two directories, between which a log has moved. Raises StorageError."""
        for home in (new, old):
            self._stale.setdefault(home.path, None)  # before ``begin`` it has the tree of the file
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
        rolled_back = numbers_by_topic(sorted(self._rolled_back & directory.partitions))
        held = {
            "version": VERSION,
            "cluster": self._tree[0],
            "tree": self._tree[1],
            "children": None if self._children is None else _as_list(self._children),
            "rolled_back": rolled_back,
            "topics": topics,
        }
        directory.write_json(TOPIC_INCARNATIONS_FILE, held)


@dataclass(frozen=True, slots=True)
class _Read:
    """The parsed content of a ``topic-creations.json``."""

    tree: Tree
    known: Mapping[TopicPartition, int]
    children: Children | None
    rolled_back: frozenset[TopicPartition]


def _as_list(children: Children) -> list[int]:
    numbers = [children.changes, children.changed_at]
    return numbers if children.made_at is None else [*numbers, children.made_at]


def _parse(data: bytes) -> _Read:
    held = json.loads(data)
    if held["version"] != VERSION:
        raise ValueError(f"unsupported version {held['version']}: expected {VERSION}")
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
