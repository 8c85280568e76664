"""``minikafka txn``, and the isolation level of ``consume``: what their options may be together."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine

WHERE = ("--topic", "t", "--partition", "0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("abort", *WHERE), "--start-offset: set --start-offset O, or for brokers before 3.0"),
        (("abort", *WHERE, "--producer-id", "1"), "--producer-epoch: required with --producer-id"),
        (
            ("abort", *WHERE, "--producer-id", "1", "--producer-epoch", "0"),
            "--coordinator-epoch: required with --producer-id",
        ),
        (
            ("abort", *WHERE, "--start-offset", "1", "--producer-id", "1"),
            "--start-offset=1: conflicts with --producer-id",
        ),
        (
            ("abort", *WHERE, "--start-offset", "1", "--producer-epoch", "0"),
            "--start-offset=1: conflicts with --producer-epoch",
        ),
        (("abort", *WHERE, "--producer-epoch", "32768"), "--producer-epoch='32768': must be"),
        (("find-hanging",), "--topic: set --topic T, --broker-id B or both: a search needs a limit"),
        (("find-hanging", "--broker-id", "0", "--partition", "1"), "--partition=1: requires --topic"),
        (("list", "--state", "Open"), "--state='Open': must be one of Empty, Ongoing, PrepareCommit"),
        (("list", "--duration-filter", "-5"), "--duration-filter='-5': must be"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli: CommandLine, words: tuple[str, ...], said: str
) -> None:
    assert cli.run("txn", *words) == 2
    assert said in cli.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--isolation-level", "serializable"), "must be one of read_uncommitted, read_committed"),
        (
            ("--group", "g", "--zookeeper", "127.0.0.1:1", "--isolation-level", "read_committed"),
            "conflicts with --zookeeper: Kafka's consumers of 0.8 have no isolation level",
        ),
    ],
)
def test_consume_refuses_a_level_that_cannot_be(cli: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert cli.run("consume", "t", *words) == 2
    assert said in cli.err
