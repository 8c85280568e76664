"""Where ``group reset`` lets a group go on: the rule, and what it makes of each partition.

A plan, as ``--export`` prints it and ``--from-file`` reads it, is lines ``topic,partition,offset``, as
Kafka's own tool has it from 0.11 on, or JSON in the form of Kafka's ``--offset-json-file``:
``{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 7}]}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeGuard

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition

OPTIONS = (
    "--to-earliest, --to-latest, --to-current, --to-offset N, --to-time T, --by-duration D, --shift-by N "
    "or --from-file F"
)
FROM_FILE = "--from-file"
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

Plan = dict[TopicPartition, int]
"""Where to go on in each partition."""


class Rule(Enum):
    """One of the options; ``--by-duration`` is a time too."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    CURRENT = "--to-current"
    TIME = "--to-time"
    SHIFT = "--shift-by"
    FILE = FROM_FILE


@dataclass(frozen=True, slots=True)
class Target:
    """Where to; ``value`` is the offset, the time in ms since the epoch, or the number of messages."""

    rule: Rule
    value: int = 0


class NotOneTarget(ConfigError):
    """Nothing says where the group is to go on, or several options do."""

    def __init__(self, given: Sequence[str]) -> None:
        super().__init__(given[1] if given else "--to-earliest", "", f"give one of {OPTIONS}")
        self._given = given

    def __str__(self) -> str:
        told = f"{' and '.join(self._given)} say different things" if self._given else "where to is not said"
        return f"{told}: {self.allowed}"


def parse_target(
    *,
    earliest: bool,
    latest: bool,
    current: bool,
    offset: int | None,
    time_ms: int | None,
    since_ms: int | None,
    shift: int | None,
    file: bool = False,
) -> Target:
    """The one target that was given. NotOneTarget for none, and for several."""
    given = [
        *([Target(Rule.EARLIEST)] if earliest else []),
        *([Target(Rule.LATEST)] if latest else []),
        *([Target(Rule.CURRENT)] if current else []),
        *([] if offset is None else [Target(Rule.OFFSET, offset)]),
        *([] if time_ms is None else [Target(Rule.TIME, time_ms)]),
        *([] if since_ms is None else [Target(Rule.TIME, since_ms)]),
        *([] if shift is None else [Target(Rule.SHIFT, shift)]),
        *([Target(Rule.FILE)] if file else []),
    ]
    if len(given) != 1:
        raise NotOneTarget([target.rule.value for target in given])
    return given[0]


def parse_offset(text: str) -> int:
    """``--to-offset N``. Raises ConfigError."""
    number = _digits(text.strip())
    if not _is_number(number, OFFSET_MAX):
        raise ConfigError(Rule.OFFSET.value, text, "must be an offset, a number from 0 on")
    return number


def parse_shift(text: str) -> int:
    """``--shift-by N``. Raises ConfigError."""
    digits = _digits(text.strip().removeprefix("-"))
    if not _is_number(digits, OFFSET_MAX):
        raise ConfigError(Rule.SHIFT.value, text, "must be a number of messages, as 10 or -10")
    return -digits if text.strip().startswith("-") else digits


def parse_file(text: str) -> Path:
    """``--from-file F``. ConfigError for no name, which would silently mean the current directory."""
    if not text.strip():
        raise ConfigError(FROM_FILE, text, "must name a file")
    return Path(text)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """``T`` or ``T:0,2`` as topic and partitions, None for all of them. Raises ConfigError."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = [part.strip() for part in numbers.split(",")]
    if not topic or not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError("--topic", text, "a topic, or topic:partition,partition")
    return topic, tuple(dict.fromkeys(map(int, parts)))


@dataclass(frozen=True, slots=True)
class Log:
    """One partition. ``at_time`` is the offset of the first message at or after the time, None for none;
    ``planned`` the one that a file names.
    """

    start_offset: int
    end_offset: int
    committed: int | None = None
    at_time: int | None = None
    planned: int = 0


def new_offset(target: Target, log: Log) -> int:
    """Where the group goes on in a partition: always within the log, as in Kafka's own tool.

    A time after the last message is the end; so is the present offset where there is none.
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


def out_of_range_offset(target: Target, log: Log) -> int | None:
    """The offset that was asked for where the log does not have it; None where it does."""
    if target.rule not in (Rule.OFFSET, Rule.CURRENT, Rule.SHIFT, Rule.FILE) or (
        target.rule is Rule.CURRENT and log.committed is None
    ):
        return None
    wanted = _wanted(target, log)
    return None if log.start_offset <= wanted <= log.end_offset else wanted


def _wanted(target: Target, log: Log) -> int:
    if target.rule is Rule.FILE:
        return log.planned
    return target.value if target.rule is Rule.OFFSET else (log.committed or 0) + target.value


def check_shift(
    target: Target, committed: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]
) -> None:
    """ConfigError where an offset shall be shifted that there is not."""
    none = [tp for tp in wanted if tp not in committed]
    if target.rule is Rule.SHIFT and none:
        raise ConfigError(
            Rule.SHIFT.value, target.value, f"the group has no offset of {none[0]} that could be shifted"
        )


def read_plan(data: bytes, path: str) -> Plan:
    """The plan in a file. ConfigError, with its ``path`` and the place in it, for what is none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(FROM_FILE, path, f"no text in UTF-8: {error.reason}") from None
    rows = _json_rows(text, path) if text.lstrip().startswith(("{", "[")) else _lines(text, path)
    plan: Plan = {}
    for where, topic, partition, offset in rows:
        if not isinstance(topic, str) or not topic or not _is_number(partition, PARTITION_MAX):
            raise ConfigError(FROM_FILE, path, f"{where}: a topic and the number of a partition are wanted")
        if not _is_number(offset, OFFSET_MAX):
            raise ConfigError(FROM_FILE, path, f"{where}: an offset is wanted, not {offset!r}")
        tp = TopicPartition(topic, partition)
        if tp in plan:
            raise ConfigError(FROM_FILE, path, f"{where}: {tp} is there twice")
        plan[tp] = offset
    if not plan:
        raise ConfigError(FROM_FILE, path, "there is no offset in it")
    return plan


def _json_rows(text: str, path: str) -> list[tuple[str, object, object, object]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(FROM_FILE, path, f"no JSON: {error}") from None
    rows = whole.get("partitions") if isinstance(whole, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(FROM_FILE, path, 'an object with a list "partitions" of objects is wanted')
    return [
        (f"entry {number}", row.get("topic"), row.get("partition"), row.get("offset"))
        for number, row in enumerate(rows, 1)
    ]


def _lines(text: str, path: str) -> list[tuple[str, object, object, object]]:
    rows: list[tuple[str, object, object, object]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [part.strip().strip('"') for part in line.split(",")]
        if len(parts) != 3:
            raise ConfigError(FROM_FILE, path, f"line {number}: topic,partition,offset is wanted")
        topic, partition, offset = parts
        rows.append((f"line {number}", topic, _digits(partition), _digits(offset)))
    return rows


def _digits(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text


def _is_number(value: object, most: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= most


def plan_lines(plan: Mapping[TopicPartition, int]) -> list[str]:
    """A plan as lines ``topic,partition,offset``."""
    return [f"{tp.topic},{tp.partition},{offset}" for tp, offset in sorted(plan.items())]


def plan_json(plan: Mapping[TopicPartition, int]) -> dict[str, object]:
    """A plan as a JSON object."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset}
        for tp, offset in sorted(plan.items())
    ]
    return {"version": 1, "partitions": rows}
