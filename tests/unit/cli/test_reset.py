"""``group reset``: which target was meant, and where it lies in each partition."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.cli.reset import Log, Rule, Target, check_shift, new_offset, one_target, outside, parse_topic

NOTHING = {
    "earliest": False,
    "latest": False,
    "current": False,
    "offset": None,
    "time_ms": None,
    "since_ms": None,
    "shift": None,
}


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"earliest": True}, Target(Rule.EARLIEST)),
        ({"latest": True}, Target(Rule.LATEST)),
        ({"offset": 0}, Target(Rule.OFFSET, 0)),
        ({"time_ms": 5}, Target(Rule.TIME, 5)),
        ({"since_ms": 6}, Target(Rule.TIME, 6)),
        ({"current": True}, Target(Rule.CURRENT)),
        ({"shift": -3}, Target(Rule.SHIFT, -3)),
    ],
)
def test_one_option_is_the_target(given: dict[str, int], target: Target) -> None:
    assert one_target(**(NOTHING | given)) == target  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{}, {"earliest": True, "shift": 0}, {"offset": 0, "time_ms": 0}])
def test_no_option_and_several_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(
        ConfigError, match="give one of --to-earliest, --to-latest, --to-current, --to-offset N"
    ):
        one_target(**(NOTHING | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("t", ("t", None)), ("t:3", ("t", (3,))), ("a.b-c:0, 2,0", ("a.b-c", (0, 2)))],
)
def test_a_topic_may_name_some_of_its_partitions(
    text: str, meant: tuple[str, tuple[int, ...] | None]
) -> None:
    assert parse_topic(text) == meant


@pytest.mark.parametrize("text", ["t:", ":1", "t:-1", "t:1,,2", "t:1:2"])
def test_what_names_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--topic"):
        parse_topic(text)


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target(Rule.EARLIEST), 10),
        (Target(Rule.LATEST), 50),
        (Target(Rule.OFFSET, 30), 30),
        (Target(Rule.OFFSET, 3), 10),
        (Target(Rule.OFFSET, 300), 50),
        (Target(Rule.TIME, 99), 33),
        (Target(Rule.SHIFT, 5), 25),
        (Target(Rule.SHIFT, -5), 15),
        (Target(Rule.SHIFT, -50), 10),
        (Target(Rule.SHIFT, 50), 50),
    ],
)
def test_the_new_offset_lies_within_the_log(target: Target, offset: int) -> None:
    assert new_offset(target, Log(start_offset=10, end_offset=50, committed=20, at_time=33)) == offset


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target(Rule.OFFSET, 30), None),
        (Target(Rule.OFFSET, 50), None),
        (Target(Rule.OFFSET, 51), 51),
        (Target(Rule.SHIFT, -11), 9),
        (Target(Rule.LATEST), None),
        (Target(Rule.TIME, 99), None),
    ],
)
def test_an_offset_outside_of_the_log_is_known_as_such(target: Target, offset: int | None) -> None:
    assert outside(target, Log(start_offset=10, end_offset=50, committed=20, at_time=33)) == offset


def test_a_time_after_the_last_message_is_the_end() -> None:
    assert new_offset(Target(Rule.TIME, 99), Log(10, 50)) == 50


def test_only_what_is_there_can_be_shifted() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    check_shift(Target(Rule.SHIFT, 1), {here: 5}, [here])
    check_shift(Target(Rule.LATEST), {}, [here])
    with pytest.raises(ConfigError, match="--shift-by=1: the group has no offset of t-1"):
        check_shift(Target(Rule.SHIFT, 1), {here: 5}, [here, there])
