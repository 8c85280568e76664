"""Partition reassignments: requests in ZooKeeper to move replicas to other brokers.

``kafka-reassign-partitions`` of 0.10.1 (text 003, "Partition reassignment"), in its three steps: ``generate``
(generate), ``request`` (execute), ``verify``. The request is the znode ``/admin/reassign_partitions``, from
which the controller removes each partition when all its new replicas are in sync and the old ones are
deleted. One znode holds some 15,000 partitions of three replicas; more are rejected. Copying can be throttled
(``throttles``) until ``remove_throttle``, when all is done.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from minikafka.base.errors import BrokerError, ConfigError, CoordinationError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.zookeeper import throttles
from minikafka.clients.zookeeper_metadata import Replicas
from minikafka.controller.assignment import assign_replicas
from minikafka.registry import paths
from minikafka.registry.brokers import live_brokers
from minikafka.registry.controller import REASSIGNMENTS, Reassignments
from minikafka.registry.store import Store
from minikafka.registry.topics import read_states
from minikafka.registry.znodes import Znodes

OPTION = "partitions"
WHAT = "a reassignment"


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


def read_file(
    data: bytes, option: str = OPTION, path: str | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the partitions in a JSON file: ``{"partitions": [{"topic": "t", "partition": 0, "replicas":
    [1]}]}``.

    Raises ConfigError under the name ``option``, which shows the file's ``path`` (None: its start), also for
    duplicates, and for ``log_dirs`` other than ``any``.
    """
    value = path or zookeeper_metadata.start_of(data)
    try:
        found = dict(Reassignments.from_json(data, "the file").partitions)
    except CoordinationError as error:
        raise ConfigError(option, value, str(error)) from None
    if not found:
        raise ConfigError(option, value, "expected at least one partition")
    for row in zookeeper_metadata.objects_in(data, "partitions", option, value):
        log_dirs = row.get("log_dirs", [])
        if not isinstance(log_dirs, list) or any(log_dir != "any" for log_dir in log_dirs):
            raise ConfigError(
                option,
                value,
                "log_dirs name directories, and ZooKeeper has no place for them: use "
                "`kafka-reassign-partitions.sh --bootstrap-server`, or leave them out",
            )
    return found


def read_topics_file(data: bytes, option: str = OPTION, path: str | None = None) -> list[str]:
    """Return the topics in a JSON file: ``{"topics": [{"topic": "t"}]}``. Raises as ``read_file``."""
    value = path or zookeeper_metadata.start_of(data)
    topics = [row.get("topic") for row in zookeeper_metadata.objects_in(data, "topics", option, value)]
    names = [name for name in topics if isinstance(name, str) and name]
    if len(names) < len(topics) or not names or len(set(names)) < len(names):
        raise ConfigError(option, value, "expected objects with distinct topics")
    return names


def to_json(replicas: Replicas) -> str:
    """Return the JSON of an assignment, which ``read_file`` reads."""
    rows = [
        {"topic": topic, "partition": partition, "replicas": list(replicas[topic, partition])}  # type: ignore[index]
        for topic, partition in sorted(replicas)
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"), ensure_ascii=False)


def generate(
    store: Store,
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
    known = zookeeper_metadata.replicas_of(store, topics)
    live = live_brokers(store)
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
                racks={number: live[number].broker.rack for number in broker_ids} if rack_aware else None,
            )
        except BrokerError as error:
            raise ConfigError("brokers", list(broker_ids), f"topic {topic!r}: {error.detail}") from None
        moves += [Move(tp, known[tp], assignment[position]) for position, tp in enumerate(own)]
    return moves


def plan(store: Store, wanted: Replicas) -> list[Move]:
    """Return the changes of a reassignment; partitions that have these replicas already are left out.

    Changes nothing. Raises ConfigError for invalid partitions, brokers or lists.
    """
    known = zookeeper_metadata.assigned(store, {tp.topic for tp in wanted})
    zookeeper_metadata.check_known(store, OPTION, list(wanted), known)
    live = live_brokers(store)
    for tp, replicas in sorted(wanted.items()):
        if not replicas or len(set(replicas)) < len(replicas):
            raise ConfigError(
                str(tp), list(replicas), "expected one or more distinct brokers; nothing was changed"
            )
        _check_brokers(replicas, live)
    return [Move(tp, known[tp], replicas) for tp, replicas in sorted(wanted.items()) if known[tp] != replicas]


def request(store: Store, moves: Collection[Move], *, throttle: int | None = None) -> None:
    """Request the moves of ``plan`` from the controller. They start at once; ``verify`` returns their status.

    throttle: bytes per second that each broker may send, and copy, for it. Raises ConfigError (too many for a
    znode) or CoordinationError (another one is in progress, there is no controller) before any change.
    """
    wanted = {move.topic_partition: move.after for move in moves}
    try:
        data = Reassignments(wanted).to_json()
    except CoordinationError as error:
        raise ConfigError(OPTION, len(moves), str(error)) from None
    check_not_under_way(store)
    zookeeper_metadata.check_controller(store)
    if throttle is not None:
        throttles.set_rates(store, wanted, throttle)
        throttles.set_throttled_replicas(store, {move.topic_partition: move.before for move in moves}, wanted)
    try:
        store.create(paths.REASSIGN_PARTITIONS, data, make_parents=True)
    except NodeExists:  # meanwhile
        check_not_under_way(store)
        raise


def remove_throttle(store: Store, statuses: Iterable[PartitionReassignment]) -> bool:
    """Remove the throttles of all brokers and topics if all partitions of ``verify`` are done or deleted.

    Returns True if there were any. As 0.10.1's verify, it also removes manually set throttles. But the
    brokers' rates stay while any reassignment is in progress, as they are for all of them.
    """
    found = list(statuses)
    done = all(partition.deleted or partition.status is ReassignmentStatus.DONE for partition in found)
    if not done or under_way(store):
        return False
    return throttles.remove(store, {partition.topic_partition.topic for partition in found})


def check_not_under_way(store: Store) -> None:
    """Raise CoordinationError, with the partitions, if a reassignment is in progress."""
    others = under_way(store)
    if others:
        names = first_of(sorted(others), 5)
        raise CoordinationError(f"another reassignment is in progress: {names}; this plan was not started")
    zookeeper_metadata.check_not_under_way(store, paths.REASSIGN_PARTITIONS, WHAT)


def under_way(store: Store) -> Mapping[TopicPartition, tuple[int, ...]]:
    """Return the partitions of the current request, with their wanted replicas."""
    found = Znodes(store).read(paths.REASSIGN_PARTITIONS, REASSIGNMENTS)
    return {} if found is None else found.partitions


def ongoing(store: Store) -> list[PartitionReassignment]:
    """Return the partitions of the current request, with the dead brokers that they wait for.

    A partition that has ended meanwhile is ``DONE``.
    """
    live = live_brokers(store)
    found = []
    for partition in verify(store, under_way(store)):
        dead = [broker_id for broker_id in partition.wanted if broker_id not in live]
        if partition.status is ReassignmentStatus.UNDER_WAY and dead:
            partition = replace(partition, reason=f"waits for brokers that are not alive: start {dead}")
        found.append(partition)
    return found


def is_under_way(store: Store, wanted: Replicas) -> bool:
    """Return True if this very reassignment is in progress: each partition is requested so, or done.

    Raises CoordinationError if it waits for dead brokers.
    """
    requested = under_way(store)  # first, as in ``verify``
    own = requested.keys() & wanted.keys()
    if not own:
        return False
    known = zookeeper_metadata.assigned(store, {tp.topic for tp in wanted})
    if any(requested.get(tp, known.get(tp)) != replicas for tp, replicas in wanted.items()):
        return False
    dead = sorted({broker_id for tp in own for broker_id in wanted[tp]} - live_brokers(store).keys())
    if dead:
        raise CoordinationError(
            f"this reassignment is in progress, and waits for brokers that are not alive: start {dead}"
        )
    return True


def verify(store: Store, wanted: Replicas) -> list[PartitionReassignment]:
    """Return the status of each partition; one that does not exist has failed, and has no replicas."""
    requested = under_way(store)  # first: a partition that leaves it later has its new assignment by then
    known = zookeeper_metadata.assigned(store, {tp.topic for tp in wanted})
    found = read_states(store, wanted.keys() & known.keys())
    statuses = []
    for tp, replicas in sorted(wanted.items()):
        now = known.get(tp, ())
        if tp not in known:
            status, reason = ReassignmentStatus.FAILED, zookeeper_metadata.why_unknown(store, tp, known)
        else:
            status, reason = _status(replicas, now, requested.get(tp))
        in_sync = found[tp].isr if tp in found else ()
        statuses.append(PartitionReassignment(tp, replicas, now, in_sync, status, reason))
    return statuses


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


def _check_brokers(broker_ids: Sequence[int], live: Collection[int]) -> None:
    if not broker_ids or len(set(broker_ids)) < len(broker_ids):
        raise ConfigError(
            "brokers", list(broker_ids), "expected one or more distinct brokers; nothing was changed"
        )
    unknown = sorted(set(broker_ids) - set(live))
    if unknown:
        raise ConfigError(
            "brokers", unknown, f"not alive; live brokers are {sorted(live)}; nothing was changed"
        )
