"""``minikafka topic trim``: deletes the start of a topic's logs, to an offset or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.clock import SystemClock
from minikafka.base.errors import ConfigError
from minikafka.base.text import counted, first_of
from minikafka.base.times import check_not_future
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    SomePartitions,
    text_argument,
)
from minikafka.cli.terminal.output import note, print_rows

if TYPE_CHECKING:
    from minikafka.base.ids import TopicPartition
    from minikafka.clients.fetch.read_ranges import PartitionRange, Position

ALLOWED = "must be an offset (47), @time such as @2013-01-01T05:00 or @1h (ago), end, or -N for the last N"
NAMED_MAX = 4
"""The most partitions that a message names."""
COLUMNS = ["topic", "partition", "start_offset", "new_start_offset", "end_offset"]


def trim(
    name: Annotated[str, text_argument("NAME")],
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="The first message to keep: an offset, @TIME, end for none, or -N for the last N. A time "
            "is as in `consume -o`.",
            show_default=False,
        ),
    ],
    partitions: SomePartitions = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute", "--no-confirm", help="Delete the messages; without it they are only shown."
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Delete the messages of a topic before an offset or a time. Without --execute, only show the new start.

    Deleted messages do not come back. Topics that are only compacted cannot be trimmed.
    """
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.record_deletion import check_deletable, delete_records
    from minikafka.clients.fetch.read_ranges import Anchor, find_ranges, parse_read_range

    now_ms = SystemClock().now_ms()
    try:
        wanted = parse_read_range("--offset", offset, now_ms)
    except ConfigError:
        raise ConfigError("--offset", offset, ALLOWED) from None
    if wanted.end is not None:
        raise ConfigError("--offset", offset, "must be one offset or time, not a range")
    if wanted.start.anchor is Anchor.TIME:
        check_not_future("--offset", offset, wanted.start.value, now_ms, "; to delete all messages, use end")
    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        admin = Admin(cluster)
        topic = connect.existing_topic(admin, name)
        chosen = topic.chosen(partitions)
        check_deletable(admin, topic)
        found = find_ranges(cluster, chosen, wanted, cluster.deadline())
        _check_ends(offset, wanted.start, found)
        starts = {tp: part.start for tp, part in found.items()}
        if execute:
            trimmed = {tp: part.start for tp, part in found.items() if part.start > part.log_start}
            starts |= delete_records(cluster, trimmed, cluster.deadline())
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "start_offset": part.log_start,
            "new_start_offset": starts[tp],
            "end_offset": part.log_end,
            "executed": execute,
        }
        for tp, part in found.items()
    ]
    print_rows(rows, COLUMNS, style)
    count = counted(sum(starts[tp] - part.log_start for tp, part in found.items()), "offset")
    if execute:
        note(f"minikafka: deleted the messages of {count}")
    else:
        note(f"minikafka: nothing was changed; add --execute to delete the messages of {count}")


def _check_ends(text: str, start: Position, found: dict[TopicPartition, PartitionRange]) -> None:
    """Raise ConfigError for an offset that a partition does not have yet: it would lose all its messages."""
    from minikafka.clients.fetch.read_ranges import Anchor

    short = [
        f"{tp} (ends at {part.log_end})"
        for tp, part in found.items()
        if part.requested is not None and part.requested > part.log_end
    ]
    if short and start.anchor in {Anchor.OFFSET, Anchor.START}:
        allowed = f"is beyond the end of {first_of(short, NAMED_MAX)}; set -p P for others, or end for all"
        raise ConfigError("--offset", text, allowed)
