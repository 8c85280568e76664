"""``minikafka group``: lists, describes, resets and deletes consumer groups, and removes their members.

Groups are found at the brokers, and with ``--zookeeper`` or ``--data-dir`` in ZooKeeper too. Status 1 if only
a part of the request is known or done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.clock import SystemClock
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition, check_topic_name
from minikafka.base.text import counted, first_of
from minikafka.base.times import time_before
from minikafka.cli.connection import connect
from minikafka.cli.group_reset import (
    parse_file,
    parse_offset,
    parse_reset_time,
    parse_seek,
    parse_shift,
    parse_target,
    parse_topic,
    plan_json,
    plan_lines,
    read_plan,
)
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    GroupsZooKeeper,
    OutputFormat,
    read_file,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_object, print_rows, say
from minikafka.cli.terminal.progress import Progress, spinner

if TYPE_CHECKING:
    from minikafka.cli.connection.connect import GroupAccess
    from minikafka.clients.admin.group_stores import OffsetsStorages
    from minikafka.clients.admin.offset_resets import LogOffsets, Plan, PlannedReset, ResetTarget

app = typer.Typer(help="List, describe, reset, seek and delete groups of consumers.", no_args_is_help=True)

IN_ZOOKEEPER = "for a group in ZooKeeper use --zookeeper HOST:PORT/CHROOT"
ALSO_IN_ZOOKEEPER = "for a group of this name in ZooKeeper add --zookeeper HOST:PORT/CHROOT"
NAMED_MAX = 4
"""The most partitions that a note names."""
Name = Annotated[str, text_argument("NAME")]


@app.command("list", short_help="List all groups.")
def list_(
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """List all groups with their kinds, states and members; a group of both kinds has two lines."""
    from minikafka.cli.group_rows import LIST_COLUMNS, listed
    from minikafka.clients.admin.groups import GroupAdmin
    from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups

    with (
        connect.group_access(zookeeper, bootstrap, data_dir, command_config) as places,
        spinner("looking for groups"),
    ):
        at_brokers = GroupAdmin(places.cluster).describe_all() if places.cluster else []
        in_zookeeper = ZooKeeperGroups(places.store).list_groups() if places.store else []
    nothing = "there are no groups at the brokers" if places.store is None else "there are no groups"
    rows = listed(at_brokers, in_zookeeper)
    print_rows(rows, LIST_COLUMNS, style, nothing=nothing if places.cluster else "")
    return completeness_status(places)


@app.command()
def describe(
    name: Name,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members instead, with their instance ids.")
    ] = False,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", "-s", help="Show one line instead: state, coordinator, members, total lag."
        ),
    ] = False,
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Show a group's offset, lag and reader in each partition."""
    from minikafka.cli import group_rows

    with (
        connect.group_access(zookeeper, bootstrap, data_dir, command_config) as places,
        spinner(f"describing {name}"),
        _zookeeper_hint(places),
    ):
        found = places.stores.describe(name)
    if summary:
        rows = group_rows.summary_rows(found)
        print_rows(rows, group_rows.SUMMARY_COLUMNS, style)
        return completeness_status(places)
    if members:
        rows = group_rows.member_rows(found.zookeeper, found.kafka)
        print_rows(rows, group_rows.MEMBER_COLUMNS, style, nothing=f"group {name!r} has no members")
        return completeness_status(places)
    if found.zookeeper is not None:
        if style is Format.TABLE:
            say(group_rows.zookeeper_title(found.zookeeper, found.partition_offsets))
        rows = group_rows.zookeeper_rows(found.zookeeper, found.partition_offsets)
        if style is Format.TABLE:  # consumers have a table of their own
            rows = rows[: len(found.partition_offsets)]
        print_rows(rows, group_rows.offset_columns(found.partition_offsets), style)
        if style is Format.TABLE and found.zookeeper.consumers:
            say()
            print_rows(group_rows.consumer_rows(found.zookeeper), group_rows.CONSUMER_COLUMNS, style)
    # The brokers may have only offsets of a group in ZooKeeper; these are in the table above.
    if found.kafka is not None and (found.zookeeper is None or found.kafka.members):
        if style is Format.TABLE:
            if found.zookeeper is not None:
                say()
            say(group_rows.kafka_title(found.kafka, found.lags))
        if style is not Format.TABLE or found.lags or found.kafka.members:
            print_rows(group_rows.kafka_rows(found.kafka, found.lags), group_rows.KAFKA_COLUMNS, style)
    return completeness_status(places)


@contextlib.contextmanager
def _zookeeper_hint(places: GroupAccess) -> Iterator[None]:
    """Add a hint about ZooKeeper to an error for an unknown group, if ZooKeeper was not searched."""
    try:
        yield
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or places.store is not None:
            raise
        raise BrokerError(error.code, f"{error.detail} at the brokers; {IN_ZOOKEEPER}") from None


def completeness_status(places: GroupAccess) -> int:
    """Return status 1, after a note, if the brokers are unreachable; otherwise 0."""
    if places.cluster is not None:
        return 0
    note(f"minikafka: only ZooKeeper was read; cannot reach the brokers: {places.why}")
    return 1


Topics = Annotated[
    list[str] | None,
    value_option(
        "--topic",
        "T[:P,P]",
        "A topic, or some of its partitions; may be repeated. [all that the group has read]",
    ),
]
SeekTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        "--topic",
        metavar="T[:P,P]",
        help="A topic, or some of its partitions; may be repeated. [all that the group has read]",
        show_default=False,
    ),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="The start of the log.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="The end of the log.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="The committed offset, or the end of the log without one.")
]
ByDuration = Annotated[
    str | None,
    value_option(
        "--by-duration", "D", "The first message of the last hour (1h or PT1H), half hour (30m), week (7d)."
    ),
]
ToOffset = Annotated[int | None, value_option("--to-offset", "N", "An offset.", parser=parse_offset)]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        "--to-datetime",
        metavar="T",
        help="The first message at or after a time, as in `group seek --to`.",
        show_default=False,
    ),
]
ShiftBy = Annotated[
    int | None, value_option("--shift-by", "N", "N messages forward, or back with -N.", parser=parse_shift)
]
FromFile = Annotated[
    Path | None,
    value_option(
        "--from-file",
        "F",
        "The offsets in a file: lines topic,partition,offset or JSON, as --export prints them.",
        parser=parse_file,
    ),
]
Export = Annotated[
    bool,
    typer.Option(
        "--export", help="Print topic,partition,offset for --from-file, or JSON with --format json."
    ),
]


@app.command()
def reset(
    name: Name,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics that the group has read, as without --topic.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    export: Export = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets; without it they are only shown.")
    ] = False,
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Reset the offsets of a group without members. Without --execute, only show the new offsets.

    With --zookeeper or --data-dir, a group in ZooKeeper and at the brokers is reset in both. A group that
    does not exist is created: in ZooKeeper with --zookeeper, otherwise at the brokers.
    """
    if topics and (all_topics or from_file is not None):
        other = "--all-topics" if all_topics else "--from-file"
        raise ConfigError("--topic", topics[0], f"conflicts with {other}; set only one of them")
    now_ms = SystemClock().now_ms()
    target = parse_target(
        earliest=to_earliest,
        latest=to_latest,
        current=to_current,
        offset=to_offset,
        time_ms=None if to_time is None else parse_reset_time(to_time, now_ms),
        since_ms=None if by_duration is None else time_before("--by-duration", by_duration, now_ms),
        shift=shift_by,
        file=from_file is not None,
    )
    chosen = [parse_topic(text) for text in topics or ()]
    plan = None if from_file is None else read_plan(read_file(from_file, "--from-file"), str(from_file))
    at = (zookeeper, bootstrap, data_dir, command_config)
    _reset(name, target, chosen, plan, at, style, execute=execute, export=export)


@app.command(short_help="Set a group to the start, the end or a time.")
def seek(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="start, end, or a time: ISO 8601 in UTC, ms or s since 1970, or a duration ago: 1h, PT1H.",
            show_default=False,
        ),
    ],
    topics: SeekTopics = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the new offsets.")] = False,
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Set the offsets of a group without members at once, as rpk does; `group reset` has more targets."""
    target = parse_seek(to, SystemClock().now_ms())
    chosen = [parse_topic(text) for text in topics or ()]
    at = (zookeeper, bootstrap, data_dir, command_config)
    _reset(name, target, chosen, None, at, style, execute=not dry_run, todo="leave out --dry-run")


def _reset(
    name: str,
    target: ResetTarget,
    chosen: Sequence[tuple[str, tuple[int, ...] | None]],
    plan: Plan | None,
    at: tuple[str | None, str | None, Path | None, str | None],
    style: Format,
    *,
    execute: bool,
    export: bool = False,
    todo: str = "add --execute",
) -> None:
    """Plan a reset, execute it if asked to, and print it. todo: the way to execute it."""
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.group_stores import OffsetsStorage
    from minikafka.clients.admin.offset_resets import plan_reset

    with connect.group_access(*at) as places, spinner(f"resetting {name}"):
        admin, groups = Admin(places.brokers), places.stores
        done = plan_reset(admin, groups, name, target, chosen, plan, new_in_zookeeper=bool(at[0]))
        if execute:
            groups.set_offsets(name, done.offsets, done.storages)
    _note_out_of_range(target, done.logs)
    _show(done, name, style, execute=execute, export=export)
    if not execute and not export:
        where = f" {_where(done.storages)}" if OffsetsStorage.ZOOKEEPER in done.storages else ""
        note(f"minikafka: nothing was changed; {todo} to set the offsets{where}")


def _show(done: PlannedReset, name: str, style: Format, *, execute: bool, export: bool) -> None:
    if export and style in {Format.JSON, Format.YAML}:
        print_object(plan_json(done.offsets), style)
    elif export:
        for line in plan_lines(done.offsets):
            say(line)
    else:
        rows = [
            {
                "group": name,
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": done.logs[tp].committed,
                "new_offset": offset,
                "stores": [place.value for place in done.storages],
                "executed": execute,
            }
            for tp, offset in done.offsets.items()
        ]
        print_rows(rows, ["topic", "partition", "offset", "new_offset"], style)
    if execute:
        count = counted(len(done.offsets), "partition")
        note(f"minikafka: set the offsets of {count} {_where(done.storages)}")


def _where(places: OffsetsStorages) -> str:
    from minikafka.clients.admin.group_stores import OffsetsStorage

    names = {OffsetsStorage.KAFKA: "at the brokers", OffsetsStorage.ZOOKEEPER: "in ZooKeeper"}
    return " and ".join(names[place] for place in places)


def _note_out_of_range(target: ResetTarget, logs: Mapping[TopicPartition, LogOffsets]) -> None:
    """Print one note about all partitions whose log does not have the requested offset."""
    from minikafka.clients.admin.offset_resets import out_of_range_offset

    adjusted = [
        f"{tp} at {wanted} ({log.start_offset} to {log.end_offset})"
        for tp, log in logs.items()
        if (wanted := out_of_range_offset(target, log)) is not None
    ]
    if adjusted:
        named = first_of(adjusted, NAMED_MAX)
        note(f"minikafka: out of range: {named}; using the nearer end of the log")


@app.command()
def delete(
    names: Annotated[list[str] | None, text_argument("NAME")] = None,
    topic: Annotated[
        str | None,
        value_option("--topic", "T[:P,P]", "Only the offsets of this topic, or of some of its partitions."),
    ] = None,
    offsets: Annotated[
        bool,
        typer.Option("--offsets", help="Only the offsets: of --topic, or of all topics. The group stays."),
    ] = False,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="With --topic: all groups that have offsets of it.")
    ] = False,
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Delete groups without members, with all their offsets. Status 1 if one remains.

    With --topic, a group may have members that do not read the topic (brokers since Kafka 2.4). Groups and
    offsets in ZooKeeper are deleted only with --zookeeper or --data-dir; a group there that has no other
    topic goes as a whole.
    """
    part = None if topic is None else parse_topic(topic)
    _check_deletion(names, part, all_groups)
    errors: list[MinikafkaError] = []
    with connect.group_access(zookeeper, bootstrap, data_dir, command_config) as places:
        wanted = list(dict.fromkeys(names or places.stores.groups_of(part[0] if part else "")))
        with Progress("deleting", len(wanted)) as progress:
            for name in wanted:
                try:
                    with _zookeeper_hint(places):
                        for text in _topics_of(places, name) if offsets and not topic else [topic]:
                            _delete(places, name, text, style)
                except MinikafkaError as error:
                    errors.append(error)
                progress.advance()
    if places.store is None and len(errors) < len(wanted):
        note(f"minikafka: deleted only at the brokers; {ALSO_IN_ZOOKEEPER}")
    for other in errors[1:]:
        note(f"minikafka: {other}")
    if errors:
        raise errors[0]
    return completeness_status(places)


def _check_deletion(
    names: list[str] | None, part: tuple[str, tuple[int, ...] | None] | None, all_groups: bool
) -> None:
    """Raise ConfigError for options that name no group, or too many."""
    if part is None and all_groups:
        raise ConfigError("--all-groups", "given", "requires --topic T")
    if bool(names) is all_groups:
        what = "conflicts with --all-groups" if names else "required"
        given = ", ".join(names) if names else None
        raise ConfigError("NAME", given, f"{what}; set either NAME or --topic T --all-groups")
    if part is not None:
        check_topic_name(part[0])


def _topics_of(found: GroupAccess, name: str) -> list[str]:
    """Return the topics of which a group has offsets. Raise BrokerError if it has none."""
    topics = sorted({tp.topic for tp in found.stores.offsets(name)})
    if not topics:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} has no offsets")
    return topics


def _delete(found: GroupAccess, name: str, topic: str | None, style: Format) -> None:
    from minikafka.clients.admin.group_stores import OffsetsStorage

    stores = found.stores
    places: OffsetsStorages = (
        stores.delete(name) if topic is None else stores.delete_offsets(name, *parse_topic(topic))
    )
    if style is not Format.TABLE:
        part = {} if topic is None else {"topic": topic}
        names = [place.value for place in places]
        print_object({"group": name, **part, "deleted": True, "stores": names}, style)
    else:
        where = f" {_where(places)}" if OffsetsStorage.ZOOKEEPER in places else ""
        say(f"deleted {name}{where}" if topic is None else f"deleted {topic} of {name}{where}")


@app.command("remove-members", short_help="Remove static members.")
def remove_members(
    name: Name,
    instance_ids: Annotated[
        list[str], value_option("--instance-id", "I", "The group.instance.id of a member; may be repeated.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="For the broker's log.")] = "",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Remove static members that do not come back, so that the others get their partitions at once.

    A member that still runs joins again. Status 1 if one is not a member. Needs brokers of Kafka 2.4.
    """
    from minikafka.clients.admin.groups import GroupAdmin

    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        groups = GroupAdmin(cluster)
        members = groups.describe(name).members
        outcomes = groups.remove_static_members(name, instance_ids, reason=reason)
    known = {member.group_instance_id for member in members if member.group_instance_id is not None}
    removed_ids = {instance_id for instance_id, code in outcomes.items() if code is ErrorCode.NONE}
    for instance_id, code in outcomes.items():
        removed = instance_id in removed_ids
        if style is not Format.TABLE:
            error = None if removed else code.name
            print_object({"group": name, "instance": instance_id, "removed": removed, "error": error}, style)
        elif removed:
            say(f"removed {instance_id} of {name}")
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            others = ", ".join(sorted(known - removed_ids))
            has = f"; the others are {others}" if others else ", and no others"
            text = f"group {name!r} has no static member {instance_id!r}{has}"
            note(f"minikafka: {text}")
        elif not removed:
            note(f"minikafka: {code.name}: removing {instance_id!r} of group {name!r}")
    return int(len(removed_ids) < len(outcomes))
