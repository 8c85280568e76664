"""Elections of preferred replicas: the partitions that want one, and the leaders that they have.

``kafka-preferred-replica-election`` of 0.10.1 (text 003, "Preferred replica election"), and
``kafka-leader-election`` of 2.2 and later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.partitions import (
    ElectionRound,
    PartitionsBackend,
    check_known,
    replicas_of,
    settled,
)
from minikafka.clients.admin.plan_files import OPTION


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition with its leader and its preferred leader."""

    topic_partition: TopicPartition
    leader: int | None
    preferred: int
    in_sync: tuple[int, ...]

    @property
    def done(self) -> bool:
        """True if the preferred replica is the leader."""
        return self.leader == self.preferred

    @property
    def possible(self) -> bool:
        """True if the preferred replica is in sync, so that it can become the leader."""
        return self.preferred in self.in_sync


def candidates(
    backend: PartitionsBackend, partitions: Iterable[TopicPartition] | None = None
) -> list[Candidate]:
    """Return leaders and preferred leaders of partitions. None: all, except of topics marked for deletion.

    Raises ConfigError for a partition that does not exist.
    """
    wanted = None if partitions is None else set(partitions)
    known = backend.assigned(None if wanted is None else {tp.topic for tp in wanted})
    if wanted is None:
        deleted = backend.topics_to_delete()
        wanted = {tp for tp in known if tp.topic not in deleted}
    else:
        check_known(backend, OPTION, wanted, known)
    found = backend.states(wanted)
    return [
        Candidate(
            tp,
            found[tp].leader if tp in found else None,
            known[tp][0],
            found[tp].in_sync if tp in found else (),
        )
        for tp in sorted(wanted)
        if known[tp]
    ]


def partitions_of(backend: PartitionsBackend, topics: Collection[str]) -> frozenset[TopicPartition]:
    """Return all partitions of topics. Raises ConfigError for a topic that does not exist."""
    return frozenset(replicas_of(backend, topics))


def elect(
    backend: PartitionsBackend,
    partitions: Collection[TopicPartition],
    timeout_s: float,
    report: Callable[[ElectionRound], None],
) -> tuple[list[Candidate], bool]:
    """Elect the preferred replicas. Return the leaders after that; False if it has not ended in time."""
    outcome = backend.elect(partitions, timeout_s, report)

    def known(found: list[Candidate]) -> bool:
        return all(row.done for row in found if row.topic_partition in outcome.elected)

    return settled(backend, lambda: candidates(backend, partitions), known), outcome.ended
