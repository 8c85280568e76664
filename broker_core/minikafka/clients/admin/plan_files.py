"""The JSON files of operators: partitions to elect or reassign, and topics, in the forms of Kafka's tools.

    {"partitions": [{"topic": "t", "partition": 0}]}
    {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/disk2", "any"]}]}
    {"topics": [{"topic": "t"}]}

All functions raise ConfigError under the name ``option``, which shows the file's ``path`` (None: its start).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.registry.controller import PreferredElection, Reassignments
from minikafka.registry.node import InvalidNode

OPTION = "partitions"
ANY = "any"
"""In place of a directory: the one that the broker chooses, or where the log is."""

LogDirs = Mapping[TopicPartition, Mapping[int, str]]
"""Partition -> broker -> the directory in which its log is to be."""


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The wanted replicas of partitions, and the directories of some of these."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    log_dirs: LogDirs = field(default_factory=dict)


def read_election(data: bytes, option: str = OPTION, path: str | None = None) -> frozenset[TopicPartition]:
    """Return the partitions in a file, also under ``partition``."""
    value = path or start_of(data)
    _refuse_empty(data, option, value)
    try:
        return PreferredElection.from_json(data).partitions
    except InvalidNode as error:
        raise ConfigError(option, value, error.problem) from None


def read_reassignment(data: bytes, option: str = OPTION, path: str | None = None) -> ReassignmentPlan:
    """Return the plan in a file. Raises ConfigError also for duplicates."""
    value = path or start_of(data)
    _refuse_empty(data, option, value)
    try:
        found = dict(Reassignments.from_json(data).partitions)
    except InvalidNode as error:
        raise ConfigError(option, value, error.problem) from None
    if not found:
        raise ConfigError(option, value, "expected at least one partition")
    log_dirs = {}
    for row in objects_in(data, "partitions", option, value):
        tp = TopicPartition(str(row["topic"]), int(str(row["partition"])))
        named = row.get("log_dirs", [])
        if not isinstance(named, list) or not all(isinstance(log_dir, str) for log_dir in named):
            raise ConfigError(option, value, f"{tp}: expected a list of directories as log_dirs")
        if named and len(named) != len(found[tp]):
            reason = (
                f"{tp} has {len(found[tp])} replicas and {len(named)} log_dirs: give one for each replica"
            )
            raise ConfigError(option, value, f"{reason}, {ANY!r} for those that stay")
        of_brokers = dict(zip(found[tp], named, strict=False))
        for broker_id, log_dir in of_brokers.items():
            if log_dir != ANY and not log_dir.startswith("/"):
                reason = f"{tp}: log_dirs of broker {broker_id} must be an absolute path or {ANY!r}"
                raise ConfigError(option, value, f"{reason}, got {log_dir!r}")
        if wanted := {broker_id: path for broker_id, path in of_brokers.items() if path != ANY}:
            log_dirs[tp] = wanted
    return ReassignmentPlan(found, log_dirs)


def reassignment_json(plan: ReassignmentPlan) -> str:
    """Return the JSON of a plan, which ``read_reassignment`` reads."""
    rows: list[dict[str, object]] = []
    for tp, replicas in sorted(plan.replicas.items()):
        rows.append({"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)})
        if tp in plan.log_dirs:
            rows[-1]["log_dirs"] = [plan.log_dirs[tp].get(broker_id, ANY) for broker_id in replicas]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"), ensure_ascii=False)


def read_topics(data: bytes, option: str = OPTION, path: str | None = None) -> list[str]:
    """Return the topics in a file."""
    value = path or start_of(data)
    topics = [row.get("topic") for row in objects_in(data, "topics", option, value)]
    names = [name for name in topics if isinstance(name, str) and name]
    if len(names) < len(topics) or not names or len(set(names)) < len(names):
        raise ConfigError(option, value, "expected objects with distinct topics")
    return names


def _refuse_empty(data: bytes | str, option: str, value: str) -> None:
    """Raise ConfigError for a file without JSON, as a command that failed leaves it."""
    if not data.strip():
        raise ConfigError(option, value, "the file is empty: expected JSON")


def start_of(data: bytes) -> str:
    """Return the start of a file's text, for errors about a file without a name."""
    return data[:100].decode("utf-8", "replace")


def objects_in(data: bytes | str, name: str, option: str, value: str) -> list[dict[str, object]]:
    """Return the objects of the list ``name`` in a user's JSON file. Raises ConfigError for ``option``."""
    _refuse_empty(data, option, value)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, value, f"invalid JSON: {error}") from None
    rows = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(option, value, f'expected an object with a list "{name}" of objects')
    return rows
