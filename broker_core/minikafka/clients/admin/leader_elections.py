"""Elections of leaders: the partitions that want one, and the leaders that they have.

``kafka-preferred-replica-election`` of 0.10.1 (text 003, "Preferred replica election"), and
``kafka-leader-election`` of 2.2 and later, which also elects replicas that are not in sync.
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
from minikafka.wire.apis.elect_leaders import ElectionType


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition with its leader and its preferred leader. ``kind``: that of the election."""

    topic_partition: TopicPartition
    leader: int | None
    preferred: int
    in_sync: tuple[int, ...]
    kind: ElectionType = ElectionType.PREFERRED

    @property
    def done(self) -> bool:
        """True if the preferred replica is the leader; for an unclean election, if there is any."""
        return self.leader is not None if self.kind is ElectionType.UNCLEAN else self.leader == self.preferred

    @property
    def possible(self) -> bool:
        """True if the preferred replica is in sync, so that it can become the leader."""
        return self.preferred in self.in_sync


def candidates(
    backend: PartitionsBackend,
    partitions: Iterable[TopicPartition] | None = None,
    kind: ElectionType = ElectionType.PREFERRED,
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
            kind,
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
    kind: ElectionType,
    timeout_s: float,
    report: Callable[[ElectionRound], None],
) -> tuple[list[Candidate], bool]:
    """Elect leaders. Return the leaders after that; False if it has not ended in time."""
    outcome = backend.elect(partitions, kind, timeout_s, report)

    def known(found: list[Candidate]) -> bool:
        return all(row.done for row in found if row.topic_partition in outcome.elected)

    return settled(backend, lambda: candidates(backend, partitions, kind), known), outcome.ended
