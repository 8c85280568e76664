"""``minikafka cluster health``: what is wrong with a cluster, if anything, once or whenever that changes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from minikafka.base.errors import NetworkError
from minikafka.base.ids import host_port
from minikafka.base.text import counted
from minikafka.cli.options import Format
from minikafka.cli.output import print_json, say, table_lines, utc_text

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.health import ClusterHealth
    from minikafka.clients.network.metadata import PartitionMetadata

POLL_S = 0.5
"""Between two looks of ``--watch``."""
ASK_TIMEOUT_MS = 2_000
SHOWN_MAX = 20
"""Most partitions of a kind in a table; JSON has all."""
RULES = "access rules are enforced: topics that this client may not describe are not seen"
ANY_ZOOKEEPER = "--zookeeper HOST:PORT"
COLUMNS = ["broker", "alive", "address", "controller", "leads", "follows", "preferred", "out_of_sync"]
LOG_DIR_COLUMNS = ["broker", "log_dir"]
PARTITION_COLUMNS = ["topic", "partition", "leader", "replicas", "in_sync"]


def print_health(health: ClusterHealth, style: Format, at: str = ANY_ZOOKEEPER) -> None:
    """Print it; ``at`` is the option by which ``reassign`` finds this cluster."""
    if style is Format.JSON:
        print_json(as_json(health))
    else:
        for line in health_lines(health, at):
            say(line)


def print_change(health: ClusterHealth | None, style: Format, at: str = ANY_ZOOKEEPER) -> None:
    """Print a state of ``changes``, with the time."""
    now = utc_text(time.time_ns() // 1_000_000)
    if style is Format.JSON:
        known = {"healthy": False} if health is None else as_json(health)
        print_json({"time": now, **known})
    elif health is None:
        say(f"{now}  no broker answers")
    else:
        first, *more = health_lines(health, at)
        for line in [f"{now}  {first}", *more]:
            say(line)
    sys.stdout.flush()


def changes(admin: Admin) -> Iterator[ClusterHealth | None]:
    """The health now and whenever it is another one; None while nobody answers. Without end."""
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
    """All in one line."""
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
    told = [counted(len(health.live), "broker"), counted(health.partitions, "partition")]
    return f"cluster {health.cluster_id} is {what}: {', '.join([*told, *filter(None, wrong)])}"


def health_lines(health: ClusterHealth, at: str = ANY_ZOOKEEPER) -> Iterator[str]:
    """The sentence, the brokers, the partitions that want for something, and what is one broker from it."""
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
        yield "offline, or with a log that takes no more messages, for a reason that the broker's log tells:"
        yield from table_lines(log_dir_rows(health), LOG_DIR_COLUMNS)
    if (few := health.few_replicas) is not None:
        brokers = ",".join(map(str, health.live))
        yield (
            f"{few.topic} has {counted(few.has, 'replica')} where {few.wanted} are wanted "
            "(offsets.topic.replication.factor): its groups wait while a broker is away; give it more:"
        )
        plan = f"--brokers {brokers} --replicas {few.wanted} {at} > offsets.json"
        yield f"  minikafka reassign generate {few.topic} {plan}"
        yield f"  minikafka reassign execute --file offsets.json {at}"


def as_json(health: ClusterHealth) -> dict[str, object]:
    """One object."""
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
        "few_replicas": None if health.few_replicas is None else asdict(health.few_replicas),
    }


def broker_rows(health: ClusterHealth) -> list[dict[str, object]]:
    """A row for each broker, also for dead ones that have replicas."""
    return [
        {
            "broker": one.broker_id,
            "alive": one.address is not None,
            "address": None if one.address is None else host_port(one.address.host, one.address.port),
            "controller": one.broker_id == health.controller_id,
            "leads": one.leads,
            "follows": one.follows,
            "preferred": one.preferred,
            "out_of_sync": one.out_of_sync,
        }
        for one in health.brokers
    ]


def log_dir_rows(health: ClusterHealth) -> list[dict[str, object]]:
    """A row for each data directory that is offline."""
    return [{"broker": one.broker_id, "log_dir": one.path} for one in health.offline_log_dirs]


def partition_rows(partitions: Sequence[PartitionMetadata]) -> list[dict[str, object]]:
    """A row for each partition."""
    return [
        {
            "topic": one.topic_partition.topic,
            "partition": one.topic_partition.partition,
            "leader": one.leader_id if one.leader_id >= 0 else None,
            "replicas": list(one.replicas),
            "in_sync": list(one.in_sync),
        }
        for one in partitions
    ]
