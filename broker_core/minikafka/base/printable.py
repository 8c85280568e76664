"""Escaping of untrusted text (topic names, client ids, errors of peers, znodes) for terminals and logs.

A line break in a name would forge a line of a log; an escape sequence would move the cursor, change the
window's title or hide text; a bidirectional override would show it in another order. All of these are
replaced by Python's backslash escapes. There is one place for each kind of output: ``log_lines`` for log
lines, ``cli.terminal.output`` for the output of commands.
"""

from __future__ import annotations

import re

UNPRINTABLE = re.compile(
    "["
    "\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 without the tab, DEL and C1: line breaks and terminal sequences
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # separators of lines, marks and overrides of direction
    "\ufff9-\ufffb\ufeff\ud800-\udfff"  # annotations and the byte order mark, which are invisible; surrogates
    "]"
)
"""Characters that are never printed. The tab is harmless, and separates columns."""


def printable(text: str) -> str:
    """Return ``text`` as one line: control characters, line breaks and direction overrides are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return UNPRINTABLE.sub(_escape, text)


def quoted(value: object) -> str:
    """Return a value in quotes for a message: a text as it was written, with invisible characters escaped,
    and anything else as Python's ``repr``.
    """
    if not isinstance(value, str):
        return repr(value)
    quote = '"' if "'" in value and '"' not in value else "'"
    if not value.isprintable():
        value = "".join([char if char.isprintable() else _escape_in_quotes(char) for char in value])
    return f"{quote}{value}{quote}"


def _escape_in_quotes(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # Python's form of a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return ascii(char)[1:-1]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
