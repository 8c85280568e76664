"""``topic trim`` and ``topic add-partitions``, on brokers in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    brokers = BrokerHarness(2, {"t": 2})
    for tp, count in ((T0, 5), (T1, 2)):
        for second in range(count):
            brokers.produce(tp, build_batch([Record(None, b"v", 1_000 * second)]))
    return serve(brokers)


def starts(brokers: BrokerHarness) -> list[int]:
    return [brokers.logs[tp].start_offset for tp in (T0, T1)]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (("-o", "@1970-01-01T00:00:01"), [1, 1]),
        (("-o", "@0000000003"), [3, 2]),
        (("-o", "-1"), [4, 1]),
        (("-o", "end", "-p", "1"), [0, 2]),
        (("--offset", "4", "--partitions", "0"), [4, 0]),
        (("-o", "1"), [1, 1]),
    ],
)
def test_messages_before_an_offset_or_a_time_go(
    brokers: BrokerHarness, cli: CommandLine, where: tuple[str, ...], kept: list[int]
) -> None:
    assert cli.run("topic", "trim", "t", *where, "--execute") == 0, cli.err
    assert starts(brokers) == kept
    assert cli.err == f"minikafka: deleted the messages of {sum(kept)} offsets\n"


def test_without_execute_only_the_new_start_is_shown(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("topic", "trim-prefix", "t", "-o", "2") == 0
    assert [line.split() for line in cli.lines] == [
        ["TOPIC", "PARTITION", "START", "OFFSET", "NEW", "START", "OFFSET", "END", "OFFSET"],
        ["t", "0", "0", "2", "5"],
        ["t", "1", "0", "2", "2"],
    ]
    assert cli.err == "minikafka: nothing was changed; add --execute to delete the messages of 4 offsets\n"
    assert starts(brokers) == [0, 0]
    assert cli.run("topic", "trim", "t", "-o", "2", "--no-confirm", "--format", "json") == 0
    assert [(row["new_start_offset"], row["executed"]) for row in cli.rows] == [(2, True), (2, True)]


def test_an_offset_that_a_partition_lacks_deletes_nothing(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("topic", "trim", "t", "-o", "3", "--execute") == 2
    assert "--offset='3': is beyond the end of t-1 (ends at 2); set -p P for others" in cli.err
    assert cli.run("topic", "trim", "t", "-o", "1:2", "--execute") == 2
    assert "--offset='1:2': must be one offset or time, not a range" in cli.err
    assert cli.run("topic", "trim", "t", "-o", "1h", "--execute") == 2
    assert "--offset='1h': must be an offset (47), @time" in cli.err
    assert starts(brokers) == [0, 0]


def test_partitions_are_added(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("topic", "add-partitions", "t", "-n", "3") == 0
    assert cli.out == "t has 5 partitions\n"


@pytest.mark.parametrize("moment", ["@2100-01-01", "@2100-01-01T00:00:00+01:00", "@4102444800000"])
def test_a_time_in_the_future_deletes_nothing(brokers: BrokerHarness, cli: CommandLine, moment: str) -> None:
    assert cli.run("topic", "trim", "t", "-o", moment, "--execute") == 2
    assert f"--offset='{moment}': is in the future; " in cli.err
    assert cli.err.endswith("; to delete all messages, use end\n")
    assert starts(brokers) == [0, 0]


def test_a_time_after_the_last_message_means_the_end(brokers: BrokerHarness, cli: CommandLine) -> None:
    assert cli.run("topic", "trim", "t", "-o", "@1h", "--execute") == 0
    assert starts(brokers) == [5, 2]


@pytest.mark.parametrize("options", [(), ("--execute",)])
def test_a_topic_that_is_only_compacted_is_refused(
    brokers: BrokerHarness, cli: CommandLine, options: tuple[str, ...]
) -> None:
    assert cli.run("config", "set", "topic", "t", "cleanup.policy=compact") == 0, cli.err
    assert cli.run("topic", "trim", "t", "-o", "end", *options) == 1
    assert cli.err.endswith(
        "t has cleanup.policy=compact, so its records cannot be deleted by offset; add delete to "
        "cleanup.policy, or write tombstones\n"
    )
    assert cli.run("config", "set", "topic", "t", "cleanup.policy=compact,delete") == 0, cli.err
    assert cli.run("topic", "trim", "t", "-o", "end", *options) == 0
