"""Operators' requests to the controller in znodes: preferred leader elections and reassignments.

An invalid request is logged and removed: the tools take an existing znode for a request in progress.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from minikafka.base.errors import BadVersion, CoordinationError, NoNode
from minikafka.base.ids import TopicPartition, rows_by_topic
from minikafka.controller.assignment import Assignment, OngoingReassignment, Replicas
from minikafka.registry import paths
from minikafka.registry.controller import ELECTION, REASSIGNMENTS, Reassignments
from minikafka.registry.store import Store, check_data
from minikafka.registry.topics import TOPIC, TopicAssignment
from minikafka.registry.znodes import Kind, Znodes, remove

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class AdminRequests:
    """``/admin/preferred_replica_election`` and ``/admin/reassign_partitions``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._znodes = Znodes(store)

    def elections(self) -> frozenset[TopicPartition]:
        """Return the partitions for which the election of the preferred leader is requested."""
        found = self._read(paths.PREFERRED_ELECTION, ELECTION)
        return frozenset() if found is None else found.partitions

    def reassignments(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """Return the partitions to be reassigned, with their new replicas."""
        found = self._read(paths.REASSIGN_PARTITIONS, REASSIGNMENTS)
        return {} if found is None else found.partitions

    def drop_elections(self) -> None:
        """Remove the election request after the elections."""
        remove(self._store, paths.PREFERRED_ELECTION)

    def drop_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the reassignment request, and the request itself with the last of them."""
        done = set(partitions)
        while True:
            try:
                found = self._znodes.read_with_stat(paths.REASSIGN_PARTITIONS, REASSIGNMENTS)
                if found is None:
                    return  # invalid ones are removed when they are read next
                asked, stat = found
                left = {key: replicas for key, replicas in asked.partitions.items() if key not in done}
                if left:
                    data = Reassignments(left).to_json()
                    self._store.write(paths.REASSIGN_PARTITIONS, data, stat.version)
                else:
                    self._store.delete(paths.REASSIGN_PARTITIONS, stat.version)
            except BadVersion:
                continue
            except NoNode:
                pass
            return

    def write_assignments(
        self,
        assignments: Mapping[str, Assignment],
        moving: Mapping[TopicPartition, tuple[Replicas, Replicas]],
    ) -> dict[str, Assignment]:
        """Write the replicas of partitions, many topics at once; return the assignment of each topic.

        ``moving``: the replicas that are being added to partitions of the topics, and those being removed.
        The result includes partitions that were added meanwhile. Topics that were deleted, or whose znode
        cannot be written, are left out.
        """
        written: dict[str, Assignment] = {}
        moving_in = rows_by_topic((key, (key.partition, *lists)) for key, lists in moving.items())
        left = {paths.topic_path(topic): topic for topic in assignments}
        while left:
            nodes = {}
            for path, (held, stat) in self._znodes.read_all(left, TOPIC).items():
                topic = left[path]
                written[topic] = {**held.partitions, **assignments[topic]}
                own = moving_in.get(topic, ())
                anew = replace(
                    held,
                    partitions=written[topic],
                    adding={partition: adding for partition, adding, _ in own if adding},
                    removing={partition: removing for partition, _, removing in own if removing},
                )
                if anew == held:
                    continue
                try:
                    check_data(path, anew.to_json())
                    nodes[path] = anew.to_json(), stat.version
                except CoordinationError as error:
                    _log.error(
                        "failed to write the assignment of topic %s, it is unchanged: %s", topic, error
                    )
                    written.pop(topic, None)
            # Another process wrote these meanwhile, or removed them: read again.
            left = {path: left[path] for path in self._store.write_all(nodes)}
            for topic in left.values():
                del written[topic]
        return written

    def _read(self, path: str, kind: Kind[Value]) -> Value | None:
        try:
            data, stat = self._store.read(path)
        except NoNode:
            return None
        found = self._znodes.parse(path, (data, stat), kind)
        if found is not None:
            return found[0]
        with contextlib.suppress(NoNode, BadVersion):
            self._store.delete(path, stat.version)
        self._znodes.forget(path)
        return None


def ongoing_reassignments(topic: str, held: TopicAssignment) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments that the znode of a topic shows."""
    found = {}
    for partition in held.adding.keys() | held.removing.keys():
        assigned, removing = held.partitions.get(partition, ()), held.removing.get(partition, ())
        target = tuple(replica for replica in assigned if replica not in removing)
        if target:
            added = tuple(replica for replica in held.adding.get(partition, ()) if replica in assigned)
            found[TopicPartition(topic, partition)] = OngoingReassignment(target, added)
    return found
