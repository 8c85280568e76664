"""Rows of results, and messages as rows: as JSON, as CSV and as YAML, safe for spreadsheets and terminals.

CSV is that of RFC 4180: lines end with CR LF, cells with commas, quotes or line breaks are quoted. A text
that a spreadsheet would take for a formula gets an apostrophe before it, which spreadsheets do not show. YAML
is a list of mappings, one for each row; a text that is not plainly a word is quoted as in JSON, which YAML
includes. Control characters are escaped in all, but for line breaks in the cells of CSV.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from minikafka.base.printable import UNPRINTABLE, printable

_FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The first characters of a formula; the last four are the wide forms of the first."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
_QUOTED = re.compile('[",\r\n]|^\\s|\\s$')
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_line(value: object) -> str:
    """Return a line of JSON, without its end."""
    return escaped_json(_as_json(value))


def escaped_json(line: str) -> str:
    """Return JSON with control characters as JSON escapes, so that a terminal ignores them."""
    if line.isascii() and "\x7f" not in line:
        return line
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def message_row(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> dict[str, object]:
    """Return a message as an object for programs. Bytes that are not UTF-8 are base64 in ``key_base64`` or
    ``value_base64``. timestamp_ms: -1 for none.
    """
    row: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms if timestamp_ms >= 0 else None,
    }
    row |= _text_or_base64("key", key) | _text_or_base64("value", value)
    if headers:
        row["headers"] = [{"key": name, **_text_or_base64("value", data)} for name, data in headers]
    return row


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "control")
"""The columns of messages in CSV, the same for all of them."""


def message_cells(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    control: str | None = None,
) -> tuple[object, ...]:
    """Return a message as cells of CSV_COLUMNS. Bytes that are not UTF-8 are base64 after ``base64:``, and
    headers are pairs in JSON.

    control: of a marker of a transaction: commit or abort.
    """
    pairs = [[name, _text_or_prefixed(data)] for name, data in headers]
    when = timestamp_ms if timestamp_ms >= 0 else None
    texts = _text_or_prefixed(key), _text_or_prefixed(value)
    return topic, partition, offset, when, *texts, pairs or None, control


def _text_or_prefixed(data: bytes | None) -> str | None:
    found = _text_or_base64("", data)
    return found[""] if "" in found else f"base64:{found['_base64']}"


def csv_line(cells: Iterable[object]) -> str:
    """Return a line of CSV, with its end. Lists are joined with commas, objects are JSON, None is empty."""
    return ",".join(map(_csv_cell, cells)) + "\r\n"


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple) and not any(
        isinstance(item, Mapping | list | tuple) for item in value
    ):
        text = ",".join(map(str, value))
    elif isinstance(value, list | tuple | Mapping):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    if text[:1] in _FORMULA and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    text = "\n".join("\r".join(map(printable, line.split("\r"))) for line in text.split("\n"))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def yaml_item(row: Mapping[str, object]) -> str:
    """Return a row as an item of a list in YAML, with line breaks."""
    lines = list(_yaml_lines(row)) or ["{}"]
    return "".join(f"{'  ' if at else '- '}{line}\n" for at, line in enumerate(lines))


def _yaml_lines(value: Mapping[str, object]) -> Iterator[str]:
    for name, item in value.items():
        key = _yaml_text(str(name))
        if isinstance(item, Mapping) and item:
            yield f"{key}:"
            yield from (f"  {line}" for line in _yaml_lines(item))
        elif isinstance(item, list | tuple) and any(isinstance(each, Mapping) and each for each in item):
            yield f"{key}:"
            for each in item:
                yield from yaml_item(each if isinstance(each, Mapping) else {"": each}).splitlines()
        else:
            yield f"{key}: {_yaml_value(item)}"


def _yaml_value(value: object) -> str:
    if isinstance(value, str):
        return _yaml_text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{}"
    return json.dumps(value)


def _yaml_text(text: str) -> str:
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
