"""The options of ``group reset``, and its plans in files.

A plan, printed by ``--export`` and read by ``--from-file``, is lines ``topic,partition,offset``, as in
Kafka's own tool from 0.11 on, or JSON in the form of Kafka's ``--offset-json-file``:
``{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 7}]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from minikafka.base.config.types import digit_list, digits
from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.times import MOMENTS, check_not_future, parse_moment
from minikafka.cli.options import NotExactlyOne

if TYPE_CHECKING:
    from minikafka.clients.admin.offset_resets import Plan, ResetTarget

OPTIONS = (
    "--to-earliest, --to-latest, --to-current, --to-offset N, --to-time T, --by-duration D, --shift-by N "
    "or --from-file F"
)
FROM_FILE = "--from-file"
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1


def parse_target(
    *,
    earliest: bool,
    latest: bool,
    current: bool,
    offset: int | None,
    time_ms: int | None,
    since_ms: int | None,
    shift: int | None,
    file: bool,
) -> ResetTarget:
    """Return the one target that was given. Raise NotExactlyOne for none or several."""
    from minikafka.clients.admin.offset_resets import ResetTarget, Rule

    given = [
        *([ResetTarget(Rule.EARLIEST)] if earliest else []),
        *([ResetTarget(Rule.LATEST)] if latest else []),
        *([ResetTarget(Rule.CURRENT)] if current else []),
        *([] if offset is None else [ResetTarget(Rule.OFFSET, offset)]),
        *([] if time_ms is None else [ResetTarget(Rule.TIME, time_ms)]),
        *([] if since_ms is None else [ResetTarget(Rule.TIME, since_ms)]),
        *([] if shift is None else [ResetTarget(Rule.SHIFT, shift)]),
        *([ResetTarget(Rule.FILE)] if file else []),
    ]
    if len(given) != 1:
        raise NotExactlyOne([target.rule.value for target in given], "no new offsets are set", OPTIONS)
    return given[0]


def parse_seek(text: str, now_ms: int) -> ResetTarget:
    """Parse ``group seek --to``: start, end or a time. Raise ConfigError."""
    from minikafka.clients.admin.offset_resets import ResetTarget, Rule

    word = text.strip()
    if word in {"start", "end"}:
        return ResetTarget(Rule.EARLIEST if word == "start" else Rule.LATEST)
    time_ms = parse_moment("--to", word.removeprefix("@"), now_ms, f"must be start, end, {MOMENTS}")
    check_not_future("--to", text, time_ms, now_ms, "; to skip all messages, use end")
    return ResetTarget(Rule.TIME, time_ms)


def parse_reset_time(text: str, now_ms: int) -> int:
    """Parse ``group reset --to-time``. Raise ConfigError."""
    time_ms = parse_moment("--to-time", text, now_ms)
    return check_not_future("--to-time", text, time_ms, now_ms, "; to skip all messages, use --to-latest")


def parse_offset(text: str) -> int:
    """Parse ``--to-offset N``. Raise ConfigError."""
    number = digits(text.strip(), OFFSET_MAX)
    if number is None:
        raise ConfigError("--to-offset", text, "must be an offset, a whole number of at least 0")
    return number


def parse_shift(text: str) -> int:
    """Parse ``--shift-by N``. Raise ConfigError."""
    number = digits(text.strip().removeprefix("-"), OFFSET_MAX)
    if number is None:
        raise ConfigError("--shift-by", text, "must be a number of messages, such as 10 or -10")
    return -number if text.strip().startswith("-") else number


def parse_file(text: str) -> Path:
    """Parse ``--from-file F``. Raise ConfigError for an empty name: it would mean the current directory."""
    if not text.strip():
        raise ConfigError(FROM_FILE, text, "must name a file")
    return Path(text)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse ``T`` or ``T:0,2`` into a topic and partitions, None for all of them. Raise ConfigError."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    partitions = digit_list(numbers)
    if not topic or partitions is None:
        raise ConfigError("--topic", text, "must be a topic, or topic:partition,partition")
    return topic, tuple(dict.fromkeys(partitions))


def read_plan(data: bytes, path: str) -> Plan:
    """Parse the plan in a file. Raise ConfigError with its ``path`` and the invalid line or entry."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(FROM_FILE, path, f"not valid UTF-8: {error.reason}") from None
    rows = _json_rows(text, path) if text.lstrip().startswith(("{", "[")) else _lines(text, path)
    plan: Plan = {}
    for where, topic, partition, offset in rows:
        if not isinstance(topic, str) or not topic or not _is_number(partition, PARTITION_MAX):
            raise ConfigError(FROM_FILE, path, f"{where}: expected a topic and a partition number")
        if not _is_number(offset, OFFSET_MAX):
            raise ConfigError(FROM_FILE, path, f"{where}: expected an offset, got {offset!r}")
        tp = TopicPartition(topic, partition)
        if tp in plan:
            raise ConfigError(FROM_FILE, path, f"{where}: {tp} appears twice")
        plan[tp] = offset
    if not plan:
        raise ConfigError(FROM_FILE, path, "contains no offsets")
    return plan


def _json_rows(text: str, path: str) -> list[tuple[str, object, object, object]]:
    from minikafka.clients.admin.plan_files import objects_in

    return [
        (f"entry {number}", row.get("topic"), row.get("partition"), row.get("offset"))
        for number, row in enumerate(objects_in(text, "partitions", FROM_FILE, path), 1)
    ]


def _lines(text: str, path: str) -> list[tuple[str, object, object, object]]:
    rows: list[tuple[str, object, object, object]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [part.strip().strip('"') for part in line.split(",")]
        if len(parts) != 3:
            raise ConfigError(FROM_FILE, path, f"line {number}: expected topic,partition,offset")
        topic, partition, offset = parts
        rows.append((f"line {number}", topic, _number(partition), _number(offset)))
    return rows


def _number(text: str) -> object:
    number = digits(text)
    return text if number is None else number


def _is_number(value: object, most: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= most


def plan_lines(plan: Mapping[TopicPartition, int]) -> list[str]:
    """Return a plan as lines ``topic,partition,offset``."""
    return [f"{tp.topic},{tp.partition},{offset}" for tp, offset in sorted(plan.items())]


def plan_json(plan: Mapping[TopicPartition, int]) -> dict[str, object]:
    """Return a plan as a JSON object."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset}
        for tp, offset in sorted(plan.items())
    ]
    return {"version": 1, "partitions": rows}
