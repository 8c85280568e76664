"""Assignment of replicas to brokers, for the partitions of a new topic or new partitions of a topic.

Methods of ``AdminUtils`` (0.10.1; text 003 names both). Without racks the first replicas go round the brokers
from a random start; the other replicas of a partition follow at a distance that grows by one at each round of
the partitions over the brokers, so that the load of a dead broker spreads over all others. If all brokers
have racks, they are ordered so that racks alternate, and a partition gets a second replica in a rack only
when it has one in every rack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode

Replicas = tuple[int, ...]
"""The ids of the brokers of a partition, the preferred leader first."""
Assignment = Mapping[int, Replicas]
"""Partition -> ids of its replicas; the first one is the preferred leader."""


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that moves: it has its new replicas, and the old ones until the new ones are in sync."""

    target: Replicas
    """The new replicas."""
    added: Replicas
    """Those replicas of the partition that it did not have before."""
    is_requested: bool = False
    """True if ``/admin/reassign_partitions`` has an entry for it."""

    @property
    def adding(self) -> Replicas:
        """The new replicas that the partition did not have before."""
        return tuple(replica for replica in self.added if replica in self.target)

    @property
    def dropped(self) -> Replicas:
        """The replicas that an earlier request had added, and that are not among the new ones."""
        return tuple(replica for replica in self.added if replica not in self.target)

    def kept(self, assigned: Replicas) -> Replicas:
        """Return the replicas of the partition, which has ``assigned``, without those dropped."""
        return tuple(replica for replica in assigned if replica not in self.dropped)

    def removing(self, assigned: Replicas) -> Replicas:
        """Return the replicas of the partition, which has ``assigned``, that it loses."""
        return tuple(replica for replica in assigned if replica not in self.target)


def assign_replicas(
    broker_ids: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    start_shift: int,
    first_partition: int = 0,
    racks: Mapping[int, str | None] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Spread ``partitions`` x ``replication_factor`` replicas over ``broker_ids``.

    ``start_index`` and ``start_shift`` are the two random numbers of the method, given by the caller. The
    partitions are numbered from ``first_partition`` on, for a topic that gets more of them. ``racks``: the
    rack of each broker that has one. Raises BrokerError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, and
    INVALID_REPLICA_ASSIGNMENT where some brokers have racks and others none.
    """
    if partitions < 1:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS, f"the number of partitions must be at least 1, not {partitions}"
        )
    if replication_factor < 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor must be at least 1, not {replication_factor}",
        )
    if replication_factor > len(broker_ids):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of live brokers, "
            f"{len(broker_ids)}",
        )
    rack_of = _racks(broker_ids, racks or {})
    row = rack_alternated(rack_of)
    rack_count = len(set(rack_of.values()))
    assignment: dict[int, tuple[int, ...]] = {}
    shift = start_shift
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(row) == 0:
            shift += 1
        first = (partition + start_index) % len(row)
        # A single rack for all equals no racks: then every broker at its distance is chosen.
        followers = _followers(row, first, shift * rack_count)
        replicas = [row[first]]
        while len(replicas) < replication_factor:
            broker_id = next(followers)
            used = {rack_of[replica] for replica in replicas}
            if broker_id not in replicas and (rack_of[broker_id] not in used or len(used) == rack_count):
                replicas.append(broker_id)
        assignment[partition] = tuple(replicas)
    return assignment


def racks_if_all_have_one(broker_ids: Sequence[int], racks: Mapping[int, str | None]) -> dict[int, str]:
    """Return the racks if each of these brokers has one, otherwise none (``RackAwareMode.Safe`` of 0.10.1).

    For assignments that must not fail when only a part of the brokers has racks.
    """
    known = {broker_id: rack for broker_id in broker_ids if (rack := racks.get(broker_id)) is not None}
    return known if len(known) == len(broker_ids) else {}


def rack_alternated(rack_of: Mapping[int, str]) -> list[int]:
    """Order brokers so that racks alternate: the first of each rack, then the second of each, and so on."""
    places = []
    for rack in sorted(set(rack_of.values())):
        members = sorted(broker_id for broker_id, own in rack_of.items() if own == rack)
        places += [(place, rack, broker_id) for place, broker_id in enumerate(members)]
    return [broker_id for _, _, broker_id in sorted(places)]


def _racks(broker_ids: Sequence[int], racks: Mapping[int, str | None]) -> dict[int, str]:
    """Return the rack of each broker, the same for all if no broker has one."""
    without = sorted(broker_id for broker_id in broker_ids if racks.get(broker_id) is None)
    if len(without) == len(broker_ids):
        return dict.fromkeys(broker_ids, "")
    if without:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"brokers {without} have no broker.rack, but others do: set it on all brokers, or ignore racks "
            "(--disable-rack-aware)",
        )
    return {broker_id: str(racks[broker_id]) for broker_id in broker_ids}


def _followers(row: Sequence[int], first: int, shift: int) -> Iterator[int]:
    """Yield the other brokers in an endless cycle, from a distance of ``shift`` + 1 on."""
    place = 0
    while True:
        distance = 1 + (shift + place) % (len(row) - 1)
        yield row[(first + distance) % len(row)]
        place += 1


def check_assignment(assignment: Assignment, live_broker_ids: Sequence[int]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless a given assignment can be used for a new topic."""
    problem = None
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        problem = f"partitions must be numbered from 0 without gaps, not {sorted(assignment)}"
    else:
        factors = {len(replicas) for replicas in assignment.values()}
        if len(factors) != 1 or 0 in factors:
            problem = f"all partitions must have the same number of replicas, not {sorted(factors)}"
    problem = _wrong_brokers(assignment, live_broker_ids) or problem
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def check_growth(
    added: Assignment, partitions: int, replication_factor: int, live_broker_ids: Sequence[int]
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless ``added`` is valid for ``partitions`` new partitions."""
    problem = _wrong_brokers(added, live_broker_ids)
    if len(added) != partitions:
        problem = f"expected replicas for {partitions} new partitions, not for {len(added)}"
    for partition, replicas in added.items():
        if len(replicas) != replication_factor:
            problem = (
                f"partition {partition} has {len(replicas)} replicas, the existing partitions have "
                f"{replication_factor}"
            )
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _wrong_brokers(assignment: Assignment, live_broker_ids: Sequence[int]) -> str | None:
    problem = None
    for partition, replicas in assignment.items():
        unknown = sorted(set(replicas) - set(live_broker_ids))
        if len(set(replicas)) != len(replicas):
            problem = f"partition {partition} names a broker twice: {list(replicas)}"
        elif unknown:
            problem = f"partition {partition} names brokers that are not alive: {unknown}"
    return problem
