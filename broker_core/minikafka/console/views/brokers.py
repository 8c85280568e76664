"""The health of the cluster, its brokers with settings and data directories, reassignments and elections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from minikafka.base.errors import ErrorCode, NoSuchBroker
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.health import findings
from minikafka.clients.admin.log_dirs import LogDir
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata
from minikafka.console.settings import CHANGE_TIMEOUT_MS, PAGE_TIMEOUT_MS
from minikafka.console.texts import path
from minikafka.console.views.topics import paged
from minikafka.console.visit import Visit
from minikafka.wire.apis.describe_configs import ConfigResourceType
from minikafka.wire.apis.elect_leaders import ElectionType


def overview(visit: Visit) -> Response:
    """Show the health of the cluster, from the same source as ``minikafka cluster health``."""
    health = visit.access.admin.health(timeout_ms=PAGE_TIMEOUT_MS)
    found = findings(health, visit.console.settings.option)
    return visit.page(
        "overview.html",
        health=health,
        problems=[finding for finding in found if not finding.is_advice],
        advice=[finding for finding in found if finding.is_advice],
    )


@dataclass(frozen=True, slots=True)
class LogDirRow:
    """A data directory with the number and the size of its logs."""

    log_dir: LogDir
    logs: int
    size_bytes: int

    @classmethod
    def of(cls, log_dir: LogDir) -> LogDirRow:
        """Return the row of a directory."""
        return cls(log_dir, len(log_dir.replicas), sum(replica.size_bytes for replica in log_dir.replicas))


def brokers(visit: Visit) -> Response:
    """Show the brokers with their replicas and the sizes of their logs."""
    health = visit.access.admin.health(timeout_ms=PAGE_TIMEOUT_MS)
    rows = {broker_id: _log_dirs(visit, broker_id) for broker_id in health.live}
    return visit.page("brokers.html", health=health, log_dirs=rows)


def _log_dirs(visit: Visit, broker_id: int) -> list[LogDirRow]:
    found = visit.attempt(
        f"no data directories of broker {broker_id}",
        lambda: visit.access.admin.describe_log_dirs([broker_id], timeout_ms=PAGE_TIMEOUT_MS),
    )
    return [LogDirRow.of(log_dir) for log_dir in found or ()]


def broker(visit: Visit) -> Response:
    """Show one broker: its data directories and its settings. Secrets have no value in the response."""
    name = visit.part("broker")
    known = visit.metadata
    if name not in map(str, known.brokers):
        living = ", ".join(map(str, sorted(known.brokers)))
        raise NoSuchBroker(f"no live broker {name!r}; there are {living}")
    settings = visit.attempt(
        "no settings",
        lambda: visit.access.admin.describe_configs(
            ConfigResourceType.BROKER, name, timeout_ms=PAGE_TIMEOUT_MS
        ),
    )
    text, changed = visit.param("q").lower(), visit.param("changed") == "1"
    shown = [
        setting
        for setting in settings or ()
        if text in setting.name.lower() and (not changed or setting.source.name != "DEFAULT")
    ]
    return visit.page(
        "broker.html",
        broker=known.brokers[int(name)],
        is_controller=known.controller_id == int(name),
        log_dirs=_log_dirs(visit, int(name)),
        settings=shown,
        total=len(settings or ()),
        q=visit.param("q"),
        changed=changed,
    )


def reassignments(visit: Visit) -> Response:
    """Show reassignments in progress, and partitions whose leader is not the preferred one."""
    known = visit.metadata
    moving = visit.attempt(
        "reassignments are not known",
        lambda: visit.access.admin.list_partition_reassignments(timeout_ms=PAGE_TIMEOUT_MS),
    )
    wanted = not_preferred(known)
    shown, pages = paged(wanted, visit.number("page", 1))
    return visit.page(
        "reassignments.html",
        moving=moving,
        elections=shown,
        pages=pages,
        brokers=known.brokers,
        possible=sum(_is_electable(partition, known) for partition in wanted),
        parameters={},
        done=visit.number("done", -1, -1),
        failed=visit.number("failed", 0),
    )


def not_preferred(known: ClusterMetadata) -> Sequence[PartitionMetadata]:
    """Return the partitions that another replica than the first leads."""
    return [
        partition
        for topic in sorted(known.topics.values(), key=lambda topic: topic.name)
        for partition in topic.partitions
        if partition.replicas and partition.leader_id != partition.replicas[0]
    ]


def _is_electable(partition: PartitionMetadata, known: ClusterMetadata) -> bool:
    preferred = partition.replicas[0]
    return preferred in partition.in_sync and preferred in known.brokers


def elect(visit: Visit) -> Response:
    """Elect the preferred leaders of all partitions that need it."""
    wanted: list[TopicPartition] = [
        partition.topic_partition
        for partition in not_preferred(visit.metadata)
        if _is_electable(partition, visit.metadata)
    ]
    results = (
        visit.access.admin.elect_leaders(ElectionType.PREFERRED, wanted, timeout_ms=CHANGE_TIMEOUT_MS)
        if wanted
        else {}
    )
    errors = [error for error in results.values() if error is not None]
    failed = sum(error.code is not ErrorCode.ELECTION_NOT_NEEDED for error in errors)
    return RedirectResponse(path("reassignments", done=len(results) - len(errors), failed=failed), 303)
