"""``minikafka consume``: prints the messages of a topic from any position, or of a group's topics."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from minikafka.base.config.property_files import key_values
from minikafka.base.config.types import one_of
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.times import utc_text
from minikafka.cli import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    number_option,
    value_option,
    zookeeper_option,
)
from minikafka.cli.output import base64_or_none, note, print_json, text_or_none, warnings_as_notes
from minikafka.cli.progress import Progress
from minikafka.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from minikafka.clients.consumer.topic_filter import TopicFilter
    from minikafka.clients.fetch.read_ranges import ReadRange


class Message(Protocol):
    """The parts of a message that are printed."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


Place = tuple[str | None, Path | None, str | None]
"""The options that name the cluster: --bootstrap, --data-dir and --command-config."""
CLIENTS = "minikafka.clients"
"""The logger of all clients."""
Show = Callable[[TopicPartition, Message], None]
ISOLATION_OPTION = "--isolation-level"
READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
_LEVEL = one_of(READ_UNCOMMITTED, READ_COMMITTED)


TopicOrNone = Annotated[str | None, typer.Argument(metavar="TOPIC", show_default=False)]
From = Annotated[
    str, typer.Option("--from", metavar="WHERE", help="beginning, end, an offset, or a time (ISO 8601, UTC).")
]
Limit = Annotated[
    int | None, number_option("--max", "N", "Stop after N messages. [no limit]", 1, show_default=False)
]
Group = Annotated[
    str | None, value_option("--group", "G", "Read as a member of the group G, from its committed offsets.")
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


def consume(
    topic: TopicOrNone = None,
    start: From = "beginning",
    limit: Limit = None,
    group: Group = None,
    whitelist: Whitelisted = None,
    blacklist: Blacklisted = None,
    zookeeper: OfZooKeeper = None,
    properties: Properties = None,
    isolation: Isolation = READ_UNCOMMITTED,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Print the messages of topics as they arrive, until --max or Ctrl-C.

    A null key or value is printed as null. Keys and values are printed unchanged to a pipe or a file; bytes
    that are not UTF-8 as \\xff, or in base64 with --format json. On a terminal, control characters are
    escaped (\\x1b); in names they are escaped everywhere.

    With --isolation-level read_committed a partition is read up to its first open transaction, and on when
    that has ended.
    """
    from minikafka.clients.fetch.read_ranges import ReadRange, parse_position

    where = ReadRange(parse_position("--from", start))
    wanted = _topic_or_filter(topic, whitelist, blacklist)
    _check_group(group, where, start, wanted, zookeeper)
    given = key_values("--property", properties)
    if given and not zookeeper:
        raise ConfigError("--property", next(iter(properties or ())), "requires --zookeeper")
    if zookeeper and isolation != READ_UNCOMMITTED:
        reason = "conflicts with --zookeeper: Kafka's consumers of 0.8 have no isolation level"
        raise ConfigError(ISOLATION_OPTION, isolation, reason)

    several = not isinstance(wanted, str)
    show_text = functools.partial(show_line_of_many if several else show_line, terminal=sys.stdout.isatty())
    show: Show = show_json if style is Format.JSON else show_text
    with stop_on_signal():
        # No progress bar among messages on the same terminal.
        progress = Progress(f"consuming {wanted}", limit, hidden=sys.stdout.isatty())
        out = _Output(show, limit, progress)
        if group is not None and zookeeper:
            from minikafka.cli.command_config import security_properties

            secure = security_properties(command_config)
            at = (zookeeper, bootstrap, data_dir, command_config)
            _read_zookeeper_group(wanted, group, where, at, {**secure, **given}, out)
        elif group is not None:
            _read_as_member(wanted, group, where, (bootstrap, data_dir, command_config), isolation, out)
        else:
            _read_alone(str(wanted), where, (bootstrap, data_dir, command_config), isolation, out)
    sys.stdout.flush()


def _topic_or_filter(topic: str | None, whitelist: str | None, blacklist: str | None) -> str | TopicFilter:
    """Return the topic or the filter. Raise ConfigError for none, several or an invalid Java pattern."""
    options = {"TOPIC": topic, "--whitelist": whitelist, "--blacklist": blacklist}
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1:
        *others, (name, value) = given.items() or [("TOPIC", None)]
        conflicts = "".join(f"conflicts with {option}={other!r}; " for option, other in others)
        allowed = f"{conflicts}set exactly one of TOPIC, --whitelist REGEX and --blacklist REGEX"
        raise ConfigError(name, value, allowed)
    if topic is not None:
        return topic
    from minikafka.clients.consumer.topic_filter import Blacklist, Whitelist

    name, kind = ("--blacklist", Blacklist) if whitelist is None else ("--whitelist", Whitelist)
    regex = whitelist if whitelist is not None else blacklist or ""
    try:
        return kind(regex)
    except ConfigError as problem:
        raise ConfigError(name, regex, problem.allowed) from None


def _check_group(
    group: str | None, where: ReadRange, start: str, wanted: str | TopicFilter, zookeeper: str | None
) -> None:
    """Raise ConfigError for an invalid group, and for options that need a group."""
    if group is None:
        if zookeeper:
            raise ConfigError("--zookeeper", zookeeper, "requires --group G")
        if not isinstance(wanted, str):
            raise ConfigError("--group", None, "required with --whitelist and --blacklist")
        return
    if group == "":
        raise ConfigError("--group", group, "must not be empty")
    from minikafka.clients.fetch.read_ranges import Anchor, Position

    if where.start not in (Position(Anchor.START), Position(Anchor.END)):
        raise ConfigError(
            "--from",
            start,
            "with --group must be beginning or end, the start in partitions without a committed offset; "
            "`group reset` sets other offsets",
        )


@dataclass(frozen=True, slots=True)
class _Output:
    """The output of messages: how they are printed, how many, and their progress."""

    show: Show
    limit: int | None
    progress: Progress


def _read_alone(topic: str, where: ReadRange, at: Place, isolation: str, out: _Output) -> None:
    """Print all partitions of a topic without a group."""
    from minikafka.cli.partition_reader import read_partitions, starting_positions
    from minikafka.clients.fetch.isolation_level import IsolationLevel

    level = IsolationLevel[isolation.upper()]
    with connect.cluster_client(*at) as cluster:
        positions = starting_positions(cluster, topic, where, level)
        with out.progress:
            messages = read_partitions(cluster, positions, level)
            for topic_partition, record in itertools.islice(messages, out.limit):
                out.show(topic_partition, record)
                out.progress.advance()


def _read_as_member(
    wanted: str | TopicFilter, group: str, where: ReadRange, at: Place, isolation: str, out: _Output
) -> None:
    """Print the messages of a member of a group that a broker coordinates."""
    from minikafka.cli.group_reader import GroupReader
    from minikafka.clients.fetch.isolation_level import IsolationLevel
    from minikafka.clients.fetch.read_ranges import Anchor
    from minikafka.clients.group.config import Reset

    level = IsolationLevel[isolation.upper()]
    reset = Reset.LATEST if where.start.anchor is Anchor.END else Reset.EARLIEST
    with (
        connect.cluster_client(*at) as cluster,
        out.progress,
        GroupReader(cluster, wanted, group, reset, isolation=level) as member,
    ):
        for topic_partition, record in itertools.islice(member.messages(), out.limit):
            out.show(topic_partition, record)
            member.shown(topic_partition, record)
            out.progress.advance()


def _read_zookeeper_group(
    wanted: str | TopicFilter,
    group: str,
    where: ReadRange,
    at: tuple[str, str | None, Path | None, str | None],
    properties: dict[str, str],
    out: _Output,
) -> None:
    """Print the messages of a consumer in a ZooKeeper group."""
    from minikafka.cli.zookeeper_group_reader import ZooKeeperGroupReader, consumer_config
    from minikafka.clients.admin.partitions import why_unknown
    from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
    from minikafka.clients.consumer.assignment import list_topics
    from minikafka.clients.fetch.read_ranges import Anchor
    from minikafka.clients.zookeeper_metadata import assigned

    at_end = where.start.anchor is Anchor.END
    config = consumer_config(group, at[0], connect.CLIENT_ID, properties, at_end=at_end)
    with connect.zookeeper_store(*at) as store:
        if isinstance(wanted, str):
            if not (known := assigned(store, [wanted])):
                reason = why_unknown(TopicPartition(wanted, 0), known, ZooKeeperPartitions(store))
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        elif not any(
            wanted.is_topic_allowed(name, config.exclude_internal_topics) for name in list_topics(store)
        ):
            note(f"minikafka: no topic matches {wanted} yet; waiting for one")
    with warnings_as_notes(CLIENTS, once=True), out.progress, ZooKeeperGroupReader(config, wanted) as member:
        for topic_partition, line in itertools.islice(member.messages(), out.limit):
            with member.printing(topic_partition, line):
                out.show(topic_partition, line)
            out.progress.advance()


def show_line(topic_partition: TopicPartition, record: Message, *, terminal: bool = False) -> None:
    """Print a line for people: partition, offset, time, key, value.

    Control characters are escaped for a terminal and unchanged elsewhere. A null key or value is printed as
    `null`, as by Kafka's console consumer, like the text of that name.
    """
    key, value = (
        "null" if text is None else printable(text) if terminal else text
        for text in (text_or_none(record.key), text_or_none(record.value))
    )
    when = utc_text(record.timestamp_ms) or "-"
    print(f"{topic_partition.partition:>3} {record.offset:>9}  {when:<24}  {key}\t{value}")


def show_line_of_many(topic_partition: TopicPartition, record: Message, *, terminal: bool = False) -> None:
    """Print the topic and then the line of ``show_line``."""
    print(f"{printable(topic_partition.topic):<16} ", end="")
    show_line(topic_partition, record, terminal=terminal)


def show_json(topic_partition: TopicPartition, record: Message) -> None:
    """Print a JSON object. Bytes that are not UTF-8 are base64 in ``key_base64`` or ``value_base64``."""
    row: dict[str, object] = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
    }
    print_json(row | as_text("key", record.key) | as_text("value", record.value))


def as_text(name: str, data: bytes | None) -> dict[str, object]:
    """Return ``{name: text}``, or ``{name_base64: …}`` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64_or_none(data)}
