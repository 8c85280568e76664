"""The forms in which messages are printed: a line for people, or a JSON object."""

from __future__ import annotations

import sys
from typing import Protocol

from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.times import utc_text
from minikafka.cli.output import base64_or_none, print_json, text_or_none


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


def show_json(topic_partition: TopicPartition, record: Message) -> None:
    """Print a JSON object. Bytes that are not UTF-8 are base64 in ``key_base64`` or ``value_base64``."""
    row: dict[str, object] = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
    }
    row |= as_text("key", record.key) | as_text("value", record.value)
    if record.headers:
        row["headers"] = [{"key": name, **as_text("value", value)} for name, value in record.headers]
    if getattr(record, "control", False):
        row["control"] = control_name(record)
    print_json(row)


def as_text(name: str, data: bytes | None) -> dict[str, object]:
    """Return ``{name: text}``, or ``{name_base64: …}`` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64_or_none(data)}


def control_name(record: object) -> str:
    """Return the outcome of a transaction that a control record has: commit or abort."""
    from minikafka.records.format.batch import control_type
    from minikafka.records.format.record import StoredRecord

    kind = control_type(record) if isinstance(record, StoredRecord) else None
    return "control" if kind is None else kind.name.lower()
