from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.cli.options import Format
from minikafka.cli.records.output import MessageLine, show_line, show_object
from minikafka.cli.terminal import output
from minikafka.cli.terminal.output import (
    note,
    print_json,
    print_rows,
    say,
    table_lines,
    text_or_none,
    warnings_as_notes,
)

ROWS = [{"name": "flights", "partitions": 4, "more": 1}, {"name": "a", "partitions": 12, "more": 2}]


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    assert table_lines(ROWS, ["name", "partitions"]) == [
        "NAME     PARTITIONS",
        "flights           4",
        "a                12",
    ]


def test_cells_show_none_lists_flags_and_pairs_as_people_read_them() -> None:
    row = {"key": None, "replicas": [1, 2], "internal": False, "config": {"a": "b"}, "rate": 1234.56}
    assert table_lines([row], list(row))[1] == "-    1,2       no        a=b     1,234.6"


def test_a_table_without_rows_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], ["name"], Format.TABLE)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("style", list(Format))
def test_what_has_no_rows_is_told_beside_the_results(
    capsys: pytest.CaptureFixture[str], style: Format
) -> None:
    print_rows([], ["name"], style, nothing="there are no topics")
    assert capsys.readouterr() == ("", "minikafka: there are no topics\n")
    print_rows(ROWS, ["name"], style, nothing="there are no topics")
    assert capsys.readouterr().err == ""


def test_json_prints_every_whole_row_on_its_own_line(capfd: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "žluťoučký", "n": None}, {"n": 1}], ["name"], Format.JSON)
    assert capfd.readouterr().out == '{"name":"žluťoučký","n":null}\n{"n":1}\n'


def test_one_is_told_as_one() -> None:
    assert [counted(number, "message") for number in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]


def test_bytes_that_are_no_text_are_escaped_and_none_stays_none() -> None:
    assert text_or_none(b"a\xffb") == "a\\xffb"
    assert text_or_none(None) is None


NASTY = "t\n\x1b[2J\x9b1m\u202e"


def test_a_table_shows_what_a_terminal_would_act_on_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [{"name": NASTY, "list": [NASTY], "map": {NASTY: NASTY}}]
    print_rows(rows, ["name", "list", "map"], Format.TABLE)
    shown = "t\\n\\x1b[2J\\x9b1m\\u202e"
    assert capsys.readouterr().out.splitlines()[1].split() == [shown, shown, f"{shown}={shown}"]


def test_a_line_and_a_note_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"deleted {NASTY}")
    note(f"minikafka: no topic {NASTY}")
    done = capsys.readouterr()
    assert done.out == "deleted t\\n\\x1b[2J\\x9b1m\\u202e\n"
    assert done.err == "minikafka: no topic t\\n\\x1b[2J\\x9b1m\\u202e\n"


def test_json_keeps_its_meaning_without_what_a_terminal_would_act_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print_json({"name": NASTY + "ž\x7f\udcff"})
    out = capfd.readouterr().out
    assert out == '{"name":"t\\n\\u001b[2J\\u009b1m\\u202ež\\u007f\\udcff"}\n'
    assert json.loads(out) == {"name": NASTY + "ž\x7f\udcff"}


def test_what_a_library_warns_of_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_notes("minikafka.output_test"):
        logging.getLogger("minikafka.output_test").warning("refused: %s", NASTY)
    assert capsys.readouterr().err == "minikafka: refused: t \\x1b[2J\\x9b1m\\u202e\n"


def test_messages_go_to_a_pipe_as_they_are_and_to_a_terminal_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = MessageLine(5, -1, None, b"a\x1b[2J\tb")
    show_line(TopicPartition("t", 0), record)
    show_line(TopicPartition("t", 0), record, terminal=True)
    piped, shown = capsys.readouterr().out.split("\n")[:2]
    assert piped.endswith("null\ta\x1b[2J\tb")
    assert shown.endswith("null\ta\\x1b[2J\tb")


@pytest.mark.parametrize("terminal", [False, True])
def test_null_keys_and_values_are_shown_as_by_the_console_consumer(
    capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    show_line(TopicPartition("t", 0), MessageLine(5, -1, b"k", None), terminal=terminal)
    show_line(TopicPartition("t", 0), MessageLine(5, -1, None, b""), terminal=terminal)
    deleted, keyless = capsys.readouterr().out.splitlines()
    assert deleted.endswith(" k\tnull")
    assert keyless.endswith(" null\t")


def test_null_keys_and_values_are_null_in_json(capfd: pytest.CaptureFixture[str]) -> None:
    show_object(TopicPartition("t", 0), MessageLine(5, -1, None, None))
    row = json.loads(capfd.readouterr().out)
    assert (row["key"], row["value"]) == (None, None)


def test_commands_print_through_this_module_alone() -> None:
    """So that nothing from outside reaches a terminal as it is; the exceptions print nothing of the kind."""
    allowed = {"output.py", "main.py", "progress.py", "commands.py", "consume.py"}
    found = {
        path.name
        for path in Path(output.__file__).parent.glob("*.py")
        if re.search(r"(?<![\w.])print\(", path.read_text(encoding="utf-8"))
    }
    assert found <= allowed
