"""Leader election: choose the leader and the ISR of one partition.

0.10.1 has four selectors in ``PartitionLeaderSelector.scala`` (text 003 names them too). Three of them, for a
dead leader, a reassignment and a controlled shutdown, are one rule here (``next_leader_and_isr``): replicas
that are unassigned, dead or shutting down leave the ISR; the leader stays if it is still in the ISR, else the
first assigned replica of the ISR leads. The fourth, the preferred replica, is elected only on request.

Each result has the next leader epoch and the next version of its znode. The ISR never becomes empty: the
replicas that died last stay in it, without a leader, and the first of them to return leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.partition.replica import LeaderAndIsr

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted (``LeaderAndIsr.LeaderDuringDelete``)."""


@dataclass(frozen=True, slots=True)
class EligibleBrokers:
    """The live brokers, and those of them that lead only if there is no other choice.

    A broker is ``unstable`` if it is shutting down, or has restarted or returned since the last decision.
    """

    live: Collection[int]
    unstable: Collection[int] = ()

    def select(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """Return the live replicas; without the unstable ones, unless all are unstable."""
        live = tuple(replica for replica in replicas if replica in self.live)
        return tuple(replica for replica in live if replica not in self.unstable) or live

    def is_stable(self, replica: int) -> bool:
        """Return whether a replica is live and not unstable."""
        return replica in self.live and replica not in self.unstable


@dataclass(slots=True)
class ElectionCounts:
    """The partitions that got another leader from this broker since its start."""

    all: int = 0
    unclean: int = 0
    """Those whose new leader was not in sync."""

    def add(self, known: LeaderAndIsr | None, elected: LeaderAndIsr) -> None:
        """Count a state that was written, if it has another leader than the known one."""
        if known is not None and elected.leader not in {known.leader, NO_LEADER}:
            self.all += 1
            self.unclean += elected.leader not in known.isr


def first_leader_and_isr(
    replicas: tuple[int, ...], eligible: EligibleBrokers, controller_epoch: int
) -> LeaderAndIsr | None:
    """Elect for a new partition: the first live replica, with all live ones as ISR. None if none lives."""
    in_sync = eligible.select(replicas)
    return LeaderAndIsr(in_sync[0], 0, in_sync, replicas, controller_epoch) if in_sync else None


def next_leader_and_isr(
    known: LeaderAndIsr,
    replicas: tuple[int, ...],
    eligible: EligibleBrokers,
    controller_epoch: int,
    *,
    unclean: bool = False,
    force_new_epoch: bool = False,
) -> LeaderAndIsr | None:
    """Return the state that follows ``known`` for a partition on ``replicas``; None if nothing changes.

    ``unclean``: if no replica of the ISR lives, another one may lead, as the only one in the ISR.
    ``force_new_epoch``: return a new epoch even if nothing else changes.
    """
    in_sync = eligible.select(replica for replica in known.isr if replica in replicas)
    if known.leader in in_sync:
        leader = known.leader
    elif in_sync:
        leader = next(replica for replica in replicas if replica in in_sync)
    elif unclean and (alive := eligible.select(replicas)):
        leader, in_sync = alive[0], alive[:1]
    else:
        leader, in_sync = NO_LEADER, known.isr
    if (leader, in_sync, replicas) == (known.leader, known.isr, known.replicas) and not force_new_epoch:
        return None
    return _next(known, leader, in_sync, replicas, controller_epoch)


def preferred_leader_and_isr(
    known: LeaderAndIsr, replicas: tuple[int, ...], eligible: EligibleBrokers, controller_epoch: int
) -> LeaderAndIsr | None:
    """Elect the first assigned replica. None if it leads already, is not stable or not in the ISR."""
    preferred = replicas[0]
    if known.leader == preferred or preferred not in known.isr or not eligible.is_stable(preferred):
        return None
    return _next(known, preferred, known.isr, replicas, controller_epoch)


def check_election(
    topic_partition: TopicPartition,
    known: LeaderAndIsr | None,
    replicas: tuple[int, ...],
    eligible: EligibleBrokers,
    *,
    unclean: bool,
) -> None:
    """Raise BrokerError unless an election gives a partition in the state ``known`` another leader.

    The preferred replica is elected, or, if ``unclean``, any live one in place of a dead leader.
    """
    preferred, leader = replicas[0], NO_LEADER if known is None else known.leader
    if leader in eligible.live if unclean else leader == preferred:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {topic_partition} already")
    if unclean and (known is None or not eligible.select((*known.isr, *replicas))):
        raise BrokerError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica of {topic_partition} is alive: start one of the brokers {list(replicas)}",
        )
    if not unclean and (known is None or preferred_leader_and_isr(known, replicas, eligible, 0) is None):
        raise BrokerError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred}, the preferred leader of {topic_partition}, is not alive or not in sync",
        )


def _next(
    known: LeaderAndIsr, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], controller_epoch: int
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, known.leader_epoch + 1, isr, replicas, controller_epoch, known.version + 1)
