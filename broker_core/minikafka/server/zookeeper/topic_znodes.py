"""The znodes of topics as this broker reads and writes them: incarnations, new topics, more partitions, ids.

The broker that creates a topic gives it an id (KIP-516); the controller gives ids to topics without one,
from an earlier release or a tool of one. An id is written on the condition that the znode is as it was read,
so that a topic never gets two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from minikafka.base.errors import BadVersion, CoordinationError, NoNode
from minikafka.base.ids import TopicPartition, new_topic_id, numbers_by_topic
from minikafka.controller.assignment import Assignment
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.registry import paths
from minikafka.registry.entity_configs import EntityConfig
from minikafka.registry.store import Store
from minikafka.registry.topics import TOPIC, TopicAssignment
from minikafka.registry.znodes import Znodes, read_or_raise


class TopicZnodes:
    """Writes the znodes of topics. For the jobs of the worker, which may run twice."""

    def __init__(self, store: Store, random_bytes: Callable[[int], bytes] | None) -> None:
        """``random_bytes``: for ids; None: topics get none, as brokers before 2.8 are in the cluster."""
        self._store = store
        self._random_bytes = random_bytes
        self._znodes = Znodes(store)

    def incarnations(self, topics: Iterable[str]) -> dict[str, TopicIncarnation]:
        """Return the incarnation of each of the topics that exists."""
        by_path = {paths.topic_path(topic): topic for topic in topics}
        found = {}
        for path, (data, stat) in self._store.read_all(by_path).items():
            topic_id = None
            with contextlib.suppress(CoordinationError):  # the controller reports an invalid znode
                topic_id = TOPIC.decode(data, path).topic_id
            found[by_path[path]] = TopicIncarnation(stat.created_at, topic_id)
        return found

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that do not exist. Those of a topic with an invalid znode may exist."""
        named = numbers_by_topic(partitions)
        nodes = self._store.read_all(paths.topic_path(topic) for topic in named)
        found: set[TopicPartition] = set()
        for topic, numbers in named.items():
            path = paths.topic_path(topic)
            with contextlib.suppress(CoordinationError):  # an invalid znode
                known = TOPIC.decode(nodes[path][0], path).partitions if path in nodes else {}
                found.update(TopicPartition(topic, number) for number in numbers if number not in known)
        return found

    def create(self, topics: Mapping[str, tuple[Assignment, Mapping[str, str]]]) -> frozenset[str]:
        """Write the configs of topics, then their assignments, which the controller watches; all at once.

        Return the topics that existed before, which are unchanged.
        """
        here = self._store.read_all(paths.topic_path(topic) for topic in topics)
        new = {topic: made for topic, made in topics.items() if paths.topic_path(topic) not in here}
        settings = {
            paths.topic_config_path(topic): EntityConfig(config).to_json()
            for topic, (_, config) in new.items()
        }
        for path in sorted(self._store.create_all(settings)):  # configs of a deleted topic
            self._store.write(path, settings[path])
        refused = self._store.create_all(
            {
                paths.topic_path(topic): TopicAssignment(assignment, self._new_id()).to_json()
                for topic, (assignment, _) in new.items()
            }
        )
        return frozenset(topic for topic in topics if topic not in new or paths.topic_path(topic) in refused)

    def add_partitions(self, topic: str, added: Assignment) -> Assignment:
        """Add partitions to a topic's assignment, and return all.

        Raises NoNode if the topic does not exist or is being deleted, BadVersion if another process changed
        its partitions.
        """
        path = paths.topic_path(topic)
        if self._store.exists(f"{paths.DELETE_TOPICS}/{topic}") is not None:
            raise NoNode(f"topic {topic} is being deleted")
        assignment, stat = read_or_raise(self._store, path, TOPIC)
        known = assignment.partitions
        grown = {**known, **added}
        if any(known.get(partition, replicas) != replicas for partition, replicas in added.items()) or sorted(
            grown
        ) != list(range(len(grown))):
            raise BadVersion(f"the partitions of topic {topic} have changed to {sorted(known)}: retry")
        if grown != known:
            self._store.write(path, replace(assignment, partitions=grown).to_json(), stat.version)
        return grown

    def give_ids(self, topics: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Write an id into the znodes without one: the id that a topic had before, or a new one (None).

        Return the id of each topic that exists, if ids are used.
        """
        ids: dict[str, bytes] = {}
        left = {} if self._random_bytes is None else {paths.topic_path(topic): topic for topic in topics}
        while left:
            nodes = {}
            for path, (held, stat) in self._znodes.read_all(left, TOPIC).items():
                topic_id = held.topic_id or topics[left[path]] or self._new_id()
                assert topic_id is not None
                ids[left[path]] = topic_id
                if held.topic_id is None:
                    nodes[path] = replace(held, topic_id=topic_id).to_json(), stat.version
            # Another process wrote these meanwhile, or removed them: read again.
            left = {path: left[path] for path in self._store.write_all(nodes)}
            for topic in left.values():
                del ids[topic]
        return ids

    def _new_id(self) -> bytes | None:
        return None if self._random_bytes is None else new_topic_id(self._random_bytes)
