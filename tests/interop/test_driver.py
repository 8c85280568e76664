"""The driver of the clients' programs must see what would be a fault, and the table must not hide it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.compatibility import Cell, cells_of, document, program_table, table
from tests.interop.driver import Message, Program, Refused

ECHO = """
import sys
for line in sys.stdin:
    if line == "end\\n":
        sys.exit("ended as it was told")
    print(*line.split("|"), sep="\\n", end="", flush=True)
"""
"""A program whose answer is what it is asked, a line for each part."""


@pytest.fixture
def echo() -> Iterator[Program]:
    program = Program([sys.executable, "-c", ECHO], dict(os.environ))
    yield program
    program.close()


def happens(program: Program, *lines: str) -> None:
    """Have the program say these lines."""
    program.ask("|".join([*lines, "ok"]))


def test_a_partition_that_two_members_own_at_once_is_seen(echo: Program) -> None:
    happens(echo, "@ a assigned 0,1,2", "@ a revoked 2", "@ b assigned 2")
    assert echo.wrongs == []
    happens(echo, "@ b revoked 2", "@ b assigned 1,2")
    assert echo.wrongs == ["b is given {1}, which a still owns"]


def test_a_record_of_a_partition_that_is_not_owned_is_seen(echo: Program) -> None:
    happens(
        echo, "@ a assigned 0", "@ a record 0 5 1000 - =dg== -", "@ a leaving", "@ a record 0 6 1000 - - -"
    )
    assert echo.members["a"].records == [
        Message(0, 1000, None, b"v", offset=5),
        Message(0, 1000, None, None, offset=6),
    ]
    assert echo.wrongs == ["a got a record of 0, which it does not own"]


def test_what_a_program_refuses_is_an_error(echo: Program) -> None:
    with pytest.raises(Refused, match="no such topic"):
        echo.ask("> half an answer|failed no such topic")


def test_a_program_that_has_ended_is_not_waited_for(echo: Program) -> None:
    with pytest.raises(AssertionError, match=r"answer to end; it has ended and said: ended as it was told"):
        echo.ask("end")


def test_a_message_is_the_same_after_its_line() -> None:
    message = Message(3, 1000, b"", None, (("größe", b"\x00"), ("null", None), ("empty", b"")))
    partition, *rest = message.line().split(" ")
    assert Message.parse([partition, "-1", *rest]) == message


def test_the_table_shows_no_skipped_test_as_passed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    case = (
        '<testcase><properties><property name="client" value="sarama"/>'
        '<property name="feature" value="{}"/></properties>{}</testcase>'
    )
    cases = [
        case.format("one", ""),
        case.format("two", '<skipped message="go is not on PATH"/>'),
        case.format("three", '<skipped message="not in this client: it has no threes"/>'),
        case.format("four", '<failure message="AssertionError: 4 != 5&#10;more"/>'),
        case.format("five", '<error message="no broker"/>'),
    ]
    report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    cells = cells_of(report)
    assert [(cell.feature, cell.result, cell.why) for cell in cells] == [
        ("one", "passed", ""),
        ("two", "not run", "go is not on PATH"),
        ("three", "not in this client", "it has no threes"),
        ("four", "failed", "AssertionError: 4 != 5"),
        ("five", "failed", "no broker"),
    ]
    assert cells[0] == Cell("sarama", "", "one", "passed")
    assert table(cells).splitlines() == [
        "|  | sarama |",
        "| --- | --- |",
        "| five | FAIL [1] |",
        "| four | FAIL [2] |",
        "| one | pass |",
        "| three | – [3] |",
        "| two | – [4] |",
        "",
        "- [1] failed: no broker",
        "- [2] failed: AssertionError: 4 != 5",
        "- [3] not in this client: it has no threes",
        "- [4] not run: go is not on PATH",
    ]


def test_table_of_frameworks_says_why_one_did_not_pass() -> None:
    cells = [
        Cell("Flink", "2.2.1", "copy a topic", "failed", "AssertionError: 4 != 5"),
        Cell("Kafka Streams", "4.3.1", "count words", "passed"),
        Cell("Kafka Streams", "3.9.1", "count words", "passed"),
        Cell("Kafka Streams", "3.9.1", "count words", "passed"),
    ]
    assert program_table(cells).splitlines()[2:] == [
        "| Kafka Streams 3.9.1 | count words | passed |",
        "| Kafka Streams 4.3.1 | count words | passed |",
        "| Flink 2.2.1 | copy a topic | failed: AssertionError: 4 != 5 |",
    ]


def test_each_kind_of_program_has_its_own_section() -> None:
    cells = [
        Cell("sarama", "1.61.1", "one", "passed"),
        Cell("Flink", "2.2.1", "two", "passed"),
        Cell("Apicurio Registry", "3.0.9", "three", "passed"),
        Cell("commands", "", "four", "passed", broker="4.3.1"),
    ]
    *_, clients, frameworks, registries, ours = document(cells).split("\n## ")
    assert "| one | pass |" in clients
    assert "| Flink 2.2.1 | two | passed |" in frameworks
    assert "| Apicurio Registry 3.0.9 | three | passed |" in registries
    assert "| four | pass |" in ours


def test_table_of_our_clients_has_columns_by_broker() -> None:
    cells = [
        Cell("commands", "", "one", "passed", broker="4.3.1"),
        Cell("commands", "", "one", "passed", broker="0.10.1.1"),
        Cell("producer and consumer", "", "two", "failed", "no", "4.3.1"),
    ]
    assert table(cells).splitlines() == [
        "|  | 0.10.1.1: commands | 4.3.1: producer and consumer | 4.3.1: commands |",
        "| --- | --- | --- | --- |",
        "| one | pass |  | pass |",
        "| two |  | FAIL [1] |  |",
        "",
        "- [1] failed: no",
    ]
