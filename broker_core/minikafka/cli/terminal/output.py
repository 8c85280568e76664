"""Printing of results: tables for people; JSON, one object a line, YAML or CSV for programs.

All output of commands goes through here; control characters of names and texts from outside are escaped
(``base.printable``). Only ``consume`` writes the bytes of messages unchanged, and not to a terminal.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minikafka.base.printable import printable
from minikafka.base.row_formats import csv_line, escaped_json, json_line, yaml_item
from minikafka.cli.options import Format

Row = Mapping[str, object]


def print_rows(rows: Sequence[Row], columns: Sequence[str], style: Format, nothing: str = "") -> None:
    """Print ``rows``: as a table with ``columns``, or each whole row in another format.

    nothing: the note on stderr if there are no rows; standard output stays empty for scripts.
    """
    if nothing and not rows:
        note(f"minikafka: {nothing}")
    if style is not Format.TABLE:
        names = dict.fromkeys(name for row in rows for name in row)
        for row in rows:
            print_object({**dict.fromkeys(names), **row} if style is Format.CSV else row, style)
    elif rows:
        for line in table_lines(rows, columns):
            say(line)


def say(text: str = "", *, flush: bool = False) -> None:
    """Print one line for people."""
    print(printable(text), flush=flush)


def table_lines(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    """Return a header and a line for each row, in aligned columns; numbers are right-aligned."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    header = [column.replace("_", " ").upper() for column in columns]
    widths = [max(len(line[index]) for line in [header, *cells]) for index in range(len(columns))]
    to_right = [all(type(row.get(column)) in {int, float} for row in rows) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        ).rstrip()
        for line in [header, *cells]
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value))) or "-"
    if isinstance(value, Mapping):
        return printable(",".join(f"{key}={item}" for key, item in value.items())) or "-"
    return printable(str(value))


def print_json(value: Row) -> None:
    """Print one line of JSON, in UTF-8 regardless of the locale."""
    sys.stdout.buffer.write(json_line(value).encode("utf-8") + b"\n")


_csv_header: list[str] = []
"""The columns of the last line of CSV: a header is printed where they change."""


def start_output() -> None:
    """Begin the output of a command."""
    _csv_header.clear()


def print_object(value: Row, style: Format) -> None:
    """Print a result for programs: a line of JSON, an item of a list in YAML, or a line of CSV, with a header
    before the first one.
    """
    if style is Format.JSON:
        print_json(value)
    elif style is Format.YAML:
        sys.stdout.buffer.write(yaml_item(value).encode("utf-8", "backslashreplace"))
    else:
        if _csv_header != list(value):
            _csv_header[:] = value
            sys.stdout.buffer.write(csv_line(value).encode("utf-8"))
        sys.stdout.buffer.write(csv_line(value.values()).encode("utf-8", "backslashreplace"))


def json_bytes(line: str) -> bytes:
    """Encode JSON as UTF-8. Control characters become JSON escapes, so that a terminal ignores them."""
    return escaped_json(line).encode("utf-8")


def note(text: str) -> None:
    """Print a line for people on stderr, separate from the results."""
    print(printable(text), file=sys.stderr, flush=True)


REMEMBERED_MAX = 100
"""The most warnings that are remembered to suppress repetitions."""


class NoteHandler(logging.Handler):
    """Prints the warnings of libraries as notes of the command; with ``once``, each text once."""

    def __init__(self, *, once: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._once = once
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning."""
        text = " ".join(record.getMessage().removeprefix("minikafka: ").split())
        if self._once:
            if text in self._printed:
                return
            if len(self._printed) >= REMEMBERED_MAX:
                self._printed.clear()
            self._printed.add(text)
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]}"
        note(f"minikafka: {text}")


@contextlib.contextmanager
def warnings_as_notes(logger: str, *, once: bool = False) -> Iterator[None]:
    """Print the warnings of ``logger`` and its children within the block as notes."""
    clients, notes = logging.getLogger(logger), NoteHandler(once=once)
    clients.addHandler(notes)
    try:
        yield
    finally:
        clients.removeHandler(notes)


def text_or_none(data: bytes | None) -> str | None:
    """Decode UTF-8, with other bytes as backslash escapes; None stays None."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
