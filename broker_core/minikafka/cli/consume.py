"""``minikafka consume``: prints the messages of topics from any position, or as a member of a group."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.clock import SystemClock
from minikafka.base.config.property_files import key_values
from minikafka.base.config.types import one_of
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import quoted
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    SomePartitions,
    number_option,
    text_argument,
    utf8,
    value_option,
    zookeeper_option,
)
from minikafka.cli.records.output import Message, show_line, show_line_of_many, show_object
from minikafka.cli.terminal.output import note, warnings_as_notes
from minikafka.cli.terminal.progress import Progress
from minikafka.cli.terminal.signals import stop_on_signal

if TYPE_CHECKING:
    from minikafka.cli.records.format import Formatter
    from minikafka.cli.records.partition_reader import ReadOptions
    from minikafka.clients.consumer.topic_filter import TopicFilter
    from minikafka.clients.fetch.isolation_level import IsolationLevel
    from minikafka.clients.fetch.read_ranges import ReadRange

Place = tuple[str | None, Path | None, str | None]
"""The options that name the cluster: --bootstrap, --data-dir and --command-config."""
Topics = tuple[str, ...]
CLIENTS = "minikafka.clients"
"""The logger of all clients."""
Show = Callable[[TopicPartition, Message], None]
BEGINNING = "beginning"
STORED = "stored"
"""kcat's word for the committed offsets of the group."""
ISOLATION_OPTION = "--isolation-level"
READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
_LEVEL = one_of(READ_UNCOMMITTED, READ_COMMITTED)


TopicNames = Annotated[list[str] | None, text_argument("TOPIC")]
From = Annotated[
    str, typer.Option("--from", metavar="WHERE", help="beginning, end, an offset, or a time as in `-o`.")
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="RANGE",
        help="Instead of --from: start, end, 47, +2 (from the start), -3 (from the end), 10:20, :end, "
        "@TIME, @TIME:TIME. A time is ISO 8601 in UTC, ms or s since 1970, or a duration ago: 1h, PT1H; "
        "@TIME:+1h is one hour from a time on.",
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    number_option(
        "--max", "N", "Stop after N messages. [no limit]", 1, show_default=False, others=("--num", "-n")
    ),
]
Exit = Annotated[
    bool, typer.Option("--exit", "-e", help="Stop at the current end, like a range that has an end.")
]
RecordFormat = Annotated[
    str | None,
    typer.Option(
        "--record-format",
        "-f",
        metavar="FORMAT",
        help="The form of each message, without a line break of its own: %t topic, %p partition, %o offset, "
        "%k key, %v value, %h headers, %d timestamp (ms), %K and %V sizes, \\n, \\t, \\x00. {hex} and "
        "{base64} after %k and %v, {iso} after %d, {hex} and {big32} after numbers.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="G",
        help="Read as a member of the group G, from its committed offsets.",
        show_default=False,
        parser=utf8("--group"),
    ),
]
Whitelisted = Annotated[
    str | None,
    value_option(
        "--whitelist",
        "REGEX",
        "With --group: all topics whose names match, also new ones. Java syntax; a comma means or.",
    ),
]
Blacklisted = Annotated[
    str | None, value_option("--blacklist", "REGEX", "All topics except those that match.")
]
OfZooKeeper = Annotated[
    str | None,
    zookeeper_option("Instead of --bootstrap: G is a group in ZooKeeper, as of Kafka's consumers of 0.8."),
]
Properties = Annotated[
    list[str] | None,
    value_option(
        "--property",
        "KEY=VALUE",
        "With --zookeeper: a property of 0.10.1's old consumer, such as offsets.storage=kafka.",
    ),
]


def parse_isolation_level(text: str) -> str:
    """Parse ``--isolation-level``. Raise ConfigError."""
    level: str = _LEVEL.parse(ISOLATION_OPTION, text)
    return level


Isolation = Annotated[
    str,
    typer.Option(
        ISOLATION_OPTION,
        metavar="LEVEL",
        parser=parse_isolation_level,
        help="read_uncommitted: all messages. read_committed: none of open and aborted transactions.",
    ),
]
ReadCommitted = Annotated[
    bool, typer.Option("--read-committed", help="The same as --isolation-level read_committed.")
]
ControlRecords = Annotated[
    bool, typer.Option("--print-control-records", help="Also print the markers that end transactions.")
]


def consume(
    topics: TopicNames = None,
    start: From = BEGINNING,
    offset: Offset = None,
    limit: Limit = None,
    exits: Exit = False,
    partitions: SomePartitions = None,
    record_format: RecordFormat = None,
    group: Group = None,
    whitelist: Whitelisted = None,
    blacklist: Blacklisted = None,
    zookeeper: OfZooKeeper = None,
    properties: Properties = None,
    isolation: Isolation = READ_UNCOMMITTED,
    read_committed: ReadCommitted = False,
    control: ControlRecords = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Print the messages of topics as they arrive, until --max, an end or Ctrl-C.

    A null key or value is printed as null, with -f as nothing. Keys and values are printed unchanged to a
    pipe or a file; bytes that are not UTF-8 as \\xff, or in base64 with --format json. On a terminal, control
    characters are escaped (\\x1b); in names they are escaped everywhere.

    With --isolation-level read_committed a partition is read up to its first open transaction, and on when
    that has ended.
    """
    from minikafka.clients.fetch.isolation_level import IsolationLevel

    wanted = _topics_or_filter(topics, whitelist, blacklist)
    where = _range(start, offset, exits, group)
    level = IsolationLevel[READ_COMMITTED.upper() if read_committed else isolation.upper()]
    given = key_values("--property", properties)
    if given and not zookeeper:
        raise ConfigError("--property", next(iter(properties or ())), "requires --zookeeper")
    if group is None:
        _check_no_group(wanted, zookeeper)
    else:
        alone = {"--partition": partitions, "--print-control-records": control or None}
        _check_group(group, ("--from", start) if offset is None else ("--offset", offset), where, alone)
    if zookeeper:
        _check_zookeeper(wanted, where, level)

    form = _formatter(record_format, style, group)
    show = _shown(wanted, style, form)
    with stop_on_signal():
        # No progress bar among messages on the same terminal.
        progress = Progress(f"consuming {_title(wanted)}", limit, hidden=sys.stdout.isatty())
        out = _Output(show, limit, progress)
        bootstrap, command_config = connect.with_profile(bootstrap, command_config, data_dir, zookeeper)
        at = (bootstrap, data_dir, command_config)
        if group is not None and zookeeper:
            from minikafka.cli.connection.command_config import security_properties

            secure = security_properties(command_config)
            _read_zookeeper_group(wanted, group, where, (zookeeper, *at), {**secure, **given}, out)
        elif group is not None:
            _read_as_member(wanted, group, where, at, level, out)
        else:
            assert isinstance(wanted, tuple)
            from minikafka.cli.records.partition_reader import ReadOptions

            whole = control or (form is not None and form.whole)
            options = ReadOptions(level, _rack(at), whole=whole, control=control)
            _read_alone(wanted, partitions, where, at, options, out)
    sys.stdout.flush()


def _topics_or_filter(
    topics: list[str] | None, whitelist: str | None, blacklist: str | None
) -> Topics | TopicFilter:
    """Return the topics or the filter. Raise ConfigError for none, several or an invalid Java pattern."""
    options = {"TOPIC": " ".join(topics or ()) or None, "--whitelist": whitelist, "--blacklist": blacklist}
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1:
        *others, (name, value) = given.items() or [("TOPIC", None)]
        conflicts = "".join(f"conflicts with {option}={quoted(other)}; " for option, other in others)
        problem = conflicts or "required; "
        allowed = f"{problem}set exactly one of TOPIC, --whitelist REGEX and --blacklist REGEX"
        raise ConfigError(name, value, allowed)
    if topics:
        return tuple(dict.fromkeys(topics))
    from minikafka.clients.consumer.topic_filter import Blacklist, Whitelist

    name, kind = ("--blacklist", Blacklist) if whitelist is None else ("--whitelist", Whitelist)
    regex = whitelist if whitelist is not None else blacklist or ""
    try:
        return kind(regex)
    except ConfigError as problem:
        raise ConfigError(name, regex, problem.allowed) from None


def _range(start: str, offset: str | None, exits: bool, group: str | None) -> ReadRange:
    """Return the range that the options name. Raise ConfigError."""
    from minikafka.clients.fetch.read_ranges import (
        Anchor,
        Position,
        ReadRange,
        parse_position,
        parse_read_range,
    )

    if offset is None:
        found = ReadRange(parse_position("--from", start, SystemClock().now_ms()))
    elif start != BEGINNING:
        raise ConfigError("--offset", offset, f"conflicts with --from {start}; set only one of them")
    elif offset == STORED:
        if group is None:
            raise ConfigError("--offset", offset, "requires --group G")
        found = ReadRange()
    else:
        found = parse_read_range("--offset", offset, SystemClock().now_ms())
    if exits and found.end is None:
        return ReadRange(found.start, Position(Anchor.END))
    return found


def _check_no_group(wanted: Topics | TopicFilter, zookeeper: str | None) -> None:
    """Raise ConfigError for options that need a group."""
    if zookeeper:
        raise ConfigError("--zookeeper", zookeeper, "requires --group G")
    if not isinstance(wanted, tuple):
        raise ConfigError("--group", None, "required with --whitelist and --blacklist")


def _check_group(group: str, start: tuple[str, str], where: ReadRange, alone: Mapping[str, object]) -> None:
    """Raise ConfigError for an invalid group, and for options that a group does not have.

    start: the option that says where to begin, and its value. alone: the values of options that need a read
    without a group; None for those not set.
    """
    if group == "":
        raise ConfigError("--group", group, "must not be empty")
    for option, value in alone.items():
        if value is not None:
            text = ",".join(map(str, sorted(value))) if isinstance(value, frozenset) else "yes"
            raise ConfigError(option, text, f"conflicts with --group {group}")
    from minikafka.clients.fetch.read_ranges import Anchor, Position

    begin, end = Position(Anchor.START), Position(Anchor.END)
    if where.start not in (begin, end) or where.end not in (None, end):
        raise ConfigError(
            *start,
            "with --group must be beginning or end, the start in partitions without a committed offset; "
            "`group reset` sets other offsets",
        )


def _check_zookeeper(wanted: Topics | TopicFilter, where: ReadRange, level: IsolationLevel) -> None:
    """Raise ConfigError for options that Kafka's consumers of 0.8 do not have."""
    from minikafka.clients.fetch.isolation_level import IsolationLevel

    reason = "conflicts with --zookeeper: Kafka's consumers of 0.8 have no "
    if level is not IsolationLevel.READ_UNCOMMITTED:
        raise ConfigError(ISOLATION_OPTION, level.name.lower(), f"{reason}isolation level")
    if where.end is not None:
        raise ConfigError("--exit", "yes", f"{reason}end; use --max N")
    if isinstance(wanted, tuple) and len(wanted) > 1:
        either = "|".join(wanted)
        raise ConfigError("TOPIC", " ".join(wanted), f"with --zookeeper use --whitelist '{either}'")


def _formatter(record_format: str | None, style: Format, group: str | None) -> Formatter | None:
    """Return the formatter of messages, if there is one. Raise ConfigError."""
    if record_format is None:
        return None
    option = "--record-format"
    if style is not Format.TABLE:
        raise ConfigError(option, record_format, f"conflicts with --format {style}")
    from minikafka.cli.records.format import compile_format

    form = compile_format(option, record_format, terminal=sys.stdout.isatty())
    if form.whole and group is not None:
        raise ConfigError(option, record_format, "%a, %e, %x and %y conflict with --group")
    return form


def _shown(wanted: Topics | TopicFilter, style: Format, form: Formatter | None) -> Show:
    """Return the function that prints a message."""
    if form is not None:
        return functools.partial(_write, form)
    if style is not Format.TABLE:
        return functools.partial(show_object, style=style)
    several = not isinstance(wanted, tuple) or len(wanted) > 1
    return functools.partial(show_line_of_many if several else show_line, terminal=sys.stdout.isatty())


def _write(form: Formatter, topic_partition: TopicPartition, record: Message) -> None:
    sys.stdout.buffer.write(form(topic_partition, record))


def _title(wanted: Topics | TopicFilter) -> str:
    return ", ".join(wanted) if isinstance(wanted, tuple) else str(wanted)


@dataclass(frozen=True, slots=True)
class _Output:
    """The output of messages: how they are printed, how many, and their progress."""

    show: Show
    limit: int | None
    progress: Progress


def _read_alone(
    topics: Topics,
    partitions: frozenset[int] | None,
    where: ReadRange,
    at: Place,
    options: ReadOptions,
    out: _Output,
) -> None:
    """Print partitions of topics without a group."""
    from minikafka.cli.records.partition_reader import read_partitions, read_positions

    with connect.cluster_client(*at) as cluster:
        positions, ends = read_positions(cluster, topics, where, options.isolation, partitions)
        with out.progress:
            messages = read_partitions(cluster, positions, options, ends)
            for topic_partition, record in itertools.islice(messages, out.limit):
                out.show(topic_partition, record)
                out.progress.advance()


def _rack(at: Place) -> str:
    """Return the rack of the reader, ``client.rack`` of --command-config; empty for none."""
    from minikafka.cli.connection.command_config import CommandConfig

    return CommandConfig.read(at[2]).client_rack


def _read_as_member(
    wanted: Topics | TopicFilter, group: str, where: ReadRange, at: Place, level: IsolationLevel, out: _Output
) -> None:
    """Print the messages of a member of a group that a broker coordinates."""
    from minikafka.cli.records.group_reader import GroupReader
    from minikafka.clients.fetch.read_ranges import Anchor
    from minikafka.clients.group.config import Reset

    reset = Reset.LATEST if where.start.anchor is Anchor.END else Reset.EARLIEST
    rack, to_end = _rack(at), where.end is not None
    with (
        connect.cluster_client(*at) as cluster,
        out.progress,
        GroupReader(cluster, wanted, group, reset, isolation=level, rack=rack, to_end=to_end) as member,
    ):
        for topic_partition, record in itertools.islice(member.messages(), out.limit):
            out.show(topic_partition, record)
            member.shown(topic_partition, record)
            out.progress.advance()


def _read_zookeeper_group(
    wanted: Topics | TopicFilter,
    group: str,
    where: ReadRange,
    at: tuple[str, str | None, Path | None, str | None],
    properties: dict[str, str],
    out: _Output,
) -> None:
    """Print the messages of a consumer in a ZooKeeper group."""
    from minikafka.cli.records.zookeeper_group_reader import ZooKeeperGroupReader, consumer_config
    from minikafka.clients.admin.partitions import why_unknown
    from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
    from minikafka.clients.consumer.assignment import list_topics
    from minikafka.clients.fetch.read_ranges import Anchor
    from minikafka.clients.zookeeper_metadata import assigned

    at_end = where.start.anchor is Anchor.END
    config = consumer_config(group, at[0], connect.CLIENT_ID, properties, at_end=at_end)
    chosen = wanted[0] if isinstance(wanted, tuple) else wanted
    with connect.zookeeper_store(*at) as store:
        if isinstance(chosen, str):
            if not (known := assigned(store, [chosen])):
                reason = why_unknown(TopicPartition(chosen, 0), known, ZooKeeperPartitions(store))
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        elif not any(
            chosen.is_topic_allowed(name, config.exclude_internal_topics) for name in list_topics(store)
        ):
            note(f"minikafka: no topic matches {chosen} yet; waiting for one")
    with warnings_as_notes(CLIENTS, once=True), out.progress, ZooKeeperGroupReader(config, chosen) as member:
        for topic_partition, line in itertools.islice(member.messages(), out.limit):
            with member.printing(topic_partition, line):
                out.show(topic_partition, line)
            out.progress.advance()
