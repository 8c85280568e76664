"""``consume --zookeeper``: what is committed of what was printed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from minikafka.base.errors import ConfigError, ConsumerTimeout, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.records.output import MessageLine
from minikafka.cli.records.zookeeper_group_reader import ZooKeeperGroupReader, consumer_config
from minikafka.cli.terminal.output import warnings_as_notes
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.records.format.record import Headers
from tests.support.command_line import CommandLine

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
IDLE = None


@dataclass(frozen=True)
class Message:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int = -1
    raw_key: bytes | None = None
    raw_message: bytes | None = b"v"
    headers: Headers = ()


class Connector:
    """A consumer whose one stream gives out what it is told to, and counts as the real one does."""

    def __init__(self, *given: Message | None) -> None:
        self.given = list(given)
        self.positions = {T0: 5, U0: 7}
        self.commits: list[dict[TopicPartition, int]] = []
        self.fails = False
        self.closed = False
        self._in_hand: Message | None = None

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._in_hand is not None:
            self._count(self._in_hand.offset + 1, self._in_hand)
        self._in_hand = None
        if not self.given:
            raise StopIteration
        message = self.given.pop(0)
        if message is None:
            raise ConsumerTimeout("nothing came")
        self._count(message.offset, message)
        self._in_hand = message
        return message

    def _count(self, offset: int, message: Message) -> None:
        self.positions[TopicPartition(message.topic, message.partition)] = offset

    def give(self, positions: dict[TopicPartition, int]) -> None:
        """End a rebalance."""
        self.positions, self._in_hand = positions, None

    def create_message_streams(self, wanted: Mapping[str, int]) -> Any:
        if self.fails:
            raise MinikafkaError("no rebalance")
        assert wanted == {"t": 1}
        return {"t": [self]}

    def create_message_streams_by_filter(self, topic_filter: object, num_streams: int = 1) -> Any:
        assert (topic_filter, num_streams) == (Whitelist("t|u"), 1)
        return [self]

    def set_consumer_rebalance_listener(self, listener: object) -> None:
        pass

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        if self.fails:
            raise MinikafkaError("away")
        assert offsets is not None
        self.commits.append(dict(offsets))

    def shutdown(self) -> None:
        self.closed = True


def follower(connector: Connector, *, interval_ms: int = 60_000) -> ZooKeeperGroupReader:
    config = consumer_config("g", "z:1", "c", {"auto.commit.interval.ms": str(interval_ms)}, at_end=False)
    return ZooKeeperGroupReader(config, Whitelist("t|u"), lambda _: connector)


def print_all(member: ZooKeeperGroupReader, count: int | None = None) -> list[int]:
    offsets = []
    for tp, line in islice(member.messages(), count):
        with member.printing(tp, line):
            offsets.append(line.offset)
    return offsets


def test_what_was_printed_is_committed_and_where_it_began() -> None:
    connector = Connector(Message("t", 0, 5), IDLE, Message("t", 0, 6), Message("t", 0, 7))
    with follower(connector) as member:
        assert print_all(member, 2) == [5, 6]
    assert connector.commits == [{T0: 7, U0: 7}]
    assert connector.closed


def test_a_message_that_was_taken_and_not_printed_comes_again() -> None:
    connector = Connector(Message("t", 0, 5), Message("t", 0, 6))
    with follower(connector) as member:
        messages = member.messages()
        for tp, line in islice(messages, 1):
            with member.printing(tp, line):
                pass
        next(messages)
    assert connector.commits == [{T0: 6, U0: 7}]


def test_what_was_printed_is_committed_before_partitions_are_given_up() -> None:
    connector = Connector(Message("t", 0, 5), Message("u", 0, 7))
    with follower(connector) as member:
        print_all(member, 1)
        member.before_releasing_partitions({"t": {0}, "u": {0}})
        connector.give({U0: 7})
        print_all(member, 1)
    assert connector.commits == [{T0: 6, U0: 7}, {U0: 8}]


def test_it_commits_now_and_then_while_it_reads_and_while_nothing_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += 1
        return now_s

    monkeypatch.setattr("minikafka.cli.records.zookeeper_group_reader.time.monotonic", monotonic)
    connector = Connector(Message("t", 0, 5), Message("t", 0, 6), IDLE)
    with follower(connector, interval_ms=1_000) as member:
        print_all(member)
    assert connector.commits == [{T0: 6, U0: 7}, {T0: 7, U0: 7}, {T0: 7, U0: 7}, {T0: 7, U0: 7}]


def test_messages_lost_with_closed_output_are_read_again() -> None:
    connector = Connector(Message("t", 0, 5))
    with contextlib.suppress(BrokenPipeError), follower(connector) as member:
        print_all(member, 1)
        raise BrokenPipeError
    assert connector.commits == []
    assert connector.closed


def test_a_commit_that_fails_is_told_and_does_not_end_it(capfd: pytest.CaptureFixture[str]) -> None:
    connector = Connector(Message("t", 0, 5))
    with follower(connector) as member:
        print_all(member, 1)
        connector.fails = True
    assert (
        capfd.readouterr().err
        == "minikafka: failed to commit offsets; printed messages will be read again: away\n"
    )
    assert connector.closed


def test_a_group_that_cannot_be_joined_is_left() -> None:
    connector = Connector()
    connector.fails = True
    config = consumer_config("g", "z:1", "c", {}, at_end=True)
    with (
        pytest.raises(MinikafkaError, match="no rebalance"),
        ZooKeeperGroupReader(config, "t", lambda _: connector),
    ):
        pass
    assert connector.closed


def test_the_settings_are_the_old_consumers_own() -> None:
    found = consumer_config("g", "z:1/c", "me", {"offsets.storage": "kafka"}, at_end=False)
    assert (found.group_id, found.zookeeper_connect, found.client_id) == ("g", "z:1/c", "me")
    assert (found.auto_offset_reset, found.auto_commit_enable) == ("smallest", False)
    assert (found.offsets_storage, found.dual_commit_enabled) == ("kafka", True)
    with pytest.raises(
        ConfigError, match=r"--property='group\.id=x': cannot be set: `consume` sets this property"
    ):
        consumer_config("g", "z:1", "me", {"group.id": "x"}, at_end=False)


def test_what_the_consumer_warns_of_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("minikafka.clients.consumer")
    with warnings_as_notes("minikafka.clients", once=True):
        for number in (1, 1, 2):
            logger.warning("no partition of topic %d is left", number)
        logger.info("all is well")
    logger.warning("later")
    printed = [line for line in capfd.readouterr().err.splitlines() if line.startswith("minikafka: ")]
    assert printed == [f"minikafka: no partition of topic {number} is left" for number in (1, 2)]


def test_a_line_has_what_is_printed() -> None:
    connector = Connector(Message("u", 0, 7, 12, b"k", None))
    with follower(connector) as member:
        assert next(member.messages()) == (U0, MessageLine(7, 12, b"k", None))


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "TOPIC: required; set exactly one of TOPIC, --whitelist REGEX and --blacklist REGEX"),
        (["t", "--whitelist", "u", "--group", "g"], "--whitelist='u': conflicts with TOPIC='t'; set"),
        (["--whitelist", "a", "--blacklist", "b", "--group", "g"], "conflicts with --whitelist='a'"),
        (["--whitelist", "t.*"], "--group: required with --whitelist"),
        (["--blacklist", "(", "--group", "g"], "--blacklist='('"),
        (["t", "--zookeeper", "z:1"], "--zookeeper='z:1': requires --group G"),
        (["t", "--group", "g", "--property", "offsets.storage=kafka"], "requires --zookeeper"),
        (["t", "--group", "g", "--zookeeper", "z:1", "--property", "x"], "must be KEY=VALUE"),
        (["t", "--group", "g", "--zookeeper", "z:1", "--property", "offsets.storage=x"], "offsets.storage"),
        (["t", "--group", "g", "--zookeeper", "z:1", "--bootstrap", "b:1"], "conflicts with --zookeeper z:1"),
    ],
)
def test_what_cannot_be_read_so_is_told(arguments: list[str], printed: str, cli: CommandLine) -> None:
    assert cli.run("consume", *arguments) == 2
    assert (cli.out, printed in cli.err) == ("", True), cli.err
