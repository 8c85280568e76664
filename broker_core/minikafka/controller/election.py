"""Who leads: the choice among the replicas of one partition.

The four selectors of ``PartitionLeaderSelector.scala`` (0.10.1; text 003 names them too) give each partition
a leader and the replicas in sync. Three of them, for a leader that died, for other replicas, and for a broker
that stops, are one rule here (``next_leadership``): who is not assigned, dead or about to stop leaves the
replicas in sync; the leader stays if it is still among them, else the first assigned of them leads. The
fourth, the preferred replica, is chosen only where somebody asks for it.

Each value is of the next leader epoch and the next version of its znode. The replicas in sync never become
none: those that died last stay, with no leader, and whoever of them comes back first leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minikafka.partition.replica import Leadership

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Stands for the leader of a partition whose topic is being deleted (``LeaderAndIsr.LeaderDuringDelete``)."""


@dataclass(frozen=True, slots=True)
class Electorate:
    """The live brokers, and those of them that are taken only if no other will do.

    These are stopping, or were restarted, or came back, since the last decision.
    """

    live: Collection[int]
    unsure: Collection[int] = ()

    def choose(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """The live ones, without the unsure where others are left."""
        live = tuple(replica for replica in replicas if replica in self.live)
        return tuple(replica for replica in live if replica not in self.unsure) or live

    def is_sure(self, replica: int) -> bool:
        """Whether a replica lives, and is going to stay."""
        return replica in self.live and replica not in self.unsure


def first_leadership(
    replicas: tuple[int, ...], electorate: Electorate, controller_epoch: int
) -> Leadership | None:
    """A new partition: the first live replica leads, all live ones are in sync. None when none lives."""
    in_sync = electorate.choose(replicas)
    return Leadership(in_sync[0], 0, in_sync, replicas, controller_epoch) if in_sync else None


def next_leadership(
    known: Leadership,
    replicas: tuple[int, ...],
    electorate: Electorate,
    controller_epoch: int,
    *,
    unclean: bool = False,
    again: bool = False,
) -> Leadership | None:
    """What follows ``known`` for a partition on ``replicas``; None when that is still right.

    ``unclean``: a replica out of sync may lead, alone, if none in sync lives. ``again``: in a new epoch even
    if nothing else changes.
    """
    in_sync = electorate.choose(replica for replica in known.isr if replica in replicas)
    if known.leader in in_sync:
        leader = known.leader
    elif in_sync:
        leader = next(replica for replica in replicas if replica in in_sync)
    elif unclean and (alive := electorate.choose(replicas)):
        leader, in_sync = alive[0], alive[:1]
    else:
        leader, in_sync = NO_LEADER, known.isr
    if (leader, in_sync, replicas) == (known.leader, known.isr, known.replicas) and not again:
        return None
    return _next(known, leader, in_sync, replicas, controller_epoch)


def preferred_leadership(
    known: Leadership, replicas: tuple[int, ...], electorate: Electorate, controller_epoch: int
) -> Leadership | None:
    """The first assigned replica leads, if it lives and is in sync; None where it cannot, or does."""
    preferred = replicas[0]
    if known.leader == preferred or preferred not in known.isr or not electorate.is_sure(preferred):
        return None
    return _next(known, preferred, known.isr, replicas, controller_epoch)


def _next(
    known: Leadership, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], controller_epoch: int
) -> Leadership:
    return Leadership(leader, known.leader_epoch + 1, isr, replicas, controller_epoch, known.version + 1)
