"""Text from outside (topic names, client ids, errors of peers, znodes) as a terminal or a log may show it.

A line break in a name would forge a line of a log; an escape sequence would move the cursor, change the
window's title or hide text; a bidirectional override would show it in another order. All of these stand as
Python's backslash escapes. Escaping is done in one place for each way out: ``LineFormatter`` for every log
handler, ``cli.output`` for what commands print.
"""

from __future__ import annotations

import logging
import re

UNPRINTABLE = re.compile(
    "["
    "\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 without the tab, DEL and C1: line breaks and terminal sequences
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # separators of lines, marks and overrides of direction
    "\ufff9-\ufffb\ufeff\ud800-\udfff"  # annotations and the byte order mark, which are invisible; surrogates
    "]"
)
"""What never stands in a line. The tab is harmless, and separates columns."""


def printable(text: str) -> str:
    """``text`` as one line: control characters, line breaks and overrides of direction are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class LineFormatter(logging.Formatter):
    """Formats a record as one line; a traceback follows with each of its lines indented.

    So a line that begins at the margin is a record, whatever a name or the text of an error has in it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, and its traceback where it has one."""
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [printable(self.formatMessage(record))]
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        for text in (record.exc_text, record.stack_info):
            # Only real line breaks part the lines: ``splitlines`` would also take those that names may have.
            lines += [f"  {printable(line)}" for line in (text or "").rstrip("\n").split("\n") if line]
        return "\n".join(lines)


def log_lines_to_stderr(form: str) -> None:
    """Have a process that serves log to standard error, from INFO on, a line a record."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
