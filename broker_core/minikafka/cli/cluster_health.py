"""``minikafka cluster health``: prints the health of a cluster, once or at every change."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from minikafka.base.clock import SystemClock
from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.base.text import counted
from minikafka.base.times import utc_text
from minikafka.cli.options import Format
from minikafka.cli.terminal.output import print_object, say, table_lines

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.health import ClusterHealth
    from minikafka.clients.network.metadata import PartitionMetadata

POLL_S = 0.5
"""The poll interval of ``--watch``."""
ASK_TIMEOUT_MS = 2_000
SHOWN_MAX = 20
"""The most partitions in a table; JSON has all."""
RULES = "access rules are enforced: topics that this client may not describe are missing here"
COLUMNS = ["broker", "alive", "address", "controller", "leads", "follows", "preferred", "out_of_sync"]
LOG_DIR_COLUMNS = ["broker", "log_dir"]
PARTITION_COLUMNS = ["topic", "partition", "leader", "replicas", "in_sync"]


def print_health(health: ClusterHealth, style: Format, at: str = "") -> None:
    """Print the health of a cluster. at: the option that names this cluster, after a space."""
    if style is not Format.TABLE:
        print_object(as_json(health), style)
    else:
        for line in health_lines(health, at):
            say(line)


def print_change(health: ClusterHealth | None, style: Format, at: str = "") -> None:
    """Print a state of ``changes``, with the time."""
    now = utc_text(SystemClock().now_ms())
    if style is not Format.TABLE:
        known = {"healthy": False} if health is None else as_json(health)
        print_object({"time": now, **known}, style)
    elif health is None:
        say(f"{now}  no broker answers")
    else:
        first, *more = health_lines(health, at)
        for line in [f"{now}  {first}", *more]:
            say(line)
    sys.stdout.flush()


def changes(admin: Admin) -> Iterator[ClusterHealth | None]:
    """Yield the health now and at every change, without end; None while no broker answers."""
    last: object = ()
    while True:
        found: ClusterHealth | None = None
        with contextlib.suppress(NetworkError):
            found = admin.health(timeout_ms=ASK_TIMEOUT_MS)
        if found != last:
            yield found
            last = found
        time.sleep(POLL_S)


def summary(health: ClusterHealth) -> str:
    """Return the health in one line."""
    dead = [broker.broker_id for broker in health.brokers if broker.address is None]
    wrong = [
        "no controller" * (health.controller_id is None),
        f"{counted(len(health.leaderless), 'partition')} without a leader" * bool(health.leaderless),
        f"{counted(len(health.under_replicated), 'partition')} under-replicated"
        * bool(health.under_replicated),
        f"dead: {', '.join(map(str, dead))}" * bool(dead),
        counted(len(health.offline_log_dirs), "offline log dir") * bool(health.offline_log_dirs),
    ]
    what = "healthy" if health.healthy else "not known to be healthy" if health.unseen else "not healthy"
    counts = [counted(len(health.live), "broker"), counted(health.partitions, "partition")]
    return f"cluster {health.cluster_id} is {what}: {', '.join([*counts, *filter(None, wrong)])}"


def health_lines(health: ClusterHealth, at: str = "") -> Iterator[str]:
    """Yield the summary, the brokers, the partitions and directories with problems, and what to do about each
    problem, as the console says it.
    """
    yield summary(health)
    if health.access_rules:
        yield RULES
    yield from table_lines(broker_rows(health), COLUMNS)
    for what, partitions in (
        ("without a leader", health.leaderless),
        ("under-replicated", health.under_replicated),
    ):
        if partitions:
            yield f"{what}:"
            yield from table_lines(partition_rows(partitions[:SHOWN_MAX]), PARTITION_COLUMNS)
            if len(partitions) > SHOWN_MAX:
                yield f"and {len(partitions) - SHOWN_MAX} more"
    if health.offline_log_dirs:
        yield "offline, or with an offline log (see the broker's log for the reason):"
        yield from table_lines(log_dir_rows(health), LOG_DIR_COLUMNS)
    yield from _finding_lines(health, at)


def _finding_lines(health: ClusterHealth, at: str) -> Iterator[str]:
    from minikafka.clients.admin.health import findings

    for finding in findings(health, at):
        yield finding.text
        yield from (f"  {command}" for command in finding.commands)


def as_json(health: ClusterHealth) -> dict[str, object]:
    """Return the health as a JSON object."""
    return {
        "cluster": health.cluster_id,
        "healthy": health.healthy,
        "controller": health.controller_id,
        "access_rules": health.access_rules,
        "topics": health.topics,
        "partitions": health.partitions,
        "brokers": broker_rows(health),
        "under_replicated": partition_rows(health.under_replicated),
        "leaderless": partition_rows(health.leaderless),
        "offline_log_dirs": log_dir_rows(health),
        "few_replicas": [asdict(few) for few in health.few_replicas],
        "low_min_isr": None if health.low_min_isr is None else asdict(health.low_min_isr),
        "without_transactions": partition_rows(health.without_transactions),
    }


def broker_rows(health: ClusterHealth) -> list[dict[str, object]]:
    """Return a row for each broker, also for dead ones with replicas."""
    return [
        {
            "broker": broker.broker_id,
            "alive": broker.address is not None,
            "address": None
            if broker.address is None
            else host_port(broker.address.host, broker.address.port),
            "controller": broker.broker_id == health.controller_id,
            "leads": broker.leads,
            "follows": broker.follows,
            "preferred": broker.preferred,
            "out_of_sync": broker.out_of_sync,
        }
        for broker in health.brokers
    ]


def log_dir_rows(health: ClusterHealth) -> list[dict[str, object]]:
    """Return a row for each offline data directory."""
    return [{"broker": log_dir.broker_id, "log_dir": log_dir.path} for log_dir in health.offline_log_dirs]


def partition_rows(partitions: Sequence[PartitionMetadata]) -> list[dict[str, object]]:
    """Return a row for each partition."""
    return [
        {
            "topic": partition.topic_partition.topic,
            "partition": partition.topic_partition.partition,
            "leader": partition.leader_id if partition.leader_id >= 0 else None,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.in_sync),
        }
        for partition in partitions
    ]
