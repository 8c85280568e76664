"""Groups: their list with states and lag, one group with its lag over time, and resets of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from minikafka.base.errors import BrokerError, ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import first_of
from minikafka.base.times import check_not_future, parse_moment, time_before
from minikafka.clients.admin.group_stores import StoredGroup
from minikafka.clients.admin.groups import PartitionLag, no_such_group, total_lag
from minikafka.clients.admin.offset_resets import (
    Chosen,
    Plan,
    PlannedReset,
    ResetTarget,
    Rule,
    out_of_range_offset,
    plan_reset,
)
from minikafka.clients.fetch.read_ranges import OFFSET_MAX
from minikafka.console.lag_history import LineChart
from minikafka.console.settings import PAGE_TIMEOUT_MS
from minikafka.console.texts import field_problem, parse_number, path
from minikafka.console.views.topics import last_stable_offsets, paged
from minikafka.console.visit import Visit


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list. ``lag`` is None if no offset of it is known."""

    group_id: str
    storage: str
    state: str
    members: int
    assignor: str
    coordinator: int | None
    lag: int | None = None


def groups(visit: Visit) -> Response:
    """Show groups: found by a part of the name and by state, a page at a time, with their total lag."""
    access = visit.access
    failed: list[MinikafkaError] = []
    described = access.groups.describe_all(timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    by_name = {group.group_id: group for group in described}
    rows = [
        GroupRow(
            group.group_id,
            "brokers",
            group.state,
            len(group.members),
            group.protocol,
            group.coordinator.broker_id,
        )
        for group in described
    ]
    if (in_zookeeper := access.zookeeper_groups) is not None:
        listed = visit.attempt("no groups from ZooKeeper", in_zookeeper.list_groups)
        rows += [
            GroupRow(group.group_id, "ZooKeeper", group.state, group.consumers, "", None)
            for group in listed or ()
        ]
    states = sorted({row.state for row in rows})
    text, state = visit.param("q"), visit.param("state")
    rows = [row for row in rows if text.lower() in row.group_id.lower() and (not state or row.state == state)]
    rows.sort(key=lambda row: (row.group_id, row.storage))
    shown, pages = paged(rows, visit.number("page", 1))
    wanted = [by_name[row.group_id] for row in shown if row.storage == "brokers"]
    lags = access.groups.all_lags(wanted, timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    visit.note_errors("some groups or lags are not known", failed)
    for name, found in lags.items():
        access.lag_history.add(name, found)
    return visit.page(
        "groups.html",
        rows=shown,
        totals={name: total_lag(found) for name, found in lags.items()},
        pages=pages,
        q=text,
        state=state,
        states=states,
        parameters={"q": text, "state": state},
    )


def group(visit: Visit) -> Response:
    """Show one group: its lag in each partition and over time, and its members."""
    name = visit.any_text("id")
    found = _described(visit, name)
    visit.access.lag_history.add(name, found.lags)
    samples = visit.access.lag_history.samples(name)
    lags, pages = paged(
        sorted(found.lags, key=lambda row: -1 if row.lag is None else row.lag, reverse=True)
        if visit.param("sort") == "lag"
        else found.lags,
        visit.number("page", 1),
    )
    return visit.page(
        "group.html",
        name=name,
        found=found,
        lags=lags,
        held_back=_held_back(visit, lags),
        pages=pages,
        sort=visit.param("sort"),
        total=total_lag(found.lags),
        unknown=sum(row.lag is None for row in found.lags),
        chart=LineChart.of([(sample.time_ms, sample.lag) for sample in samples]),
        samples=samples,
        done=visit.number("done", 0),
        parameters={"id": name, "sort": visit.param("sort")},
    )


def _held_back(visit: Visit, lags: Sequence[PartitionLag]) -> dict[TopicPartition, int]:
    """Return the part of each lag that is behind the start of an open transaction."""
    waiting = {row.topic_partition: row for row in lags if row.lag}
    stable = last_stable_offsets(visit, {tp: row.end_offset for tp, row in waiting.items()})
    return {tp: min(waiting[tp].lag or 0, (waiting[tp].end_offset or 0) - at) for tp, at in stable.items()}


def _described(visit: Visit, name: str) -> StoredGroup:
    """Return a group of either storage. A broker that does not answer costs only its part."""
    groups_at_brokers = visit.access.groups
    _check_exists(visit, name)
    if visit.access.store is not None:
        return visit.access.group_stores.describe(name)
    kafka = groups_at_brokers.describe(name, timeout_ms=PAGE_TIMEOUT_MS)
    failed: list[MinikafkaError] = []
    lags = groups_at_brokers.all_lags([kafka], timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    visit.note_errors("some offsets are not known", failed)
    return StoredGroup(None, (), kafka, lags.get(name, ()))


def _check_exists(visit: Visit, name: str) -> None:
    """Raise GROUP_ID_NOT_FOUND unless a list has the group: a look-up of its coordinator would make the topic
    of offsets, and so change the cluster.
    """
    failed: list[MinikafkaError] = []
    listed = visit.access.groups.list_groups(timeout_ms=PAGE_TIMEOUT_MS, failed=failed)
    names = [group.group_id for group in listed]
    if visit.access.zookeeper_groups is not None:
        names += visit.access.zookeeper_groups.names()
    if name not in names and not failed:
        raise no_such_group(name, names)


RULES = {
    "earliest": ("to the start of the log", Rule.EARLIEST),
    "latest": ("to the end of the log", Rule.LATEST),
    "offset": ("to an offset", Rule.OFFSET),
    "time": ("to a time", Rule.TIME),
    "back": ("to a duration ago, such as 1h", Rule.TIME),
    "shift": ("by a number of messages", Rule.SHIFT),
}
"""Name in the form -> label, and rule."""
_LABELS = {"rule": "Set the offsets", "value": "Offset, time, duration or number", "topic": "Topic"}


def reset(visit: Visit) -> Response:
    """Show the form of a reset, and the new offsets that it would set: a dry run, which changes nothing."""
    return _reset_page(visit)


def _reset_page(visit: Visit, plan: Plan | None = None, confirm_problem: str = "") -> Response:
    """Return the page of a reset.

    plan: the offsets of the last dry run, shown again. confirm_problem: the reason why they were not set.
    """
    name = visit.any_text("id")
    rule, value, topic = visit.param("rule"), visit.param("value"), visit.param("topic")
    planned: PlannedReset | None = None
    problem = ""
    clipped: list[str] = []
    _check_exists(visit, name)
    if rule or plan:
        try:
            target = ResetTarget(Rule.FILE)
            if rule:
                target = _target(rule, value, visit.access.cluster.clock.now_ms())
            chosen = [_chosen(topic)] if topic and plan is None else []
            planned = _planned(visit, name, target, chosen) if plan is None else _again(visit, name, plan)
            wanted = plan or planned.offsets
            clipped = [
                str(tp)
                for tp, log in planned.logs.items()
                if out_of_range_offset(target, log) is not None or planned.offsets[tp] != wanted[tp]
            ]
        except ConfigError as error:
            problem = field_problem(error, _LABELS)
        except BrokerError as error:
            problem = str(error)
    return visit.page(
        "group_reset.html",
        400 if problem or confirm_problem else 200,
        name=name,
        rules=RULES,
        rule=rule or "earliest",
        value=value,
        topic=topic,
        planned=planned,
        problem=problem,
        confirm=visit.form.get("confirm", ""),
        confirm_problem=confirm_problem,
        clipped=clipped,
        plan=_plan_text(planned) if planned else "",
    )


def _target(rule: str, value: str, now_ms: int) -> ResetTarget:
    if rule not in RULES:
        raise ConfigError("rule", rule, f"must be one of {', '.join(RULES)}")
    kind = RULES[rule][1]
    if rule == "offset":
        return ResetTarget(kind, parse_number("value", value, 0, OFFSET_MAX))
    if rule == "shift":
        return ResetTarget(kind, parse_number("value", value, -OFFSET_MAX, OFFSET_MAX))
    if rule == "time":
        time_ms = parse_moment("value", value, now_ms)
        return ResetTarget(kind, check_not_future("value", value, time_ms, now_ms))
    if rule == "back":
        return ResetTarget(kind, time_before("value", value, now_ms))
    if value:
        raise ConfigError(
            "value",
            value,
            f"is not used in a reset {RULES[rule][0]}: choose an offset, a time or a number, or clear it",
        )
    return ResetTarget(kind)


def _chosen(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse ``topic`` or ``topic:0,2``."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    return topic, tuple(parse_number("topic", part) for part in numbers.split(","))


def _plan_text(planned: PlannedReset) -> str:
    return "\n".join(f"{tp.topic},{tp.partition},{offset}" for tp, offset in planned.offsets.items())


def _planned(
    visit: Visit, name: str, target: ResetTarget, chosen: Chosen = (), plan: Plan | None = None
) -> PlannedReset:
    return plan_reset(visit.access.admin, visit.access.group_stores, name, target, chosen, plan)


def _again(visit: Visit, name: str, plan: Plan) -> PlannedReset:
    """Return the plan of an earlier dry run with the logs as they are now."""
    return _planned(visit, name, ResetTarget(Rule.FILE), plan=plan)


def _posted_plan(visit: Visit) -> Plan:
    plan: Plan = {}
    for line in visit.form.get("plan", "").splitlines():
        topic, _, numbers = line.partition(",")
        partition, _, offset = numbers.partition(",")
        tp = TopicPartition(topic, parse_number("plan", partition))
        plan[tp] = parse_number("plan", offset, 0, OFFSET_MAX)
    if not plan:
        raise ConfigError("plan", None, "has no offsets; start again with the dry run")
    return plan


def make_reset(visit: Visit) -> Response:
    """Set the offsets that the dry run has shown, after the group's name was typed.

    With another name, the same dry run is shown again. If a log no longer has one of the offsets, nothing is
    changed, and the dry run with the nearer end of that log is shown.
    """
    name = visit.any_text("id")
    plan = _posted_plan(visit)
    if visit.form.get("confirm", "") != name:
        return _reset_page(visit, plan, "Nothing was changed: this is not the name of the group.")
    _check_exists(visit, name)
    planned = _again(visit, name, plan)
    moved = [f"{tp} has no offset {plan[tp]}" for tp, offset in planned.offsets.items() if offset != plan[tp]]
    if moved:
        problem = f"Nothing was changed: {first_of(moved, 3)} any more. The dry run above has its nearer end."
        return _reset_page(visit, plan, problem)
    visit.access.group_stores.set_offsets(name, plan, planned.storages)
    return RedirectResponse(path("group", id=name, done=f"{len(plan)}"), 303)
