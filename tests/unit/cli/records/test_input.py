"""The messages of ``produce``: from text, JSON and files; and there and back with ``consume``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.cli.produce import parse_timestamp
from minikafka.cli.records.input import GivenMessage, InputForm, Place, given_messages, messages_in
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
JSON = InputForm(json=True)


def from_json(row: object, form: InputForm = JSON) -> GivenMessage:
    (found,) = messages_in([json.dumps(row).encode() + b"\n"], form)
    return found


def test_an_object_has_all_parts_of_a_message() -> None:
    row = {
        "topic": "elsewhere",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_500,
        "key": "k",
        "value_base64": "/w==",
        "headers": [
            {"key": "a", "value": "1"},
            {"key": "b", "value_base64": "/g=="},
            {"key": "c", "value": None},
        ],
    }
    headers = (("a", b"1"), ("b", b"\xfe"), ("c", None))
    assert from_json(row) == GivenMessage(Place(1, 1), b"k", b"\xff", headers, 3, 1_500)


def test_what_is_left_out_is_null_or_chosen_later() -> None:
    assert from_json({}) == GivenMessage(Place(1, 1), None, None)
    assert from_json({"key": None, "value": "é", "timestamp": None}) == GivenMessage(
        Place(1, 1), None, "é".encode()
    )


def test_options_are_for_messages_without_a_part_of_their_own() -> None:
    form = InputForm(json=True, key=b"all", headers=(("h", b"1"),), partition=2, timestamp_ms=9)
    own = {
        "key": "mine",
        "value": "v",
        "partition": 0,
        "timestamp": 1,
        "headers": [{"key": "x", "value": "2"}],
    }
    assert from_json(own, form) == GivenMessage(Place(1, 1), b"mine", b"v", (("h", b"1"), ("x", b"2")), 2, 9)
    assert from_json({"value": "v"}, form).key == b"all"
    assert from_json({"key": None, "value": "v"}, form).key is None
    assert from_json(own, InputForm(json=True, chooses_partition=True)).partition is None


def test_an_empty_value_is_a_tombstone_when_asked_for() -> None:
    form = InputForm(key_separator=":", empty_is_null=True)
    assert [(m.key, m.value) for m in messages_in([b"k:\n", b"l:v\n"], form)] == [(b"k", None), (b"l", b"v")]
    assert from_json({"value": ""}, InputForm(json=True, empty_is_null=True)).value is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no", "is not JSON: "),
        (b"[" * 200_000, "is not JSON: "),
        (b'{"partition": ' + b"9" * 5_000 + b"}", "is not JSON: "),
        (b'"text"', "must be a JSON object"),
        (b'{"vale": "x"}', "has the field 'vale'; allowed are headers, key, "),
        (b'{"control": "commit"}', "has the field 'control'"),
        (b'{"value": 7}', "has a value that is not a string or null: 7"),
        (b'{"key": "a", "key_base64": "YQ=="}', "has both key and key_base64"),
        (b'{"value_base64": "a"}', "has an invalid value_base64"),
        (b'{"value": "\\ud800"}', "has an invalid value"),
        (b'{"value": "\xff"}', "is not JSON: "),
        (b'{"partition": -1}', "has a partition that is not a whole number of at least 0: -1"),
        (b'{"partition": true}', "has a partition that is not"),
        (b'{"timestamp": 1.5}', "has a timestamp that is not"),
        (b'{"headers": "a"}', "has headers that are not a list"),
        (b'{"headers": [{"key": "a", "val": "b"}]}', "has a header with the field 'val'"),
    ],
)
def test_a_fault_is_told_with_its_line_and_its_text(line: bytes, problem: str) -> None:
    given = messages_in([b'{"value": "good"}\n', b"\n", line], JSON, "b.jsonl")
    assert next(given).value == b"good"
    with pytest.raises(ConfigError) as caught:
        next(given)
    text = str(caught.value)
    assert text.startswith("--input='json': line 3 of b.jsonl, which starts with ")
    assert problem in text
    assert text.endswith("; the lines before it were sent, this and later ones were not")


def test_files_are_read_one_after_another(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1\n2")
    second.write_bytes(b"3\n")
    found = list(given_messages([str(first), str(second)], InputForm()))
    assert [(message.value, message.place) for message in found] == [
        (b"1", Place(1, 1, str(first))),
        (b"2", Place(2, 2, str(first))),
        (b"3", Place(3, 1, str(second))),
    ]
    whole = given_messages([str(first), str(second)], InputForm(whole=True))
    assert [message.value for message in whole] == [b"1\n2", b"3\n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("t", "/no/such/file"), "FILE='/no/such/file': cannot be read: No such file or directory"),
        (("t", "-H", "novalue"), "--header='novalue': must be NAME=VALUE"),
        (("t", "-p", "x"), "--partition='x': must be a whole number from -1"),
        (("t", "--timestamp", "noon"), "--timestamp='noon': must be a time (2013-01-01, "),
        (("t", "--timestamp", "-5"), "or how long ago (1h, 1h30m, PT1H)"),
        (("t", "--input", "xml"), "--input='xml': must be one of lines, json"),
        (("t", "-K", ":", "-k", "a"), "--key-separator=':': conflicts with --key a"),
        (("t", "-K", ":", "--input", "json"), "--key-separator=':': conflicts with --input json"),
        (("t", "--whole", "--input", "json"), "--whole='yes': conflicts with"),
    ],
)
def test_options_that_cannot_be_are_told(arguments: tuple[str, ...], message: str, cli: CommandLine) -> None:
    assert cli.run("produce", *arguments) == 2
    assert message in cli.err
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1500", 1_500),
        ("1357016400", 1_357_016_400),  # not seconds: every number is in ms
        ("1357016400000", 1_357_016_400_000),
        ("2013-01-01T05:00Z", 1_357_016_400_000),
        ("-1h", 1_000),
        ("PT1H", 1_000),
    ],
)
def test_a_timestamp_is_a_number_of_ms_or_a_time(text: str, time_ms: int) -> None:
    assert parse_timestamp(text, 3_601_000) == time_ms


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    return serve(BrokerHarness(2, {"t": 2, "copy": 2}))


def test_messages_have_the_options_of_the_command(
    brokers: BrokerHarness, cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\n\n")
    options = ("-k", "key", "-H", "a=1", "-H", "b=x=y", "-p", "1", "--timestamp", "1970-01-01T00:00:02")
    assert cli.run("produce", "t", "-l", str(file), *options, "-Z", "-z", "gzip") == 0, cli.err
    assert cli.err == "2 messages to t\n"
    assert cli.run("consume", "t", "-e", "-f", "%p %k %v %V %d %h\\n") == 0
    assert cli.lines == ["1 key a 1 2000 a=1,b=x=y", "1 key  -1 2000 a=1,b=x=y"]


def test_json_goes_there_and_back_unchanged(
    brokers: BrokerHarness, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = (("trace", b"1"), ("raw", b"\xff"), ("none", None))
    rows = [Record(b"k", b"a", 1_000, headers), Record(b"\xfe", b"", 2_000), Record(None, None, 3_000)]
    brokers.produce(T0, build_batch(rows))
    brokers.produce(T1, build_batch([Record("é".encode(), b"\xff\n", 500)]))
    assert cli.run("consume", "t", "-e", "--format", "json") == 0
    printed = cli.out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(printed.encode())))
    assert cli.run("produce", "copy", "--input", "json") == 0, cli.err
    assert cli.run("consume", "copy", "-e", "--format", "json") == 0
    assert cli.out == printed.replace('"topic":"t"', '"topic":"copy"')


def test_a_partition_that_is_not_there_is_told(
    brokers: BrokerHarness, cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b'{"value": "a"}\n{"value": "b", "partition": 2}\n')
    assert cli.run("produce", "t", str(file), "--input", "json") == 1
    assert "there is no partition 2: topic 't' has 2 partitions, 0 to 1" in cli.err
    assert cli.run("produce", "t", str(file), "--input", "json", "-p", "-1") == 0
