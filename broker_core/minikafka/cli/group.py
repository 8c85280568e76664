"""``minikafka group``: which groups read a cluster, how far behind they are, and where they go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import ConfigError
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat

if TYPE_CHECKING:
    from minikafka.base.ids import TopicPartition
    from minikafka.cli.reset import Log, Target
    from minikafka.clients.admin import Admin
    from minikafka.clients.group_admin import GroupDescription, PartitionLag

app = typer.Typer(help="List, describe, reset and delete groups of consumers.", no_args_is_help=True)

TOLD = 4
"""Partitions that are named where something is said of many."""
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_(bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE) -> None:
    """All groups with their states and members."""
    from minikafka.cli.connect import connected
    from minikafka.cli.output import print_rows
    from minikafka.clients.group_admin import GroupAdmin

    with connected(bootstrap, data_dir) as cluster:
        groups = GroupAdmin(cluster).describe_all()
    rows = [
        {
            "group": one.group_id,
            "state": one.state,
            "members": len(one.members),
            "assignor": one.protocol or None,
            "coordinator": one.coordinator.broker_id,
        }
        for one in groups
    ]
    print_rows(rows, ["group", "state", "members", "assignor", "coordinator"], style)


@app.command()
def describe(
    name: Name, bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE
) -> None:
    """How far a group is in each partition, and who reads it."""
    from minikafka.cli.connect import connected
    from minikafka.cli.output import counted, print_rows
    from minikafka.clients.group_admin import GroupAdmin

    with connected(bootstrap, data_dir) as cluster:
        admin = GroupAdmin(cluster)
        group = admin.describe(name)
        lags = admin.lags(group)
    if style is Format.TABLE:
        assignor = f", {group.protocol}" if group.protocol else ""
        members = counted(len(group.members), "member")
        print(f"{name}: {group.state}, {members}{assignor}, coordinated by {group.coordinator}")
        if not lags and not group.members:
            return
    columns = ["topic", "partition", "offset", "end_offset", "lag", "member", "client", "host"]
    print_rows(_rows(group, lags), columns, style)


def _rows(group: GroupDescription, lags: tuple[PartitionLag, ...]) -> list[dict[str, object]]:
    """A row for each partition, and one for each member without any; one for a group that has neither."""
    whole = {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.protocol or None,
        "coordinator": group.coordinator.broker_id,
    }
    places = [(one, one.member) for one in lags]
    idle = [(None, member) for member in group.members if not member.partitions]
    rows: list[dict[str, object]] = []
    for lag, member in [*places, *idle] or [(None, None)]:
        rows.append(
            whole
            | {
                "topic": lag and lag.topic_partition.topic,
                "partition": lag and lag.topic_partition.partition,
                "offset": lag.committed.offset if lag and lag.committed else None,
                "end_offset": lag and lag.end_offset,
                "lag": lag and lag.lag,
                "member": member and member.member_id,
                "client": member and member.client_id,
                "host": member and member.host,
            }
        )
    return rows


Topics = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--topic",
        metavar="T[:P,P]",
        help="A topic, or some of its partitions; may be given again. Else all that the group has read.",
        show_default=False,
    ),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Where the log begins.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Where the log ends.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Where the group is: the end where it has no offset yet.")
]
ByDuration = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--by-duration",
        metavar="D",
        help="The first message of the last hour (PT1H), half hour (PT30M), week (P7D).",
        show_default=False,
    ),
]
ToOffset = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--to-offset", metavar="N", min=0, help="An offset.", show_default=False),
]
ToTime = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--to-time",
        "--to-datetime",
        metavar="T",
        help="The first message at or after a time (ISO 8601, UTC).",
        show_default=False,
    ),
]
ShiftBy = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--shift-by", metavar="N", help="N messages on, or back with -N.", show_default=False),
]


@app.command()
def reset(
    name: Name,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that the group has read, as without --topic.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it is only shown.")] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Let a group without members go on elsewhere. Shows what would be, until --execute is given."""
    from minikafka.cli.reset import new_offset, one_target, parse_topic
    from minikafka.cli.start import parse_time, time_before

    if all_topics and topics:
        raise ConfigError("--topic", topics[0], "--all-topics is given too: give one of them")
    target = one_target(
        earliest=to_earliest,
        latest=to_latest,
        current=to_current,
        offset=to_offset,
        time_ms=None if to_time is None else parse_time("--to-time", to_time),
        since_ms=None if by_duration is None else time_before("--by-duration", by_duration),
        shift=shift_by,
    )
    chosen = [parse_topic(text) for text in topics or ()]

    from minikafka.cli.connect import connected
    from minikafka.cli.output import note, print_rows
    from minikafka.clients.admin import Admin
    from minikafka.clients.group_admin import GroupAdmin

    with connected(bootstrap, data_dir) as cluster:
        groups = GroupAdmin(cluster)
        groups.check_inactive(name)
        committed = {tp: one.offset for tp, one in groups.offsets(name).items()}
        wanted = _partitions(Admin(cluster), name, chosen, committed)
        logs = _logs(Admin(cluster), target, wanted, committed)
        offsets = {tp: new_offset(target, log) for tp, log in logs.items()}
        if execute:
            groups.set_offsets(name, offsets)
    rows = [
        {
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": committed.get(tp),
            "new_offset": offset,
            "executed": execute,
        }
        for tp, offset in offsets.items()
    ]
    print_rows(rows, ["topic", "partition", "offset", "new_offset"], style)
    _tell_outside(target, logs)
    if not execute:
        note("minikafka: nothing was changed; add --execute to do it")


def _partitions(
    admin: Admin,
    group: str,
    chosen: list[tuple[str, tuple[int, ...] | None]],
    committed: dict[TopicPartition, int],
) -> list[TopicPartition]:
    """What is to be reset, sorted: each of it exists. BrokerError for what does not."""
    from minikafka.base.errors import BrokerError, ErrorCode
    from minikafka.cli.connect import existing_topic
    from minikafka.clients.cluster import numbers_of

    if not chosen:
        known = admin.list_topics(internal=True)
        if not committed:
            raise ConfigError("--topic", "", f"group {group!r} has no offsets yet: name the topics")
        return sorted(tp for tp in committed if tp.topic in known)
    wanted = set()
    for name, numbers in chosen:
        topic = existing_topic(admin, name)
        partitions = {one.topic_partition.partition: one.topic_partition for one in topic.partitions}
        for number in partitions if numbers is None else numbers:
            if number not in partitions:
                raise BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{number}: {numbers_of(topic)}"
                )
            wanted.add(partitions[number])
    return sorted(wanted)


def _logs(
    admin: Admin, target: Target, wanted: list[TopicPartition], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, Log]:
    from minikafka.cli.reset import Log, Rule, check_shift
    from minikafka.clients.admin import EARLIEST, LATEST

    check_shift(target, committed, wanted)
    first = admin.offsets(dict.fromkeys(wanted, EARLIEST))
    last = admin.offsets(dict.fromkeys(wanted, LATEST))
    timed = admin.offsets(dict.fromkeys(wanted, target.value)) if target.rule is Rule.TIME else {}
    return {tp: Log(first[tp] or 0, last[tp] or 0, committed.get(tp), timed.get(tp)) for tp in wanted}


def _tell_outside(target: Target, logs: Mapping[TopicPartition, Log]) -> None:
    """Say where the offset that was asked for is not there: a line, whatever the number of partitions."""
    from minikafka.cli.output import note
    from minikafka.cli.reset import outside

    told = [
        f"{tp} at {wanted} ({log.start_offset} to {log.end_offset})"
        for tp, log in logs.items()
        if (wanted := outside(target, log)) is not None
    ]
    if told:
        more = f" and {len(told) - TOLD} more" if len(told) > TOLD else ""
        note(f"minikafka: outside of the log: {', '.join(told[:TOLD])}{more}; the nearer end is taken")


@app.command()
def delete(
    name: Name, bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE
) -> None:
    """Delete a group without members, with all its offsets."""
    from minikafka.cli.connect import connected
    from minikafka.cli.output import print_json
    from minikafka.clients.group_admin import GroupAdmin

    with connected(bootstrap, data_dir) as cluster:
        GroupAdmin(cluster).delete_group(name)
    if style is Format.JSON:
        print_json({"group": name, "deleted": True})
    else:
        print(f"deleted {name}")
