"""Where ``group reset`` lets a group go on: the rule, and what it makes of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition

OPTIONS = (
    "--to-earliest, --to-latest, --to-current, --to-offset N, --to-time T, --by-duration D or --shift-by N"
)


class Rule(Enum):
    """One of the options; ``--by-duration`` is a time too."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    CURRENT = "--to-current"
    TIME = "--to-time"
    SHIFT = "--shift-by"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to; ``value`` is the offset, the time in ms since the epoch, or the number of messages."""

    rule: Rule
    value: int = 0


def one_target(
    *,
    earliest: bool,
    latest: bool,
    current: bool,
    offset: int | None,
    time_ms: int | None,
    since_ms: int | None,
    shift: int | None,
) -> Target:
    """The one target that was given. ConfigError for none, and for several."""
    given = [
        *([Target(Rule.EARLIEST)] if earliest else []),
        *([Target(Rule.LATEST)] if latest else []),
        *([Target(Rule.CURRENT)] if current else []),
        *([] if offset is None else [Target(Rule.OFFSET, offset)]),
        *([] if time_ms is None else [Target(Rule.TIME, time_ms)]),
        *([] if since_ms is None else [Target(Rule.TIME, since_ms)]),
        *([] if shift is None else [Target(Rule.SHIFT, shift)]),
    ]
    if len(given) != 1:
        name = given[1].rule.value if given else "--to-…"
        raise ConfigError(name, "given" if given else "", f"give one of {OPTIONS}")
    return given[0]


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
    """One partition. ``at_time`` is the offset of the first message at or after the time, None for none."""

    start_offset: int
    end_offset: int
    committed: int | None = None
    at_time: int | None = None


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


def outside(target: Target, log: Log) -> int | None:
    """The offset that was asked for where the log does not have it; None where it does."""
    if target.rule not in (Rule.OFFSET, Rule.CURRENT, Rule.SHIFT) or (
        target.rule is Rule.CURRENT and log.committed is None
    ):
        return None
    wanted = _wanted(target, log)
    return None if log.start_offset <= wanted <= log.end_offset else wanted


def _wanted(target: Target, log: Log) -> int:
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
