"""Reassignment: partitions get other replicas, asked for in ZooKeeper.

``kafka-reassign-partitions`` of 0.10.1 (text 003, "Partition reassignment"), in its three steps: ``generate``
(generate), ``request`` (execute), ``verify``. The request is the znode ``/admin/reassign_partitions``, from
which the controller takes each partition when all its new replicas are in sync and the old ones are gone. One
znode holds some 15,000 partitions of three replicas; more are refused. Copying can be held to a rate
(``throttles``), which ``remove_throttle`` ends when all is done.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from minikafka.base.errors import BrokerError, ConfigError, CoordinationError, NodeExists, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.zookeeper import throttles
from minikafka.clients.zookeeper_metadata import Replicas
from minikafka.controller.assignment import assign_replicas
from minikafka.registry import paths
from minikafka.registry.admin_paths import Reassignments
from minikafka.registry.brokers import live_brokers
from minikafka.registry.store import Store

OPTION = "partitions"
WHAT = "a reassignment"


class ReassignmentStatus(Enum):
    """How far a partition is."""

    DONE = "done"
    UNDER_WAY = "under way"
    FAILED = "failed"
    """It is not asked for any more, and its replicas are others."""


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one partition."""

    topic_partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adds(self) -> tuple[int, ...]:
        """The brokers that have to copy it."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removes(self) -> tuple[int, ...]:
        """The brokers that delete it."""
        return tuple(one for one in self.before if one not in self.after)


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """How far a partition is, and its replicas now."""

    topic_partition: TopicPartition
    wanted: tuple[int, ...]
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    status: ReassignmentStatus
    reason: str = ""
    """Why it has failed."""

    @property
    def gone(self) -> bool:
        """Whether there is no such partition any more."""
        return not self.replicas


def read_file(
    data: bytes, option: str = OPTION, path: str | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions of a JSON file: ``{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}``.

    Raises ConfigError under the name ``option``, which shows the file's ``path`` (None: its beginning), also
    for what is named twice.
    """
    try:
        found = dict(Reassignments.from_json(data, "the file").partitions)
    except CoordinationError as error:
        raise ConfigError(option, path or zookeeper_metadata.start_of(data), str(error)) from None
    if not found:
        raise ConfigError(option, path or zookeeper_metadata.start_of(data), "it names no partition")
    return found


def read_topics_file(data: bytes, option: str = OPTION, path: str | None = None) -> list[str]:
    """The topics of a JSON file: ``{"topics": [{"topic": "t"}]}``. ConfigError as of ``read_file``."""
    topics = [row.get("topic") for row in zookeeper_metadata.objects_in(data, option, "topics", path)]
    names = [name for name in topics if isinstance(name, str) and name]
    if len(names) < len(topics) or not names or len(set(names)) < len(names):
        why = "each object names a topic, and each another one"
        raise ConfigError(option, path or zookeeper_metadata.start_of(data), why)
    return names


def to_json(replicas: Replicas) -> str:
    """The file of an assignment, which ``read_file`` reads."""
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
    chance: random.Random | None = None,
) -> list[Move]:
    """Spread the partitions of topics over brokers as those of new topics are; nothing is changed.

    broker_ids: those that shall have them, and no others. replicas: of each partition; None: as many as its
    topic has. rack_aware: False passes over the brokers' racks. chance: for the random start of the method.
    Raises ConfigError.
    """
    known = zookeeper_metadata.assigned(store, topics)
    missing = set(topics) - {one.topic for one in known}
    zookeeper_metadata.check_known(store, "topics", [TopicPartition(name, 0) for name in missing], known)
    live = live_brokers(store)
    _check_brokers(broker_ids, live)
    chance = chance or random.Random()
    moves = []
    for topic in sorted(set(topics)):
        own = sorted(one for one in known if one.topic == topic)
        count, named = replicas or len(known[own[0]]), len(broker_ids)
        if count > named:
            were = "broker was" if named == 1 else "brokers were"
            why = f"topic {topic!r} is to have {count} replicas, and {named} {were} named"
            raise ConfigError("brokers", list(broker_ids), f"{why}: name {count}, or give --replicas {named}")
        try:
            assignment = assign_replicas(
                broker_ids,
                len(own),
                count,
                start_index=chance.randrange(len(broker_ids)),
                start_shift=chance.randrange(len(broker_ids)),
                racks={number: live[number].rack for number in broker_ids} if rack_aware else None,
            )
        except BrokerError as error:
            raise ConfigError("brokers", list(broker_ids), f"topic {topic!r}: {error.detail}") from None
        moves += [Move(one, known[one], assignment[place]) for place, one in enumerate(own)]
    return moves


def plan(store: Store, wanted: Replicas) -> list[Move]:
    """What a reassignment would change; partitions that have these replicas already are left out.

    Raises ConfigError for partitions, brokers or lists that cannot be; nothing is changed.
    """
    known = zookeeper_metadata.assigned(store, {one.topic for one in wanted})
    zookeeper_metadata.check_known(store, OPTION, list(wanted), known)
    live = live_brokers(store)
    for one, replicas in sorted(wanted.items()):
        if not replicas or len(set(replicas)) < len(replicas):
            raise ConfigError(str(one), list(replicas), "one or more brokers, each once; nothing was changed")
        _check_brokers(replicas, live)
    return [
        Move(one, known[one], replicas) for one, replicas in sorted(wanted.items()) if known[one] != replicas
    ]


def request(store: Store, moves: Collection[Move], *, throttle: int | None = None) -> None:
    """Ask the controller for what ``plan`` gave; it begins at once, and ``verify`` tells how far it is.

    throttle: bytes a second that each broker may give, and copy, for it. Raises ConfigError (too many for a
    znode) or CoordinationError (one is under way already, there is no controller) before anything is changed.
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


def remove_throttle(store: Store, verdicts: Iterable[PartitionReassignment]) -> bool:
    """Where all of what ``verify`` gave is done, or gone: end the throttles of all brokers and of its topics.

    Whether there were any. As 0.10.1's verify: also those that somebody set by hand. But as the brokers'
    rates are for all moves, they stay while any is under way.
    """
    found = list(verdicts)
    if not all(one.gone or one.status is ReassignmentStatus.DONE for one in found) or under_way(store):
        return False
    return throttles.remove(store, {one.topic_partition.topic for one in found})


def check_not_under_way(store: Store) -> None:
    """CoordinationError where a reassignment is under way, with its partitions."""
    others = under_way(store)
    if others:
        names = zookeeper_metadata.listed(others)
        raise CoordinationError(f"another reassignment is under way: {names}; this plan was not started")
    zookeeper_metadata.check_not_under_way(store, paths.REASSIGN_PARTITIONS, WHAT)


def under_way(store: Store) -> Mapping[TopicPartition, tuple[int, ...]]:
    """What is asked for and not done."""
    try:
        data, _ = store.read(paths.REASSIGN_PARTITIONS)
    except NoNode:
        return {}
    return Reassignments.from_json(data).partitions


def ongoing(store: Store) -> list[PartitionReassignment]:
    """All that is asked for and not done, with the brokers that it waits for where these are not alive.

    What has ended since it was looked for is ``DONE``.
    """
    live = live_brokers(store)
    found = []
    for one in verify(store, under_way(store)):
        dead = [number for number in one.wanted if number not in live]
        if one.status is ReassignmentStatus.UNDER_WAY and dead:
            one = replace(one, reason=f"waits for brokers that are not alive: start {dead}")
        found.append(one)
    return found


def is_under_way(store: Store, wanted: Replicas) -> bool:
    """Whether this very reassignment is under way: every partition is asked for so, or has come so far.

    CoordinationError where it waits for brokers that are dead.
    """
    asked = under_way(store)  # first, as in ``verify``
    own = asked.keys() & wanted.keys()
    if not own:
        return False
    known = zookeeper_metadata.assigned(store, {one.topic for one in wanted})
    if any(asked.get(one, known.get(one)) != replicas for one, replicas in wanted.items()):
        return False
    dead = sorted({one for own_one in own for one in wanted[own_one]} - live_brokers(store).keys())
    if dead:
        raise CoordinationError(
            f"this reassignment is under way already, and waits for brokers that are not alive: start {dead}"
        )
    return True


def verify(store: Store, wanted: Replicas) -> list[PartitionReassignment]:
    """How far each partition is; one that there is not has failed, and has no replicas."""
    asked = under_way(store)  # first: what leaves it later has its assignment by then
    known = zookeeper_metadata.assigned(store, {one.topic for one in wanted})
    found = zookeeper_metadata.states(store, wanted.keys() & known.keys())
    verdicts = []
    for one, replicas in sorted(wanted.items()):
        now = known.get(one, ())
        if one not in known:
            status, reason = ReassignmentStatus.FAILED, zookeeper_metadata.why_unknown(store, one, known)
        else:
            status, reason = _status(replicas, now, asked.get(one))
        in_sync = found[one].isr if one in found else ()
        verdicts.append(PartitionReassignment(one, replicas, now, in_sync, status, reason))
    return verdicts


def _status(
    wanted: tuple[int, ...], now: tuple[int, ...], asked: tuple[int, ...] | None
) -> tuple[ReassignmentStatus, str]:
    has = f"has replicas {list(now)}, wanted {list(wanted)}"
    if asked is not None:
        same = asked == wanted
        return (
            (ReassignmentStatus.UNDER_WAY, "")
            if same
            else (ReassignmentStatus.FAILED, f"{has}, and {list(asked)} are under way")
        )
    return (
        (ReassignmentStatus.DONE, "")
        if now == wanted
        else (ReassignmentStatus.FAILED, f"{has}, and none under way")
    )


def _check_brokers(broker_ids: Sequence[int], live: Collection[int]) -> None:
    if not broker_ids or len(set(broker_ids)) < len(broker_ids):
        raise ConfigError("brokers", list(broker_ids), "one or more brokers, each once; nothing was changed")
    unknown = sorted(set(broker_ids) - set(live))
    if unknown:
        raise ConfigError(
            "brokers", unknown, f"the brokers that live are {sorted(live)}; nothing was changed"
        )
