"""The rules of a reset of offsets, and their results within the log."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.offset_resets import (
    LogOffsets,
    ResetTarget,
    Rule,
    check_shift,
    new_offset,
    out_of_range_offset,
)


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (ResetTarget(Rule.EARLIEST), 10),
        (ResetTarget(Rule.LATEST), 50),
        (ResetTarget(Rule.OFFSET, 30), 30),
        (ResetTarget(Rule.OFFSET, 3), 10),
        (ResetTarget(Rule.OFFSET, 300), 50),
        (ResetTarget(Rule.TIME, 99), 33),
        (ResetTarget(Rule.SHIFT, 5), 25),
        (ResetTarget(Rule.SHIFT, -5), 15),
        (ResetTarget(Rule.SHIFT, -50), 10),
        (ResetTarget(Rule.SHIFT, 50), 50),
        (ResetTarget(Rule.FILE), 40),
    ],
)
def test_the_new_offset_lies_within_the_log(target: ResetTarget, offset: int) -> None:
    assert new_offset(target, LogOffsets(10, 50, committed=20, at_time=33, planned=40)) == offset


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (ResetTarget(Rule.OFFSET, 30), None),
        (ResetTarget(Rule.OFFSET, 50), None),
        (ResetTarget(Rule.OFFSET, 51), 51),
        (ResetTarget(Rule.SHIFT, -11), 9),
        (ResetTarget(Rule.LATEST), None),
        (ResetTarget(Rule.TIME, 99), None),
    ],
)
def test_an_offset_outside_of_the_log_is_known_as_such(target: ResetTarget, offset: int | None) -> None:
    assert out_of_range_offset(target, LogOffsets(10, 50, committed=20, at_time=33, planned=40)) == offset


def test_a_time_after_the_last_message_is_the_end() -> None:
    assert new_offset(ResetTarget(Rule.TIME, 99), LogOffsets(10, 50)) == 50


def test_only_what_is_there_can_be_shifted() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    check_shift(ResetTarget(Rule.SHIFT, 1), {here: 5}, [here])
    check_shift(ResetTarget(Rule.LATEST), {}, [here])
    with pytest.raises(ConfigError, match="--shift-by=1: the group has no committed offset of t-1"):
        check_shift(ResetTarget(Rule.SHIFT, 1), {here: 5}, [here, there])
