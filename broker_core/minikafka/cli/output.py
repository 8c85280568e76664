"""Printing of results: tables for people; JSON, one object a line, for any tool to read as it comes.

Whatever a command prints goes through here, where control characters of names and texts from outside are
escaped (``base.printable``). Only ``consume`` passes the bytes of messages on, where no terminal reads them.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minikafka.base.printable import UNPRINTABLE, printable
from minikafka.cli.options import Format

Row = Mapping[str, object]


def print_rows(rows: Sequence[Row], columns: Sequence[str], style: Format, nothing: str = "") -> None:
    """Print ``rows``: as a table with ``columns``, or each whole row as a line of JSON.

    nothing: what to say on stderr where there are none; standard output stays empty for scripts.
    """
    if nothing and not rows:
        note(f"minikafka: {nothing}")
    if style is Format.JSON:
        for row in rows:
            print_json(row)
    elif rows:
        for line in table_lines(rows, columns):
            say(line)


def say(text: str = "", *, flush: bool = False) -> None:
    """Print one line for people."""
    print(printable(text), flush=flush)


def table_lines(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    """A header and a line for each row, in aligned columns; numbers stand to the right."""
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
        return printable(",".join(f"{key}={one}" for key, one in value.items())) or "-"
    return printable(str(value))


def print_json(value: Row) -> None:
    """One line of JSON, as UTF-8 whatever the locale says."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.buffer.write(json_bytes(line) + b"\n")


def json_bytes(line: str) -> bytes:
    """JSON as UTF-8, without what a terminal would act on: it stands as JSON's own escapes."""
    if not line.isascii() or "\x7f" in line:
        line = UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
    return line.encode("utf-8")


def note(text: str) -> None:
    """A line for people, on stderr, where it cannot get in the way of results."""
    print(printable(text), file=sys.stderr, flush=True)


TOLD_MAX = 100
"""Warnings that are remembered, so as not to be repeated."""


class NoteHandler(logging.Handler):
    """What libraries warn of, as lines like all that the command says; the same ``once``."""

    def __init__(self, *, once: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._once = once
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        text = " ".join(record.getMessage().removeprefix("minikafka: ").split())
        if self._once:
            if text in self._told:
                return
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told.add(text)
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]}"
        note(f"minikafka: {text}")


@contextlib.contextmanager
def warnings_as_notes(logger: str, *, once: bool = False) -> Iterator[None]:
    """What is warned of by ``logger`` and those below it within the block are lines like all others."""
    clients, notes = logging.getLogger(logger), NoteHandler(once=once)
    clients.addHandler(notes)
    try:
        yield
    finally:
        clients.removeHandler(notes)


def base64_or_none(data: bytes | None) -> str | None:
    """Standard base64 with padding; None stays None."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def text_or_none(data: bytes | None) -> str | None:
    """UTF-8, with what is not UTF-8 shown as backslash escapes; None stays None."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def utc_text(timestamp_ms: int | None) -> str | None:
    """``2013-01-01T05:15:00.000Z``; None for none, and the number where no calendar has it."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms // 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
