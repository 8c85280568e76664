"""Who leads: the choice among the replicas of one partition.

Only in-sync replicas may lead; unclean election, and the selectors for reassignment, preferred replicas and
controlled shutdown, come with replication.
"""

from __future__ import annotations

from collections.abc import Collection

from minikafka.partition.leadership import Leadership

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Stands for the leader of a partition whose topic is being deleted (``LeaderAndIsr.LeaderDuringDelete``)."""


def first_leadership(
    replicas: tuple[int, ...], live: Collection[int], controller_epoch: int
) -> Leadership | None:
    """A new partition: the first live replica leads, all live ones are in sync. None when none lives."""
    in_sync = tuple(replica for replica in replicas if replica in live)
    if not in_sync:
        return None
    return Leadership(in_sync[0], 0, in_sync, replicas, controller_epoch)


def next_leadership(known: Leadership, live: Collection[int], controller_epoch: int) -> Leadership | None:
    """A partition whose leader died:
    the first assigned replica that is in sync and alive. None when none is.
    """
    in_sync = tuple(replica for replica in known.isr if replica in live)
    leader = next((replica for replica in known.replicas if replica in in_sync), None)
    if leader is None:
        return None
    return Leadership(
        leader, known.leader_epoch + 1, in_sync, known.replicas, controller_epoch, known.version + 1
    )
