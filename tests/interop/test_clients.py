"""Real clients of many languages against our broker: each must do each of these, with exact content.

The first line of a test's docstring is the feature's name in docs/reference/compatibility.md.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.clients import CLIENTS, CODECS, Client, Prepared
from tests.interop.conftest import Broker, Pair, recorded
from tests.interop.driver import Message, Program

pytestmark = pytest.mark.timeout(180)


class Connected:
    """A client whose program runs."""

    def __init__(self, client: Client, prepared: Prepared, broker: Broker) -> None:
        self.client = client
        self.version = prepared.version
        self._start = lambda: client.program(prepared, broker.bootstrap, broker.zookeeper)
        self.program = self._start()

    def restart(self) -> None:
        """A new process."""
        self.program.close()
        self.program = self._start()

    def produce(
        self, topic: str, messages: list[Message], codec: str = "none", mode: str = "default"
    ) -> list[Message]:
        """Send, and return the messages with the offsets that they were given."""
        lines = (message.line() for message in messages)
        offsets = self.program.ask("produce", topic, codec, mode, len(messages), lines=lines)
        assert len(offsets) == len(messages)
        return [
            replace(message, offset=int(offset)) for message, (offset,) in zip(messages, offsets, strict=True)
        ]

    def read(self, topic: str, partition: int, count: int, level: str = "read_uncommitted") -> list[Message]:
        """So many messages, from the start of a partition."""
        return [Message.parse(words) for words in self.program.ask("read", topic, partition, count, level)]


PROGRAMS: dict[str, Connected] = {}


@pytest.fixture(scope="session", autouse=True)
def _programs_end() -> Iterator[None]:
    yield
    for connected in PROGRAMS.values():
        connected.program.close()
    PROGRAMS.clear()


def marked(client: Client) -> object:
    """Those that pip does not install are behind the marker."""
    return pytest.param(client, id=str(client), marks=() if client.from_pypi else pytest.mark.interop)


@pytest.fixture(params=[marked(client) for client in CLIENTS])
def client(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connected]:
    """Each client in turn; a program is used for all tests of its client until one of them fails."""
    kind: Client = request.param
    recorded(request, str(kind))
    codec = request.node.callspec.params.get("codec")
    reason = kind.lacks.get(request.function.__name__)
    if codec is not None and codec not in kind.codecs:
        reason = f"it does not know {codec}"
    if reason:
        pytest.skip(f"not in this client: {reason}")
    if str(kind) not in PROGRAMS:
        prepared = kind.prepare(tmp_path_factory.mktemp("program"))
        PROGRAMS[str(kind)] = Connected(kind, prepared, broker)
    connected = PROGRAMS[str(kind)]
    request.node.user_properties.append(("version", connected.version))
    yield connected
    if connected.program.is_idle:
        connected.program.forget()
    else:
        PROGRAMS.pop(str(kind)).program.close()


def messages_of(pairs: list[Pair], client: Connected, partitions: int) -> list[Message]:
    """Keys and values that are hard to carry; of every third record also headers, where there are any."""
    base_ms = int(time.time() * 1000) - 60_000
    null = None if client.client.null_headers else b""
    names = ("h", "null", "h", "größe") if client.client.repeats_headers else ("größe", "h", "null", "z")
    empty = b"" if client.client.has_empty_fields else None
    hard = tuple(zip(names, (b"\xfe\x00", null, empty, b"5"), strict=True))
    return [
        Message(
            number % partitions,
            base_ms + number,
            key or (empty if key is not None else None),
            value or (empty if value is not None else None),
            hard[: number % 5] if client.client.has_headers and number % 3 == 0 else (),
        )
        for number, (key, value) in enumerate(pairs)
        if client.client.sends_nothing or (key, value) != (None, None)
    ]


def numbered(count: int, partitions: int, first: int = 0) -> list[Message]:
    """Small messages that all differ."""
    base_ms = int(time.time() * 1000) - 60_000
    return [
        Message(number % partitions, base_ms + number, b"k%d" % number, b"v%d" % number)
        for number in range(first, first + count)
    ]


def in_order(messages: list[Message]) -> list[Message]:
    """By partition and offset."""
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def received(program: Program) -> list[Message]:
    """Return the messages that all members have received."""
    return [record for member in program.members.values() for record in member.records]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_is_read_exactly(
    client: Connected, broker: Broker, pairs: list[Pair], codec: str
) -> None:
    """produce and read."""
    topic = broker.create_topic(2)
    sent = client.produce(topic, messages_of(pairs, client, 2), codec)
    found = [client.read(topic, n, sum(message.partition == n for message in sent)) for n in (0, 1)]
    assert found[0] + found[1] == in_order(sent)
    assert [[message.offset for message in of] for of in found] == [list(range(len(of))) for of in found]


def test_a_producer_without_an_id_sends_exactly(client: Connected, broker: Broker, pairs: list[Pair]) -> None:
    """produce without idempotence."""
    topic = broker.create_topic(1)
    sent = client.produce(topic, messages_of(pairs, client, 1), "lz4", mode="plain")
    assert client.read(topic, 0, len(sent)) == sent


def test_a_reader_of_committed_records_gets_those_without_a_transaction(
    client: Connected, broker: Broker, pairs: list[Pair]
) -> None:
    """read committed records."""
    topic = broker.create_topic(1)
    sent = client.produce(topic, messages_of(pairs, client, 1), "gzip")
    assert client.read(topic, 0, len(sent), "read_committed") == sent


def test_all_read_what_librdkafka_sent(
    client: Connected, broker: Broker, pairs: list[Pair], tmp_path: Path
) -> None:
    """read what librdkafka sent."""
    topic, first = broker.create_topic(1), CLIENTS[0]
    sender = Connected(first, first.prepare(tmp_path), broker)
    try:
        sent = sender.produce(topic, messages_of(pairs, client, 1), client.client.codecs[-1])
    finally:
        sender.program.close()
    assert client.read(topic, 0, len(sent)) == sent


def test_an_idempotent_producer_marks_what_it_sends(
    client: Connected, broker: Broker, pairs: list[Pair]
) -> None:
    """idempotent producer."""
    topic = broker.create_topic(1)
    sent = client.produce(topic, messages_of(pairs, client, 1), mode="idempotent")
    assert client.read(topic, 0, len(sent)) == sent
    # Of a batch of format 2: the magic at 16, the producer's id at 43, its epoch, the first sequence number.
    batches, at, expected = broker.segments(topic), 0, 0
    while at < len(batches):
        (size,), magic = struct.unpack_from(">i", batches, at + 8), batches[at + 16]
        if size <= 0:
            break  # room that was allocated ahead
        producer_id, epoch, sequence, count = struct.unpack_from(">qhii", batches, at + 43)
        assert (magic, epoch, sequence) == (2, 0, expected)
        assert producer_id >= 0
        at, expected = at + 12 + size, expected + count
    assert expected == len(sent)


def test_a_group_consumes_exactly(client: Connected, broker: Broker, pairs: list[Pair]) -> None:
    """consume with a group."""
    topic = broker.create_topic(3)
    sent = client.produce(topic, messages_of(pairs, client, 3), "lz4")
    member = client.program.join("one", f"g-{topic}", topic)
    client.program.until(lambda: len(member.records) >= len(sent), f"{len(sent)} records")
    client.program.leave("one")
    assert in_order(member.records) == in_order(sent)
    assert client.program.wrongs == []
    assert member.errors == []


def test_members_share_the_partitions_and_lose_nothing(client: Connected, broker: Broker) -> None:
    """rebalance of several members."""
    topic, program = broker.create_topic(6), client.program
    sent = client.produce(topic, numbered(120, 6))
    for count, name in enumerate(("one", "two", "three"), 1):
        program.join(name, f"g-{topic}", topic, "commits")
        program.until(lambda count=count: owned(program) == [6 // count] * count, f"share of {name}")
        sent += client.produce(topic, numbered(60, 6, len(sent)))
    program.leave("two")
    program.until(lambda: owned(program) == [0, 3, 3], "share of those that stay")
    sent += client.produce(topic, numbered(60, 6, len(sent)))
    program.until(lambda: len(received(program)) >= len(sent), f"{len(sent)} records")
    program.leave("one")
    program.until(lambda: owned(program) == [0, 0, 6], "share of the one that stays")
    program.leave("three")
    assert program.wrongs == []
    assert [member.errors for member in program.members.values()] == [[], [], []]
    assert in_order(received(program)) == in_order(sent)


def owned(program: Program) -> list[int]:
    """Return the number of partitions of each member."""
    return sorted(len(member.owned) for member in program.members.values())


def test_what_was_committed_is_not_seen_again_by_a_new_process(client: Connected, broker: Broker) -> None:
    """commit and resume."""
    topic = broker.create_topic(2)
    group = f"g-{topic}"
    committed = client.produce(topic, numbered(40, 2))
    first = client.program.join("one", group, topic)
    client.program.until(lambda: len(first.records) >= 40, "the first 40 records")
    client.program.ask("commit", "one")
    sent = client.produce(topic, numbered(10, 2, 40))
    client.program.until(lambda: len(first.records) >= 50, "10 records more")
    client.program.leave("one")
    assert in_order(first.records) == in_order(committed + sent)
    client.restart()
    sent += client.produce(topic, numbered(10, 2, 50))
    second = client.program.join("two", group, topic)
    client.program.until(lambda: len(second.records) >= 20, "what was not committed and what is new")
    client.program.leave("two")
    assert in_order(second.records) == in_order(sent)


def test_offsets_are_found_by_time(client: Connected, broker: Broker) -> None:
    """offsets by time."""
    topic = broker.create_topic(2)
    base_ms = int(time.time() * 1000) - 600_000
    sent = [replace(message, timestamp_ms=base_ms + 100 * i) for i, message in enumerate(numbered(80, 2))]
    client.produce(topic, sent, "gzip")
    for timestamp_ms, expected in (
        (base_ms - 5, [["0", "0"], ["1", "0"]]),
        (base_ms + 4000, [["0", "20"], ["1", "20"]]),
        (base_ms + 4001, [["0", "21"], ["1", "20"]]),
        (base_ms + 7900, [["0", "-1"], ["1", "39"]]),
    ):
        assert sorted(client.program.ask("times", topic, timestamp_ms)) == expected


def test_topics_are_made_described_and_deleted(client: Connected, broker: Broker) -> None:
    """create, describe and delete a topic."""
    topic, program = f"made-{random.randrange(10**9)}", client.program
    program.ask("create", topic, 3, "segment.bytes=1048576")
    program.until_told(lambda: [topic] in program.ask("topics"), "the new topic in the list")
    described = sorted(program.ask("describe", topic))
    assert described == [["0", "0", "1"], ["1", "0", "1"], ["2", "0", "1"]]
    program.ask("delete", topic)
    program.until_told(lambda: [topic] not in program.ask("topics"), "a list without the deleted topic")


def test_settings_of_a_topic_are_described_and_altered(client: Connected, broker: Broker) -> None:
    """describe and alter settings of a topic."""
    topic, program = f"set-{random.randrange(10**9)}", client.program
    program.ask("create", topic, 1, "segment.bytes=1048576")
    program.until_told(lambda: [topic] in program.ask("topics"), "the new topic in the list")
    assert ["segment.bytes=1048576"] in program.ask("config", topic)
    program.ask("alter", topic, "segment.bytes=1048576", "retention.ms=7200000")
    program.until_told(lambda: ["retention.ms=7200000"] in program.ask("config", topic), "the new setting")
    assert ["segment.bytes=1048576"] in program.ask("config", topic)


def test_groups_are_listed_and_described(client: Connected, broker: Broker) -> None:
    """list and describe groups."""
    topic, program = broker.create_topic(4), client.program
    group = f"g-{topic}"
    client.produce(topic, numbered(8, 4))
    members = [program.join(name, group, topic) for name in ("one", "two")]
    program.until(lambda: owned(program) == [2, 2], "share of both")
    program.until(lambda: len(received(program)) >= 8, "all records")
    program.ask("commit", "one")
    program.ask("commit", "two")
    assert [group] in program.ask("groups")
    state, *shares = program.ask("group", group)
    assert state[0].lower() == "stable"
    expected = sorted([",".join(map(str, sorted(member.owned)))] for member in members)
    assert sorted(shares) == expected
    program.leave("one", "two")
