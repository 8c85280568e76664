"""Resets of the offsets of a group: the rule, its result in each partition, and the change in every storage.

A reset is planned first (``plan_reset``), which changes nothing, and then made (``GroupStores.set_offsets``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition, numbers_by_topic

if TYPE_CHECKING:  # the rules are also imported where nothing connects
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.group_stores import GroupStores, OffsetsStorages

Plan = dict[TopicPartition, int]
"""The new offset of each partition."""


class Rule(Enum):
    """The rule that determines the offsets, with the option of `group reset`; ``--by-duration`` is a time."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    CURRENT = "--to-current"
    TIME = "--to-time"
    SHIFT = "--shift-by"
    FILE = "--from-file"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset. value: the offset, the time in ms since the epoch, or the number of messages."""

    rule: Rule
    value: int = 0


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The offsets of one partition.

    at_time: the offset of the first message at or after the time, None for none.
    planned: the offset in the file.
    """

    start_offset: int
    end_offset: int
    committed: int | None = None
    at_time: int | None = None
    planned: int = 0


def new_offset(target: ResetTarget, log: LogOffsets) -> int:
    """Return the new offset of a partition. It is always within the log, as in Kafka's own tool.

    The result is the end of the log for a time after the last message, and for ``--to-current`` without a
    committed offset.
    """
    if target.rule is Rule.EARLIEST:
        return log.start_offset
    if target.rule is Rule.LATEST:
        return log.end_offset
    if target.rule is Rule.TIME:
        return log.end_offset if log.at_time is None else log.at_time
    if target.rule is Rule.CURRENT and log.committed is None:
        return log.end_offset
    return min(max(_wanted(target, log), log.start_offset), log.end_offset)


def out_of_range_offset(target: ResetTarget, log: LogOffsets) -> int | None:
    """Return the requested offset if the log does not have it, otherwise None."""
    if target.rule not in (Rule.OFFSET, Rule.CURRENT, Rule.SHIFT, Rule.FILE) or (
        target.rule is Rule.CURRENT and log.committed is None
    ):
        return None
    wanted = _wanted(target, log)
    return None if log.start_offset <= wanted <= log.end_offset else wanted


def _wanted(target: ResetTarget, log: LogOffsets) -> int:
    if target.rule is Rule.FILE:
        return log.planned
    return target.value if target.rule is Rule.OFFSET else (log.committed or 0) + target.value


def check_shift(
    target: ResetTarget, committed: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]
) -> None:
    """Raise ConfigError for a shift of a partition without a committed offset."""
    none = [tp for tp in wanted if tp not in committed]
    if target.rule is Rule.SHIFT and none:
        raise ConfigError(
            Rule.SHIFT.value, target.value, f"the group has no committed offset of {none[0]} to shift"
        )


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """The logs and the new offsets of a reset, and the storages that have the group."""

    storages: OffsetsStorages
    logs: Mapping[TopicPartition, LogOffsets]
    offsets: Plan


Chosen = Sequence[tuple[str, Sequence[int] | None]]
"""Topics with their partitions, None for all of them."""


def plan_reset(
    admin: Admin,
    groups: GroupStores,
    group: str,
    target: ResetTarget,
    chosen: Chosen = (),
    plan: Plan | None = None,
    *,
    new_in_zookeeper: bool = False,
) -> PlannedReset:
    """Return the new offsets of a group without members, and change nothing.

    chosen: the topics; none for all that the group has read. plan: with ``Rule.FILE``, the offsets. A group
    that does not exist would be created at the brokers, or ``new_in_zookeeper``. Raises NON_EMPTY_GROUP,
    BrokerError for a partition that does not exist, ConfigError for a target that does not fit.
    """
    from minikafka.clients.admin.group_stores import OffsetsStorage
    from minikafka.registry.paths import consumer_group_path

    groups.check_inactive(group)
    committed = groups.offsets(group)
    if plan is not None:
        chosen = list(numbers_by_topic(plan).items())
    wanted = _partitions(admin, group, chosen, committed)
    logs = _logs(admin, target, wanted, committed, plan or {})
    storages = groups.storages_of(group)
    if not storages:
        storages = (OffsetsStorage.ZOOKEEPER if new_in_zookeeper else OffsetsStorage.KAFKA,)
    if OffsetsStorage.ZOOKEEPER in storages:
        consumer_group_path(group)  # raises for a name that cannot be in a path
    return PlannedReset(storages, logs, {tp: new_offset(target, log) for tp, log in logs.items()})


def _partitions(
    admin: Admin, group: str, chosen: Chosen, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions to reset, sorted. Raise BrokerError for one that does not exist."""
    if not chosen:
        known = admin.list_topics(internal=True)
        if not committed:
            raise ConfigError("--topic", None, f"required, as group {group!r} has no committed offsets")
        return sorted(tp for tp in committed if tp.topic in known)
    wanted = set()
    for name, numbers in chosen:
        topic = admin.describe_topic(name)
        partitions = {
            partition.topic_partition.partition: partition.topic_partition for partition in topic.partitions
        }
        for number in partitions if numbers is None else numbers:
            if number not in partitions:
                raise BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{number}: {topic.partition_range}"
                )
            wanted.add(partitions[number])
    return sorted(wanted)


def _logs(
    admin: Admin,
    target: ResetTarget,
    wanted: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    plan: Plan,
) -> dict[TopicPartition, LogOffsets]:
    from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST

    check_shift(target, committed, wanted)
    first = admin.offsets(dict.fromkeys(wanted, EARLIEST))
    last = admin.offsets(dict.fromkeys(wanted, LATEST))
    timed = admin.offsets(dict.fromkeys(wanted, target.value)) if target.rule is Rule.TIME else {}
    return {
        tp: LogOffsets(first[tp] or 0, last[tp] or 0, committed.get(tp), timed.get(tp), plan.get(tp, 0))
        for tp in wanted
    }
