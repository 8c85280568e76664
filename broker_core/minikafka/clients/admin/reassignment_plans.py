"""Plans of reassignments: which partitions move to which brokers and directories, and how far they are.

``kafka-reassign-partitions`` (text 003, "Partition reassignment"), in its three steps: ``generate``,
``begin`` (execute), ``verify``. Copying can be throttled (``throttles``) until ``remove_throttle``, when all
is done.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from minikafka.base.errors import BrokerError, ConfigError, CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.clients.admin import log_moves, throttles
from minikafka.clients.admin.log_moves import LogMove
from minikafka.clients.admin.partitions import (
    PartitionsBackend,
    check_known,
    replicas_of,
    settled,
    why_unknown,
)
from minikafka.clients.admin.plan_files import OPTION, LogDirs, ReassignmentPlan
from minikafka.controller.assignment import assign_replicas


class ReassignmentStatus(Enum):
    """The status of a partition's reassignment."""

    DONE = "done"
    UNDER_WAY = "under way"
    FAILED = "failed"
    """It is not in the request any more, and its replicas are not the wanted ones."""


@dataclass(frozen=True, slots=True)
class Move:
    """The current and the new replicas of one partition."""

    topic_partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adds(self) -> tuple[int, ...]:
        """The brokers that get a replica."""
        return tuple(broker_id for broker_id in self.after if broker_id not in self.before)

    @property
    def removes(self) -> tuple[int, ...]:
        """The brokers that lose their replica."""
        return tuple(broker_id for broker_id in self.before if broker_id not in self.after)


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """The status of one partition, and its current replicas."""

    topic_partition: TopicPartition
    wanted: tuple[int, ...]
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    status: ReassignmentStatus
    reason: str = ""
    """The reason of a failure."""

    @property
    def deleted(self) -> bool:
        """True if the partition does not exist."""
        return not self.replicas


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """The changes that a plan makes."""

    moves: list[Move]
    """The partitions whose replicas change."""
    log_moves: list[LogMove]

    def __bool__(self) -> bool:
        return bool(self.moves or any(not move.begun for move in self.log_moves))

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that change."""
        moved = {move.topic_partition for move in self.log_moves}
        return moved.union(move.topic_partition for move in self.moves)

    def part_of(self, plan: ReassignmentPlan) -> ReassignmentPlan:
        """Return the part of ``plan`` that makes these changes."""
        changed = sorted(self.partitions)
        log_dirs = {tp: plan.log_dirs[tp] for tp in changed if tp in plan.log_dirs}
        return ReassignmentPlan({tp: plan.replicas[tp] for tp in changed}, log_dirs)

    def rollback(self, plan: ReassignmentPlan) -> ReassignmentPlan:
        """Return the plan that brings back what these changes of ``plan`` change."""
        before = {move.topic_partition: move.before for move in self.moves}
        log_dirs: dict[TopicPartition, dict[int, str]] = {}
        for move in self.log_moves:
            if move.before is not None:
                log_dirs.setdefault(move.topic_partition, {})[move.broker_id] = move.before
        return ReassignmentPlan({tp: plan.replicas[tp] for tp in log_dirs} | before, log_dirs)


@dataclass(frozen=True, slots=True)
class Throttle:
    """The limits of copying, in bytes per second; None: as they are."""

    replication: int | None = None
    log_dirs: int | None = None

    def __bool__(self) -> bool:
        return self.replication is not None or self.log_dirs is not None


def generate(
    backend: PartitionsBackend,
    topics: Collection[str],
    broker_ids: Sequence[int],
    *,
    replicas: int | None = None,
    rack_aware: bool = True,
    rng: random.Random | None = None,
) -> list[Move]:
    """Return a plan that assigns the partitions of topics to brokers, as for new topics. Changes nothing.

    broker_ids: the brokers to use. replicas: the number per partition; None: as many as its topic has.
    rack_aware: False ignores the brokers' racks. rng: for the random start of the assignment. Raises
    ConfigError.
    """
    known = replicas_of(backend, topics)
    live = backend.live_brokers()
    _check_brokers(broker_ids, live)
    rng = rng or random.Random()
    moves = []
    for topic in sorted(set(topics)):
        own = sorted(tp for tp in known if tp.topic == topic)
        count, available = replicas or len(known[own[0]]), len(broker_ids)
        if count > available:
            why = f"{count} replicas of topic {topic!r} need as many brokers, got {available}"
            hint = f"give {count} brokers, or --replicas {available}"
            raise ConfigError("brokers", list(broker_ids), f"{why}: {hint}")
        try:
            assignment = assign_replicas(
                broker_ids,
                len(own),
                count,
                start_index=rng.randrange(len(broker_ids)),
                start_shift=rng.randrange(len(broker_ids)),
                racks={number: live[number] for number in broker_ids} if rack_aware else None,
            )
        except BrokerError as error:
            raise ConfigError("brokers", list(broker_ids), f"topic {topic!r}: {error.detail}") from None
        moves += [Move(tp, known[tp], assignment[position]) for position, tp in enumerate(own)]
    return moves


def changes_of(backend: PartitionsBackend, plan: ReassignmentPlan) -> PlanChanges:
    """Return the changes of a plan; what is so already is left out. Changes nothing.

    Raises ConfigError for invalid partitions, brokers, lists or directories.
    """
    wanted = plan.replicas
    known = backend.assigned({tp.topic for tp in wanted})
    check_known(backend, OPTION, list(wanted), known)
    live = backend.live_brokers()
    for tp, replicas in sorted(wanted.items()):
        if not replicas or len(set(replicas)) < len(replicas):
            raise ConfigError(
                str(tp), list(replicas), "expected one or more distinct brokers; nothing was changed"
            )
        _check_brokers(replicas, live)
    moves = [
        Move(tp, known[tp], replicas) for tp, replicas in sorted(wanted.items()) if known[tp] != replicas
    ]
    return PlanChanges(moves, log_moves.checked_log_moves(backend, plan.log_dirs))


def begin(backend: PartitionsBackend, changes: PlanChanges, throttle: Throttle = Throttle()) -> None:
    """Request the changes of ``changes_of``. They start at once; ``verify`` returns their status.

    Raises ConfigError (too many for a znode) or CoordinationError (another one is in progress, there is no
    controller) before any change.
    """
    wanted = {move.topic_partition: move.after for move in changes.moves}
    if wanted:
        check_not_under_way(backend)
        backend.check_reassignment(wanted)
    if throttle.replication is not None and wanted:
        throttles.set_rates(backend, wanted, throttle.replication)
        before = {move.topic_partition: move.before for move in changes.moves}
        throttles.set_throttled_replicas(backend, before, wanted)
    if throttle.log_dirs is not None:
        brokers = {move.broker_id for move in changes.log_moves}
        throttles.set_log_dirs_rate(backend, brokers, throttle.log_dirs)
    log_moves.begin(backend, changes.log_moves)  # first: a new replica is created in its directory then
    if wanted:
        backend.reassign(wanted)


def change_throttle(backend: PartitionsBackend, plan: ReassignmentPlan, throttle: Throttle) -> list[int]:
    """Change the limits of a plan that is in progress; return the brokers that they are for."""
    brokers: set[int] = set()
    if throttle.replication is not None:
        brokers |= set(throttles.set_rates(backend, plan.replicas, throttle.replication))
    if throttle.log_dirs is not None:
        with_directories = {broker_id for wanted in plan.log_dirs.values() for broker_id in wanted}
        throttles.set_log_dirs_rate(backend, with_directories, throttle.log_dirs)
        brokers |= with_directories
    return sorted(brokers)


def remove_throttle(backend: PartitionsBackend, statuses: Iterable[PartitionReassignment]) -> bool:
    """Remove the throttles of all brokers and topics if all partitions of ``verify`` are done or deleted.

    Returns True if there were any. As 0.10.1's verify, it also removes manually set throttles. But they stay
    while any reassignment is in progress, as the brokers' rates are for all of them.
    """
    found = list(statuses)
    done = all(partition.deleted or partition.status is ReassignmentStatus.DONE for partition in found)
    if not done or backend.under_way():
        return False
    return throttles.remove(backend, {partition.topic_partition.topic for partition in found})


def check_not_under_way(backend: PartitionsBackend) -> None:
    """Raise CoordinationError, with the partitions, if a reassignment is in progress."""
    others = backend.under_way()
    if others:
        names = first_of(sorted(others), 5)
        raise CoordinationError(f"another reassignment is in progress: {names}; this plan was not started")


def ongoing(backend: PartitionsBackend) -> list[PartitionReassignment]:
    """Return the partitions that are being reassigned, with the dead brokers that they wait for.

    A partition that has ended meanwhile is ``DONE``.
    """
    live = backend.live_brokers()
    found = []
    for partition in verify(backend, ReassignmentPlan(backend.under_way())):
        dead = _awaited(live, partition.wanted, partition.in_sync)
        if partition.status is ReassignmentStatus.UNDER_WAY and dead:
            partition = replace(partition, reason=f"waits for brokers that are not alive: start {dead}")
        found.append(partition)
    return found


def _awaited(live: Collection[int], wanted: Collection[int], in_sync: Collection[int]) -> list[int]:
    """Return the dead brokers that a reassignment waits for, sorted: those of new replicas, and those of the
    replicas in sync if all of these are dead, so that there is no leader to copy from.
    """
    dead = set(wanted).difference(live)
    if not set(in_sync).intersection(live):
        dead.update(in_sync)
    return sorted(dead)


def is_under_way(backend: PartitionsBackend, plan: ReassignmentPlan) -> bool:
    """Return True if this very plan is in progress: each partition, and each log, is requested so or done.

    Raises CoordinationError if it waits for dead brokers.
    """
    wanted = plan.replicas
    requested = backend.under_way()  # first, as in ``verify``
    own = requested.keys() & wanted.keys()
    left = log_moves.log_moves(backend, plan.log_dirs)
    moving = [move for move in left if move.topic_partition not in own]
    if not (own or moving) or not all(move.begun for move in moving):
        return False
    known = backend.assigned({tp.topic for tp in wanted})
    if any(requested.get(tp, known.get(tp)) != replicas for tp, replicas in wanted.items()):
        return False
    live, states = backend.live_brokers(), backend.states(own)
    dead = {
        broker_id
        for tp in own
        for broker_id in _awaited(live, wanted[tp], states[tp].in_sync if tp in states else ())
    }
    if dead:
        raise CoordinationError(
            "this reassignment is in progress, and waits for brokers that are not alive: "
            f"start {sorted(dead)}"
        )
    return True


def partitions_under_way(backend: PartitionsBackend, plan: ReassignmentPlan) -> set[TopicPartition]:
    """Return the partitions of a plan that are being reassigned."""
    return backend.under_way().keys() & plan.replicas.keys()


def log_moves_under_way(backend: PartitionsBackend, plan: ReassignmentPlan) -> list[LogMove]:
    """Return the logs of a plan that are being moved."""
    return [move for move in log_moves.log_moves(backend, plan.log_dirs) if move.begun]


def verify(backend: PartitionsBackend, plan: ReassignmentPlan) -> list[PartitionReassignment]:
    """Return the status of each partition; one that does not exist has failed, and has no replicas."""

    def nothing_lags(found: list[PartitionReassignment]) -> bool:
        return not any(
            row.status is ReassignmentStatus.FAILED
            or (row.status is ReassignmentStatus.DONE and not set(row.replicas) <= set(row.in_sync))
            for row in found
        )

    return settled(backend, lambda: _statuses(backend, plan), nothing_lags)


def _statuses(backend: PartitionsBackend, plan: ReassignmentPlan) -> list[PartitionReassignment]:
    wanted = plan.replicas
    requested = backend.under_way()  # first: a partition that leaves it later has its new assignment by then
    known = backend.assigned({tp.topic for tp in wanted})
    found = backend.states(wanted.keys() & known.keys())
    statuses = []
    for tp, replicas in sorted(wanted.items()):
        now = known.get(tp, ())
        if tp not in known:
            status, reason = ReassignmentStatus.FAILED, why_unknown(tp, known, backend)
        else:
            status, reason = _status(replicas, now, requested.get(tp))
        in_sync = found[tp].in_sync if tp in found else ()
        statuses.append(PartitionReassignment(tp, replicas, now, in_sync, status, reason))
    return _with_log_dirs(backend, plan.log_dirs, statuses)


def _status(
    wanted: tuple[int, ...], now: tuple[int, ...], requested: tuple[int, ...] | None
) -> tuple[ReassignmentStatus, str]:
    if requested is not None and requested == wanted:
        return ReassignmentStatus.UNDER_WAY, ""
    if requested is None and now == wanted:
        return ReassignmentStatus.DONE, ""
    other = "no reassignment" if requested is None else f"a reassignment to {list(requested)}"
    reason = f"has replicas {list(now)}, wanted {list(wanted)}; {other} is in progress"
    return ReassignmentStatus.FAILED, reason


def _with_log_dirs(
    backend: PartitionsBackend, log_dirs: LogDirs, statuses: list[PartitionReassignment]
) -> list[PartitionReassignment]:
    """Return the statuses; what is done is under way, or has failed, while a log is in another directory."""
    done = {row.topic_partition for row in statuses if row.status is ReassignmentStatus.DONE}
    left: dict[TopicPartition, list[LogMove]] = {}
    for move in log_moves.log_moves(backend, {tp: log_dirs[tp] for tp in done & log_dirs.keys()}):
        left.setdefault(move.topic_partition, []).append(move)
    return [_with_log_moves(row, left.get(row.topic_partition, [])) for row in statuses]


def _with_log_moves(row: PartitionReassignment, left: list[LogMove]) -> PartitionReassignment:
    reasons = [
        f"the log of broker {move.broker_id} is in {move.before or 'an offline directory'}, wanted "
        f"{move.after}, and is not being moved"
        for move in left
        if not move.begun
    ]
    if reasons:
        return replace(row, status=ReassignmentStatus.FAILED, reason="; ".join(reasons))
    return replace(row, status=ReassignmentStatus.UNDER_WAY) if left else row


def _check_brokers(broker_ids: Sequence[int], live: Collection[int]) -> None:
    if not broker_ids or len(set(broker_ids)) < len(broker_ids):
        raise ConfigError(
            "brokers", list(broker_ids), "expected one or more distinct brokers; nothing was changed"
        )
    unknown = sorted(set(broker_ids) - set(live))
    if unknown:
        which = f"{', '.join(map(str, unknown))} {'is' if len(unknown) == 1 else 'are'} not alive"
        living = ", ".join(map(str, sorted(live))) or "none"
        raise ConfigError(
            "brokers", list(broker_ids), f"{which}; live brokers: {living}; nothing was changed"
        )
