"""``group reset``: which target was meant, and where it lies in each partition."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.cli.group_reset import parse_shift, parse_target, parse_topic, plan_json, plan_lines, read_plan
from minikafka.clients.admin.offset_resets import ResetTarget, Rule

NOTHING = {
    "earliest": False,
    "latest": False,
    "current": False,
    "offset": None,
    "time_ms": None,
    "since_ms": None,
    "shift": None,
    "file": False,
}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"earliest": True}, ResetTarget(Rule.EARLIEST)),
        ({"latest": True}, ResetTarget(Rule.LATEST)),
        ({"offset": 0}, ResetTarget(Rule.OFFSET, 0)),
        ({"time_ms": 5}, ResetTarget(Rule.TIME, 5)),
        ({"since_ms": 6}, ResetTarget(Rule.TIME, 6)),
        ({"current": True}, ResetTarget(Rule.CURRENT)),
        ({"shift": -3}, ResetTarget(Rule.SHIFT, -3)),
        ({"file": True}, ResetTarget(Rule.FILE)),
    ],
)
def test_one_option_is_the_target(given: dict[str, int], target: ResetTarget) -> None:
    assert parse_target(**(NOTHING | given)) == target  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{}, {"earliest": True, "shift": 0}, {"offset": 0, "time_ms": 0}])
def test_no_option_and_several_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(
        ConfigError, match="set exactly one of --to-earliest, --to-latest, --to-current, --to-offset N"
    ):
        parse_target(**(NOTHING | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "meant"), [("t", ("t", None)), ("t:3", ("t", (3,))), ("a.b-c:0, 2,0", ("a.b-c", (0, 2)))]
)
def test_a_topic_may_name_some_of_its_partitions(
    text: str, meant: tuple[str, tuple[int, ...] | None]
) -> None:
    assert parse_topic(text) == meant


@pytest.mark.parametrize("text", ["t:", ":1", "t:-1", "t:1,,2", "t:1:2", "t:" + "9" * 5_000])
def test_what_names_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--topic"):
        parse_topic(text)


@pytest.mark.parametrize(
    "text",
    [
        "t,0,7\nt,1,0\n",
        '\ufeff"t", 0, 7\r\n\r\n t,1,0',
        json.dumps({"partitions": [{"topic": "t", "partition": n, "offset": 7 - 7 * n} for n in (0, 1)]}),
    ],
)
def test_a_plan_is_lines_or_json(text: str) -> None:
    assert read_plan(text.encode(), "f") == {T0: 7, T1: 0}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (b"", "contains no offsets"),
        (b"t,0\n", "line 1: expected topic,partition,offset"),
        (b"t,0,1\n\nt,x,1\n", "line 3: expected a topic and a partition number"),
        (b"t,0,-1\n", "line 1: expected an offset, got '-1'"),
        (b"t,0,9223372036854775808\n", "line 1: expected an offset, got '9223372036854775808'"),
        (b"t,0,1\nt,0,2\n", "line 2: t-0 appears twice"),
        (b"\xff", "not valid UTF-8"),
        (b"{", "invalid JSON: "),
        (b"[]", 'expected an object with a list "partitions" of objects'),
        (b'{"partitions": [{"topic": "t", "partition": 0}]}', "entry 1: expected an offset, got None"),
        (
            b'{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}',
            "entry 1: expected a topic and a partition number",
        ),
        (
            b'{"partitions": [{"topic": "t", "partition": 0, "offset": 1.5}]}',
            "entry 1: expected an offset, got 1.5",
        ),
    ],
)
def test_what_is_no_plan_is_told_with_its_place(text: bytes, printed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_plan(text, "f")
    assert str(caught.value).startswith(f"--from-file='f': {printed}")


def test_a_plan_that_was_printed_is_read_again() -> None:
    plan = {T1: 0, T0: 7}
    assert plan_lines(plan) == ["t,0,7", "t,1,0"]
    assert read_plan("\n".join(plan_lines(plan)).encode(), "f") == plan
    assert read_plan(json.dumps(plan_json(plan)).encode(), "f") == plan


@pytest.mark.parametrize(("text", "number"), [("7", 7), (" -7 ", -7), ("0", 0)])
def test_a_shift_goes_on_or_back(text: str, number: int) -> None:
    assert parse_shift(text) == number
