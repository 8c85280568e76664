"""Who is to own which partition, and what one consumer has to change for that.

All consumers of a group come to the same assignment from the same znodes; each of them changes its own part
only: it gives up what is not its own any more, and takes what is, as soon as nobody else has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment_context import AssignmentContext
from minikafka.clients.consumer.consumer_thread_id import ConsumerThreadId
from minikafka.clients.consumer.partition_assignor import PartitionAssignor


@dataclass(frozen=True, slots=True)
class Owner:
    """What stands in ``/consumers/G/owners/T/P``."""

    thread: str
    """The text of a ConsumerThreadId."""
    session_id: int
    """The session that the znode lives with."""


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What one consumer is to do. Partitions in their order."""

    assignment: Mapping[str, Mapping[TopicPartition, ConsumerThreadId]]
    """Of the whole group: consumer -> partition -> thread."""
    share: Mapping[TopicPartition, ConsumerThreadId]
    """Of this consumer."""
    release: tuple[TopicPartition, ...]
    """What this session owns and is to own no more, or in another thread."""
    own: tuple[TopicPartition, ...]
    """What it is to own and does not yet."""
    held: Mapping[TopicPartition, str]
    """Of these, what somebody else owns, and who."""

    @property
    def unchanged(self) -> bool:
        """Whether it owns just what it is to own."""
        return not self.release and not self.own


def rebalance_plan(
    context: AssignmentContext,
    assignor: PartitionAssignor,
    owners: Mapping[TopicPartition, Owner],
    session_id: int,
) -> RebalancePlan:
    """The plan of the consumer of ``context``, whose session is ``session_id``.

    ``owners`` are those of today; one of this session is its own, whatever it remembers. Raises what the
    assignor raises.
    """
    assignment = assignor.assign(context)
    share = dict(sorted(assignment.get(context.consumer_id, {}).items()))
    mine = {tp: owner.thread for tp, owner in owners.items() if owner.session_id == session_id}
    own = tuple(tp for tp, thread in share.items() if mine.get(tp) != str(thread))
    return RebalancePlan(
        assignment=assignment,
        share=share,
        release=tuple(tp for tp in sorted(mine) if str(share.get(tp)) != mine[tp]),
        own=own,
        held={tp: owners[tp].thread for tp in own if tp in owners and tp not in mine},
    )
