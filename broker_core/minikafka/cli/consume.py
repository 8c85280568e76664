"""``minikafka consume``: the messages of a topic, from any place on."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat, Topic
from minikafka.cli.start import parse_start

if TYPE_CHECKING:
    from minikafka.records.message_set import StoredRecord


def consume(
    topic: Topic,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="beginning, end, an offset, or a time (ISO 8601, UTC)."),
    ] = "beginning",
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--max", metavar="N", min=1, help="End after N messages; else go on.", show_default=False
        ),
    ] = None,
    group: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--group",
            metavar="G",
            help="Share the topic with the other members of G, and go on where it has stopped.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Print the messages of a topic as they come, until --max or Ctrl-C."""
    where = parse_start(start)
    if group == "":
        raise ConfigError("--group", group, "a name that the members share")
    if group is not None and (where.offset is not None or where.timestamp_ms is not None):
        raise ConfigError(
            "--from",
            start,
            "with --group it is beginning or end, for partitions that the group has no offset of; "
            "`group reset` sets others",
        )

    from minikafka.cli.connect import connected
    from minikafka.cli.follow import follow, starting_positions
    from minikafka.cli.progress import Progress
    from minikafka.cli.signals import ends_cleanly_when_stopped

    with ends_cleanly_when_stopped(), connected(bootstrap, data_dir) as cluster:
        show = show_json if style is Format.JSON else show_line
        # A bar would be in the way of messages that go to the same terminal.
        progress = Progress(f"consuming {topic}", limit, hidden=sys.stdout.isatty())
        if group is not None:
            from minikafka.cli.group_follow import GroupFollower
            from minikafka.clients.group_config import Reset

            reset = Reset.LATEST if where.at_end else Reset.EARLIEST
            with progress, GroupFollower(cluster, topic, group, reset) as member:
                for topic_partition, record in itertools.islice(member.messages(), limit):
                    show(topic_partition, record)
                    member.shown(topic_partition, record)
                    progress.advance()
        else:
            positions = starting_positions(cluster, topic, where)
            with progress:
                for topic_partition, record in itertools.islice(follow(cluster, positions), limit):
                    show(topic_partition, record)
                    progress.advance()
    sys.stdout.flush()


def show_line(one: TopicPartition, record: StoredRecord) -> None:
    """A line for people: partition, offset, time, key, value."""
    from minikafka.cli.output import text_or_none, utc_text

    key, value = text_or_none(record.key), text_or_none(record.value)
    when = utc_text(record.timestamp_ms) or "-"
    print(f"{one.partition:>3} {record.offset:>9}  {when:<24}  {'-' if key is None else key}\t{value}")


def show_json(one: TopicPartition, record: StoredRecord) -> None:
    """One JSON object. What is not UTF-8 stands as base64 under ``key_base64`` or ``value_base64``."""
    from minikafka.cli.output import print_json

    row: dict[str, object] = {
        "topic": one.topic,
        "partition": one.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
    }
    print_json(row | as_text("key", record.key) | as_text("value", record.value))


def as_text(name: str, data: bytes | None) -> dict[str, object]:
    """``{name: text}``, or ``{name_base64: …}`` where it is no text."""
    from minikafka.cli.output import base64_or_none

    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64_or_none(data)}
