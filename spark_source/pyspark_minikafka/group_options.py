"""Options about consumer groups: where a query's offsets go, and which storage a group keeps them in.

``offsets.storage`` and ``zookeeper.connect`` are properties of Kafka's consumers. They are taken under their
own names, with ``kafka.`` as any client property, and with ``minikafka.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import ConfigError

COMMIT_GROUP = "minikafka.commit.group"
STORAGE = "offsets.storage"
ZOOKEEPER = "zookeeper.connect"
_PREFIXES = ("", "kafka.", "minikafka.")
NAMES = (COMMIT_GROUP, *(prefix + name for name in (STORAGE, ZOOKEEPER) for prefix in _PREFIXES))

_NAME_MAX_BYTES = 32_767
"""Kafka's protocol gives a text that many."""


class Storage(Enum):
    """Where a group keeps its offsets."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """commit: the group that is told the offsets of committed batches, of a stream; None for none.

    storage: None where no option says so. A start is then looked for in both, and commits go to Kafka.
    """

    commit: str | None = None
    storage: Storage | None = None
    zookeeper_connect: str | None = None


def group_name(option: str, value: str, name: str) -> str:
    """``name`` without blanks around it when it can be a group's; ConfigError with the whole ``value``."""
    name = name.strip()
    if not name:
        raise ConfigError(option, value, "must name a consumer group")
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > _NAME_MAX_BYTES:
        raise ConfigError(option, value, "names no consumer group: a name is printable text")
    return name


def group_options(options: Mapping[str, str], *, embedded: bool, starts_at: str | None) -> GroupOptions:
    """Parse the options, whose keys are in lower case; ConfigError for the first that is wrong.

    embedded: the brokers are our own, whose ZooKeeper is known. starts_at: the group at whose offsets the
    query starts.
    """
    name, text = _one(options, STORAGE)
    storage = None
    if text is not None:
        try:
            storage = Storage(text.strip().lower())
        except ValueError:
            raise ConfigError(name, text, "must be kafka or zookeeper") from None
    name, connect = _one(options, ZOOKEEPER)
    if connect is not None:
        _check_connect(name, connect)
    commit = options.get(COMMIT_GROUP)
    if commit is not None:
        commit = group_name(COMMIT_GROUP, commit, commit)
    if storage is Storage.ZOOKEEPER:
        if connect is None and not embedded and (commit is not None or starts_at is not None):
            raise ConfigError(
                ZOOKEEPER,
                None,
                f"must name the ZooKeeper of the group, HOST:PORT/CHROOT, with {STORAGE}=zookeeper",
            )
        for option, group in ((COMMIT_GROUP, commit), ("startingOffsets", starts_at)):
            if group is not None:
                _check_in_zookeeper(option, group)
    return GroupOptions(commit, storage, None if connect is None else connect.strip())


def without_effect(options: Mapping[str, str], *, used: bool) -> tuple[str, ...]:
    """A sentence for the log where options are given that no group needs."""
    given = [name for name in NAMES if name in options and name != COMMIT_GROUP]
    if used or not given:
        return ()
    return (
        f"{', '.join(given)} has no effect: neither {COMMIT_GROUP} nor startingOffsets=group:… names a group",
    )


def _one(options: Mapping[str, str], property_name: str) -> tuple[str, str | None]:
    """The option that gives a property, and its value; two that differ are refused."""
    given = [
        (prefix + property_name, options[prefix + property_name])
        for prefix in _PREFIXES
        if prefix + property_name in options
    ]
    if len({value.strip() for _, value in given}) > 1:
        raise ConfigError(*given[1], f"is not what {given[0][0]} says, {given[0][1]!r}: give one of them")
    return given[0] if given else (property_name, None)


def _check_connect(name: str, connect: str) -> None:
    from minikafka.registry.zookeeper import parse_connect

    try:
        if not connect.strip():
            raise ConfigError(name, connect, "must be HOST:PORT, several with commas between, then /CHROOT")
        parse_connect(connect)
    except ConfigError as problem:
        raise ConfigError(name, connect, problem.allowed) from None


def _check_in_zookeeper(option: str, group: str) -> None:
    if "/" in group or group in {".", ".."}:
        raise ConfigError(option, group, "cannot be a group in ZooKeeper: its name is part of a path")
