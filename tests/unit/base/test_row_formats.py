from __future__ import annotations

import csv
import io
import json

import pytest

from minikafka.base.row_formats import CSV_COLUMNS, csv_line, json_line, message_cells, message_row, yaml_item

NASTY = 'a\x1b[2J\u202e,"b"\r\nc'


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (True, "true"),
        (-7, "-7"),
        (1.5, "1.5"),
        ("plain text", "plain text"),
        ("a,b", '"a,b"'),
        ('say "hi"', '"say ""hi"""'),
        (" padded", '" padded"'),
        ([0, 1], '"0,1"'),
        ([], ""),
        ([{"a": 1}], '"[{""a"": 1}]"'),
        ({"a": "b"}, '"{""a"": ""b""}"'),
        ("-1", "-1"),
        ("+1.5", "+1.5"),
    ],
)
def test_a_cell_of_csv_is_quoted_where_it_must_be(value: object, cell: str) -> None:
    assert csv_line([value]) == f"{cell}\r\n"


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-2+3", "@x", "\tx", "\rx", "\n=1", "\uff1d1"])
def test_a_formula_in_csv_is_a_text(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([text, "b"]), newline=""))
    assert row == [f"'{text}", "b"]


def test_csv_is_read_again_with_control_characters_escaped() -> None:
    (row,) = csv.reader(io.StringIO(csv_line([NASTY, "x"]), newline=""))
    assert row == ['a\\x1b[2J\\u202e,"b"\r\nc', "x"]


def test_a_message_is_json_without_control_characters() -> None:
    row = message_row("t", 0, 5, -1, b"\xff", NASTY.encode(), (("h", None), ("\u202e", b"\xfe")))
    line = json_line(row)
    assert line.isprintable()
    assert json.loads(line) == {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp": None,
        "key_base64": "/w==",
        "value": NASTY,
        "headers": [{"key": "h", "value": None}, {"key": "\u202e", "value_base64": "/g=="}],
    }


def test_yaml_is_a_list_of_mappings() -> None:
    row = {
        "topic": "orders",
        "count": 3,
        "ratio": 0.5,
        "leader": None,
        "internal": False,
        "replicas": [0, 1],
        "none": [],
        "config": {"retention.ms": "-1", "empty": {}},
        "partitions": [{"partition": 0, "in_sync": ["a b"]}, {"partition": 1}],
    }
    assert yaml_item(row) == (
        "- topic: orders\n"
        "  count: 3\n"
        "  ratio: 0.5\n"
        "  leader: null\n"
        "  internal: false\n"
        "  replicas: [0, 1]\n"
        "  none: []\n"
        "  config:\n"
        '    retention.ms: "-1"\n'
        "    empty: {}\n"
        "  partitions:\n"
        "  - partition: 0\n"
        '    in_sync: ["a b"]\n'
        "  - partition: 1\n"
    )
    assert yaml_item({}) == "- {}\n"


@pytest.mark.parametrize(
    "text", ["", "yes", "No", "null", "1", "1e3", "- a", "a: b", "#x", "a b", "é", "0x1", ".nan", NASTY]
)
def test_a_text_that_yaml_could_read_otherwise_is_quoted(text: str) -> None:
    line = yaml_item({"key": text})
    assert line.isprintable() or line.rstrip("\n").isprintable()
    assert json.loads(line.removeprefix("- key: ")) == text


def test_a_message_in_csv_has_the_same_columns_always() -> None:
    plain = message_cells("t", 0, 1, -1, None, b"", ())
    full = message_cells("t", 0, 1, 5, b"\xff", b"v", (("h", b"\xfe"), ("none", None)), "commit")
    assert plain == ("t", 0, 1, None, None, "", None, None)
    assert full == ("t", 0, 1, 5, "base64:/w==", "v", [["h", "base64:/g=="], ["none", None]], "commit")
    assert len(plain) == len(full) == len(CSV_COLUMNS)
