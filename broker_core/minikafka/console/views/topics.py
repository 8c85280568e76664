"""The list of topics, and the parts of a topic that are no messages: partitions, settings and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.responses import Response

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.health import is_leaderless, is_under_replicated
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_known_offsets
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from minikafka.console.settings import PAGE_TIMEOUT_MS, ROWS_A_PAGE
from minikafka.console.visit import Visit
from minikafka.wire.apis.describe_configs import ConfigResourceType

GROUPS_SEARCHED_MAX = 200
"""Groups whose offsets are looked up for the groups of a topic."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Pages:
    """The place of the rows shown in a long table."""

    page: int
    first: int
    last: int
    total: int

    @property
    def count(self) -> int:
        """The number of pages."""
        return max(1, -(-self.total // ROWS_A_PAGE))


def paged(rows: Sequence[Row], page: int) -> tuple[Sequence[Row], Pages]:
    """Return the rows of a page, from 1 on, and its place; the last page for a number beyond it."""
    count = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(max(1, page), count)
    first = (page - 1) * ROWS_A_PAGE
    shown = rows[first : first + ROWS_A_PAGE]
    return shown, Pages(page, first + 1 if shown else 0, first + len(shown), len(rows))


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list. ``messages``: offsets from the start to the end; None if one is not known."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    under_replicated: int
    leaderless: int
    messages: int | None = None


_SORTS: dict[str, Callable[[TopicRow], object]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "problems": lambda row: (row.leaderless, row.under_replicated),
}


def topics(visit: Visit) -> Response:
    """Show topics: found by a part of the name, sorted, a page at a time, with messages of those shown."""
    known = visit.metadata
    text, internal = visit.param("q"), visit.param("internal") == "1"
    order = visit.param("sort", "name")
    order = order if order in _SORTS else "name"
    descending = visit.param("order") == "desc"
    rows = [
        _row(topic, known)
        for topic in known.topics.values()
        if text.lower() in topic.name.lower() and (internal or not topic.is_internal)
    ]
    rows.sort(key=lambda row: row.name)
    rows.sort(key=_SORTS[order], reverse=descending)  # type: ignore[arg-type]
    shown, pages = paged(rows, visit.number("page", 1))
    counts = _message_counts(visit, known, [row.name for row in shown])
    return visit.page(
        "topics.html",
        rows=shown,
        counts=counts,
        pages=pages,
        q=text,
        sort=order,
        descending=descending,
        internal=internal,
        hidden=sum(topic.is_internal for topic in known.topics.values()),
        parameters={"q": text, "sort": order, "order": visit.param("order"), "internal": int(internal) or ""},
    )


def _row(topic: TopicMetadata, known: ClusterMetadata) -> TopicRow:
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        topic.fewest_replicas,
        sum(map(is_under_replicated, topic.partitions)),
        sum(is_leaderless(partition, known) for partition in topic.partitions),
    )


def _message_counts(visit: Visit, known: ClusterMetadata, names: Sequence[str]) -> dict[str, int | None]:
    partitions = [part.topic_partition for name in names for part in known.topics[name].partitions]
    first, last = known_ends(visit, partitions)
    counts: dict[str, int | None] = dict.fromkeys(names, 0)
    for tp in partitions:
        before, start, end = counts[tp.topic], first.get(tp), last.get(tp)
        is_known = before is not None and start is not None and end is not None
        counts[tp.topic] = before + end - start if is_known else None  # type: ignore[operator]
    return counts


Offsets = Mapping[TopicPartition, int | None]


def known_ends(visit: Visit, partitions: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
    """Return the first and the last offsets of partitions as far as leaders answer, with a note otherwise."""
    if not partitions:
        return {}, {}
    cluster = visit.access.cluster
    deadline = cluster.deadline(PAGE_TIMEOUT_MS)
    first, error = list_known_offsets(cluster, dict.fromkeys(partitions, EARLIEST), deadline)
    last, other = list_known_offsets(cluster, dict.fromkeys(partitions, LATEST), deadline, visit.isolation)
    visit.note_errors("some offsets are not known", [found for found in (error, other) if found is not None])
    return first, last


def last_stable_offsets(visit: Visit, ends: Offsets) -> dict[TopicPartition, int]:
    """Return the start of the first open transaction in each partition that has one before its end."""
    cluster = visit.access.cluster
    wanted = {tp: LATEST for tp, end in ends.items() if end is not None}
    if not wanted:
        return {}
    deadline = cluster.deadline(PAGE_TIMEOUT_MS)
    # The ends come from the same leaders: a note about those that do not answer is on the page already.
    found, _ = list_known_offsets(cluster, wanted, deadline, IsolationLevel.READ_COMMITTED)
    return {tp: at for tp, at in found.items() if at is not None and at < (ends[tp] or 0)}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic. Sizes in bytes, None where they are not known."""

    partition: PartitionMetadata
    is_under_replicated: bool
    is_leaderless: bool
    is_preferred: bool
    start: int | None
    end: int | None
    size_bytes: int | None
    held_back: int = 0
    """The messages from the start of an open transaction on."""


def partitions(visit: Visit) -> Response:
    """Show the partitions of a topic: leader, replicas, ISR, offsets and size."""
    topic = visit.topic(visit.part("topic"))
    known = visit.metadata
    only_problems = visit.param("problems") == "1"
    wanted = [
        partition
        for partition in topic.partitions
        if not only_problems or is_under_replicated(partition) or is_leaderless(partition, known)
    ]
    shown, pages = paged(wanted, visit.number("page", 1))
    names = [partition.topic_partition for partition in shown]
    first, last = known_ends(visit, names)
    sizes = _sizes(visit, known, shown)
    stable = last_stable_offsets(visit, {tp: end for tp, end in last.items() if end != first.get(tp)})
    rows = [
        PartitionRow(
            partition,
            is_under_replicated(partition),
            is_leaderless(partition, known),
            bool(partition.replicas) and partition.leader_id == partition.replicas[0],
            first.get(partition.topic_partition),
            last.get(partition.topic_partition),
            sizes.get(partition.topic_partition),
            _held_back(partition.topic_partition, last, stable),
        )
        for partition in shown
    ]
    return visit.page(
        "topic_partitions.html",
        topic=topic,
        rows=rows,
        pages=pages,
        only_problems=only_problems,
        problems=sum(is_under_replicated(part) or is_leaderless(part, known) for part in topic.partitions),
        parameters={"problems": "1" if only_problems else ""},
    )


def _held_back(tp: TopicPartition, ends: Offsets, stable: Mapping[TopicPartition, int]) -> int:
    return (ends.get(tp) or 0) - stable[tp] if tp in stable else 0


def _sizes(
    visit: Visit, known: ClusterMetadata, shown: Sequence[PartitionMetadata]
) -> dict[TopicPartition, int]:
    """Return the sizes of the leaders' logs, as far as their brokers tell."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in shown:
        if partition.leader_id in known.brokers:
            by_leader.setdefault(partition.leader_id, []).append(partition.topic_partition)
    sizes: dict[TopicPartition, int] = {}
    for broker_id, names in by_leader.items():
        look = partial(
            visit.access.admin.describe_log_dirs, [broker_id], partitions=names, timeout_ms=PAGE_TIMEOUT_MS
        )
        found = visit.attempt(f"no sizes from broker {broker_id}", look) or []
        for log_dir in found:
            for replica in log_dir.replicas:
                if not replica.is_future:
                    sizes[replica.topic_partition] = replica.size_bytes
    return sizes


def configuration(visit: Visit) -> Response:
    """Show the settings of a topic, with where each value comes from."""
    topic = visit.topic(visit.part("topic"))
    settings = visit.access.admin.describe_configs(
        ConfigResourceType.TOPIC, topic.name, timeout_ms=PAGE_TIMEOUT_MS
    )
    return visit.page("topic_configuration.html", topic=topic, settings=settings)


def topic_groups(visit: Visit) -> Response:
    """Show the groups that have offsets of a topic or read it, with their lag there."""
    topic = visit.topic(visit.part("topic"))
    groups = visit.access.groups
    failed: list[MinikafkaError] = []
    described = groups.describe_all(timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    if len(described) > GROUPS_SEARCHED_MAX:
        visit.notes.append(f"only the first {GROUPS_SEARCHED_MAX} of {len(described)} groups were searched")
        described = described[:GROUPS_SEARCHED_MAX]
    lags = groups.all_lags(described, timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    visit.note_errors("some groups are not known", failed)
    rows = []
    for group in described:
        found = [row for row in lags.get(group.group_id, ()) if row.topic_partition.topic == topic.name]
        if found:
            members = {row.member.member_id for row in found if row.member is not None}
            known = [row.lag for row in found if row.lag is not None]
            rows.append((group, len(found), len(members), sum(known) if known else None))
    return visit.page("topic_groups.html", topic=topic, rows=rows)
