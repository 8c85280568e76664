"""Options about consumer groups: the group that gets a query's offsets, and the storage of that group.

``offsets.storage`` and ``zookeeper.connect`` are properties of Kafka's consumers. Each is accepted under its
own name, with the prefix ``kafka.`` of client properties, and with ``minikafka.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from minikafka.base.config.config_def import ConfigKey, Faults
from minikafka.base.config.types import TEXT, choice
from minikafka.base.errors import ConfigError

COMMIT_GROUP = "minikafka.commit.group"
STORAGE = "offsets.storage"
ZOOKEEPER = "zookeeper.connect"
_PREFIXES = ("", "kafka.", "minikafka.")
_NAME_MAX_BYTES = 32_767
"""The longest string of Kafka's protocol."""


class Storage(Enum):
    """The storage of a group's offsets."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


_STORAGE = choice({storage.value: storage for storage in Storage})
OPTIONS = (
    ConfigKey(COMMIT_GROUP, TEXT, None, "A group that shows what the query has read."),
    *(
        ConfigKey(
            prefix + STORAGE, _STORAGE, "kafka", "Where that group's offsets are: `kafka` or `zookeeper`."
        )
        for prefix in _PREFIXES
    ),
    *(
        ConfigKey(prefix + ZOOKEEPER, TEXT, None, "ZooKeeper of a group that lives there.")
        for prefix in _PREFIXES
    ),
)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The parsed options about consumer groups.

    commit: the group that a stream's progress is committed to; None for none.
    storage: None when no option sets it. A start is then looked up in both storages, and commits go to Kafka.
    """

    commit: str | None = None
    storage: Storage | None = None
    zookeeper_connect: str | None = None


def group_name(option: str, value: str, name: str) -> str:
    """Return ``name`` stripped.

    Raise ConfigError with the whole ``value`` when it is not a valid group id.
    """
    name = name.strip()
    if not name:
        raise ConfigError(option, value, "must name a consumer group")
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > _NAME_MAX_BYTES:
        raise ConfigError(option, value, "is not a valid group name: it must be printable text")
    return name


def group_options(options: Mapping[str, str], *, embedded: bool, starts_at: str | None) -> GroupOptions:
    """Parse ``options`` (keys in lower case). Raise ConfigErrors for invalid ones.

    embedded: the query uses the embedded broker, whose ZooKeeper is known. starts_at: the group whose offsets
    are the query's start.
    """
    faults = Faults()
    storage = faults.attempt(lambda: _storage(options), None)
    connect = faults.attempt(lambda: _zookeeper(options), None)
    commit = options.get(COMMIT_GROUP)
    if commit is not None:
        commit = faults.attempt(partial(group_name, COMMIT_GROUP, commit, commit), None)
    faults.check(options)
    if storage is Storage.ZOOKEEPER:
        if connect is None and not embedded and (commit is not None or starts_at is not None):
            raise ConfigError(
                ZOOKEEPER,
                None,
                f"must name the ZooKeeper of the group, HOST:PORT/CHROOT, with {STORAGE}=zookeeper",
            )
        for option, group in ((COMMIT_GROUP, commit), ("startingOffsets", starts_at)):
            if group is not None:
                faults.attempt(partial(_check_in_zookeeper, option, group), None)
        faults.check(options)
    return GroupOptions(commit, storage, connect)


def _storage(options: Mapping[str, str]) -> Storage | None:
    name, text = _property(options, STORAGE)
    storage: Storage | None = None if text is None else _STORAGE.parse(name, text)
    return storage


def _zookeeper(options: Mapping[str, str]) -> str | None:
    name, text = _property(options, ZOOKEEPER)
    if text is None:
        return None
    from minikafka.registry.zookeeper_address import ZOOKEEPER_CONNECT  # not for queries without such a group

    connect: str = ZOOKEEPER_CONNECT.parse(name, text)
    return connect


def without_effect(options: Mapping[str, str], *, used: bool) -> tuple[str, ...]:
    """Return a warning for options that have no effect because no group is named."""
    given = [key.name for key in OPTIONS if key.name in options and key.name != COMMIT_GROUP]
    if used or not given:
        return ()
    return (
        f"{', '.join(given)} has no effect: neither {COMMIT_GROUP} nor startingOffsets=group:… names a group",
    )


def _property(options: Mapping[str, str], property_name: str) -> tuple[str, str | None]:
    """Return the option that sets a property, and its value. Raise ConfigError for two that differ."""
    given = [
        (prefix + property_name, options[prefix + property_name])
        for prefix in _PREFIXES
        if prefix + property_name in options
    ]
    if len({value.strip() for _, value in given}) > 1:
        raise ConfigError(*given[1], f"conflicts with {given[0][0]}={given[0][1]!r}; set only one of them")
    return given[0] if given else (property_name, None)


def _check_in_zookeeper(option: str, group: str) -> None:
    if "/" in group or group in {".", ".."}:
        raise ConfigError(option, group, "is not a valid group name in ZooKeeper, where it is part of a path")
