"""Which brokers hold the replicas of new partitions, of a new topic or of one that grows.

Method of ``AdminUtils.assignReplicasToBrokersRackUnaware``: the first replicas go round the brokers from a
random start; the other replicas of a partition follow at a distance that grows by one at each round of the
partitions over the brokers, so that the load of a broker that dies spreads over all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minikafka.base.errors import BrokerError, ErrorCode

Assignment = Mapping[int, tuple[int, ...]]
"""Partition -> ids of its replicas; the first one is the preferred leader."""


def assign_replicas(
    broker_ids: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    start_shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Spread ``partitions`` x ``replication_factor`` replicas over ``broker_ids``.

    ``start_index`` and ``start_shift`` are the two random numbers of the method, given by the caller. The
    partitions are numbered from ``first_partition`` on, for a topic that gets more of them.
    Raises BrokerError INVALID_PARTITIONS and INVALID_REPLICATION_FACTOR.
    """
    if partitions < 1:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"a topic has at least 1 partition, not {partitions}")
    if replication_factor < 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is at least 1, not {replication_factor}",
        )
    brokers = sorted(broker_ids)
    if replication_factor > len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is more than the live brokers, {len(brokers)}",
        )
    assignment: dict[int, tuple[int, ...]] = {}
    shift = start_shift
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start_index) % len(brokers)
        replicas = [first]
        for follower in range(replication_factor - 1):
            distance = 1 + (shift + follower) % (len(brokers) - 1)
            replicas.append((first + distance) % len(brokers))
        assignment[partition] = tuple(brokers[replica] for replica in replicas)
    return assignment


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
    """Raise INVALID_REPLICA_ASSIGNMENT unless ``added`` can be the ``partitions`` that a topic gets more."""
    problem = _wrong_brokers(added, live_broker_ids)
    if len(added) != partitions:
        problem = f"{partitions} partitions are new, and replicas are given for {len(added)}"
    for partition, replicas in added.items():
        if len(replicas) != replication_factor:
            problem = (
                f"partition {partition} has {len(replicas)} replicas, those that are there have "
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
