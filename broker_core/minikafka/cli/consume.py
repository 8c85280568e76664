"""``minikafka consume``: the messages of a topic, from any place on."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.ids import TopicPartition
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat
from minikafka.cli.start import Start, parse_start

if TYPE_CHECKING:
    from minikafka.clients.cluster import Cluster
    from minikafka.records.message_set import StoredRecord

POLL_INTERVAL_S = 0.2
"""How soon a new message is seen."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
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
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Print the messages of a topic as they come, until --max or Ctrl-C."""
    where = parse_start(start)

    from minikafka.cli.connect import connected
    from minikafka.cli.progress import Progress
    from minikafka.cli.signals import ends_cleanly_when_stopped

    with ends_cleanly_when_stopped(), connected(bootstrap, data_dir) as cluster:
        show = show_json if style is Format.JSON else show_line
        positions = starting_positions(cluster, topic, where)
        # A bar would be in the way of messages that go to the same terminal.
        with Progress(f"consuming {topic}", limit, hidden=sys.stdout.isatty()) as progress:
            for topic_partition, record in itertools.islice(follow(cluster, positions), limit):
                show(topic_partition, record)
                progress.advance()
    sys.stdout.flush()


def starting_positions(cluster: Cluster, topic: str, where: Start) -> dict[TopicPartition, int]:
    """The offset to begin at for each partition. Raises BrokerError for a topic that does not exist.

    An offset outside a partition's range is moved to its nearer end: one number is meant for many partitions.
    """
    from minikafka.cli.connect import existing_topic
    from minikafka.clients.admin import EARLIEST, LATEST, Admin

    admin = Admin(cluster)
    partitions = [one.topic_partition for one in existing_topic(admin, topic).partitions]
    first = admin.offsets(dict.fromkeys(partitions, EARLIEST))
    end = admin.offsets(dict.fromkeys(partitions, LATEST))
    if where.at_end:
        chosen = end
    elif where.timestamp_ms is not None:
        chosen = admin.offsets(dict.fromkeys(partitions, where.timestamp_ms))
    elif where.offset is not None:
        chosen = dict.fromkeys(partitions, where.offset)
    else:
        chosen = first
    positions = {}
    for one in partitions:
        low, high = first[one] or 0, end[one] or 0
        wanted = chosen[one]
        # No message is as late as the time that was asked for: wait for one.
        positions[one] = high if wanted is None else min(max(wanted, low), high)
    return positions


def follow(
    cluster: Cluster, positions: dict[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, StoredRecord]]:
    """Messages from ``positions`` on, each partition in order, for ever. Moves ``positions`` along."""
    from minikafka.clients.admin import LATEST, Admin
    from minikafka.clients.fetcher import RangeFetcher
    from minikafka.records.message_set import iterate

    admin = Admin(cluster)
    while True:
        ends = admin.offsets(dict.fromkeys(positions, LATEST))
        behind = {one: end for one, end in ends.items() if end is not None and positions[one] < end}
        for one, end in behind.items():
            for data in RangeFetcher(cluster, one, positions[one], end):
                for record in iterate(data):
                    # A compressed set may begin before the offset that was asked for.
                    if positions[one] <= record.offset < end:
                        positions[one] = record.offset + 1
                        yield one, record
            positions[one] = end
        sys.stdout.flush()
        if not behind:
            time.sleep(POLL_INTERVAL_S)


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
