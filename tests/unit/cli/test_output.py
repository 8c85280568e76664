from __future__ import annotations

import pytest

from minikafka.base.words import counted
from minikafka.cli.options import Format
from minikafka.cli.output import base64_or_none, print_rows, table_lines, text_or_none, utc_text

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


def test_json_prints_every_whole_row_on_its_own_line(capfd: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "žluťoučký", "n": None}, {"n": 1}], ["name"], Format.JSON)
    assert capfd.readouterr().out == '{"name":"žluťoučký","n":null}\n{"n":1}\n'


def test_one_is_told_as_one() -> None:
    assert [counted(number, "message") for number in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]


def test_bytes_that_are_no_text_are_escaped_and_none_stays_none() -> None:
    assert text_or_none(b"a\xffb") == "a\\xffb"
    assert text_or_none(None) is None
    assert base64_or_none(b"\x00\xff") == "AP8="
    assert base64_or_none(None) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_357_017_300_250, "2013-01-01T05:15:00.250Z"),
        (-1, None),
        (None, None),
        (2**62, str(2**62)),
    ],
)
def test_times_are_printed_in_utc_and_impossible_ones_as_numbers(
    timestamp_ms: int | None, text: str | None
) -> None:
    assert utc_text(timestamp_ms) == text
