"""The forms in which messages are printed: a line for people, or an object for programs."""

from __future__ import annotations

import sys
from typing import Protocol

from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.row_formats import CSV_COLUMNS, message_cells, message_row
from minikafka.base.times import utc_text
from minikafka.base.values import fast_value
from minikafka.cli.options import Format
from minikafka.cli.terminal.output import print_object, text_or_none


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

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


@fast_value
class MessageLine:
    """The parts of a message that are printed. timestamp_ms: -1 for none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def show_line(topic_partition: TopicPartition, record: Message, *, terminal: bool = False) -> None:
    """Print a line for people: partition, offset, time, key, value.

    Control characters are escaped for a terminal and unchanged elsewhere. A null key or value is printed as
    `null`, as by Kafka's console consumer, like the text of that name.
    """
    sys.stdout.write(line_of(topic_partition, record, terminal))


def show_line_of_many(topic_partition: TopicPartition, record: Message, *, terminal: bool = False) -> None:
    """Print the topic and then the line of ``show_line``."""
    line = line_of(topic_partition, record, terminal)
    sys.stdout.write(f"{printable(topic_partition.topic):<16} {line}")


def line_of(topic_partition: TopicPartition, record: Message, terminal: bool) -> str:
    """Return the line of ``show_line``."""
    key, value = text_or_none(record.key), text_or_none(record.value)
    key = "null" if key is None else printable(key) if terminal else key
    value = "null" if value is None else printable(value) if terminal else value
    if getattr(record, "control", False):
        key, value = "", f"({control_name(record)} marker)"
    when = utc_text(record.timestamp_ms) or "-"
    return f"{topic_partition.partition:>3} {record.offset:>9}  {when:<24}  {key}\t{value}\n"


def show_object(topic_partition: TopicPartition, record: Message, *, style: Format = Format.JSON) -> None:
    """Print an object for programs, as ``message_row`` returns it, or in CSV a line of ``message_cells``."""
    control = control_name(record) if getattr(record, "control", False) else None
    place = *topic_partition, record.offset, record.timestamp_ms
    if style is Format.CSV:
        cells = message_cells(*place, record.key, record.value, record.headers, control)
        print_object(dict(zip(CSV_COLUMNS, cells, strict=True)), style)
        return
    row = message_row(*place, record.key, record.value, record.headers)
    print_object(row if control is None else row | {"control": control}, style)


def control_name(record: object) -> str:
    """Return the outcome of a transaction that a control record has: commit or abort."""
    from minikafka.records.format.batch import control_type
    from minikafka.records.format.record import StoredRecord

    kind = control_type(record) if isinstance(record, StoredRecord) else None
    return "control" if kind is None else kind.name.lower()
