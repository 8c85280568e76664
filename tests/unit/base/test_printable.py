"""Untrusted names and texts in logs and on terminals."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from minikafka.base.printable import LineFormatter, printable

FORGED = "t\n2026-01-01 00:00:00,000 INFO broker 0 is the controller now (minikafka.server)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("flights", "flights"),
        ("žluťoučký 漢字 🐟\tcolumn", "žluťoučký 漢字 🐟\tcolumn"),
        ("C:\\new", "C:\\new"),
        ("a\nb\r\nc", "a\\nb\\r\\nc"),
        ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
        ("\x9b31mred\x85", "\\x9b31mred\\x85"),
        ("a\u2028b\u2029c\x0b\x0c\x1c", "a\\u2028b\\u2029c\\x0b\\x0c\\x1c"),
        ("user\u202egnp.exe\u2066\u200f", "user\\u202egnp.exe\\u2066\\u200f"),
        ("\udcff\x00\x7f", "\\udcff\\x00\\x7f"),
    ],
)
def test_a_text_is_one_line_that_no_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) == 1


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logger(log: io.StringIO) -> logging.Logger:
    made = logging.Logger("minikafka.test")  # noqa: LOG001 - one that the logging module does not keep
    handler = logging.StreamHandler(log)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s (%(name)s)"))
    made.addHandler(handler)
    return made


def test_a_name_with_a_line_break_forges_no_record(logger: logging.Logger, log: io.StringIO) -> None:
    logger.info("topic %s was made", FORGED)
    (line,) = log.getvalue().splitlines()
    assert line.startswith("INFO topic t\\n2026-01-01")


def test_a_traceback_is_readable_and_its_error_forges_no_record(
    logger: logging.Logger, log: io.StringIO
) -> None:
    try:
        raise ValueError(f"no such topic: {FORGED}\x1b[2J")
    except ValueError:
        logger.exception("failed")
    lines = log.getvalue().splitlines()
    assert lines[0] == "ERROR failed (minikafka.test)"
    assert lines[1] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in lines[1:])
    assert "\x1b" not in log.getvalue()


def test_record_formatted_by_another_handler_is_escaped(logger: logging.Logger, log: io.StringIO) -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logger.makeRecord("n", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    logging.Formatter().format(record)
    logger.handle(record)
    assert all(line.startswith("  ") for line in log.getvalue().splitlines()[1:])
