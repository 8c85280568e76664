from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError, NetworkError
from minikafka.cli.produce import INTERRUPTED_TIMEOUT_MS, SendResults, send_all
from minikafka.cli.records.input import GivenMessage, InputForm, Place, messages_in, parse_header
from minikafka.cli.terminal.progress import Progress
from minikafka.clients.produce import BatchingProducer
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine


@dataclass
class Answer:
    """A delivery that is over at once, or never."""

    error: MinikafkaError | None
    over: bool

    def on_done(self, callback: Callable[[Any], None]) -> None:
        if self.over:
            callback(self)


@dataclass
class Acknowledging:
    """In place of a producer: acknowledges the first ``good``, then fails or stays silent, ``bad`` times.

    ``refused`` is raised for the one after the good ones, ``interrupted`` by the wait for all of them.
    """

    good: int
    then: MinikafkaError | None = None
    refused: MinikafkaError | None = None
    interrupted: bool = False
    bad: int = 1_000
    taken: int = 0
    closed: list[int | None] = field(default_factory=list)

    def send(self, topic: str, value: bytes, *_: object) -> Answer:
        self.taken += 1
        good = self.taken <= self.good or self.taken > self.good + self.bad
        if self.refused is not None and not good:
            raise self.refused
        return Answer(None if good else self.then, good or self.then is not None)

    def flush(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def close(self, timeout_ms: int | None = None) -> None:
        self.closed.append(timeout_ms)


def sent_by(producer: Acknowledging, messages: Iterator[GivenMessage], progress: Progress) -> SendResults:
    return send_all(cast("BatchingProducer", producer), "t", messages, progress)


def lines(count: int) -> Iterator[GivenMessage]:
    return messages_in([b"x"] * count, InputForm())


def pairs(lines: list[bytes], separator: str | None) -> Iterator[tuple[bytes | None, bytes | None]]:
    found = messages_in(lines, InputForm(key_separator=separator))
    return ((message.key, message.value) for message in found)


def test_what_is_shown_as_done_was_acknowledged() -> None:
    progress = Progress("x", stream=io.StringIO())
    sent = sent_by(Acknowledging(good=3), lines(10), progress)
    assert (sent.given, sent.acknowledged, progress.done) == (10, 3, 3)


def test_all_that_was_read_gets_its_time() -> None:
    producer = Acknowledging(good=5)
    sent = sent_by(producer, lines(5), Progress("x", stream=io.StringIO()))
    assert (sent.acknowledged, sent.failure, producer.closed) == (5, None, [None])


def test_after_the_first_failure_nothing_more_is_read_or_waited_for() -> None:
    away = NetworkError("away")
    producer = Acknowledging(good=2, then=away)
    sent = sent_by(producer, lines(10), Progress("x", stream=io.StringIO()))
    assert (sent.failure, sent.given, producer.closed) == (away, 3, [0])


def test_an_interruption_leaves_what_was_read_a_few_seconds() -> None:
    def interrupted() -> Iterator[GivenMessage]:
        yield from lines(1)
        raise KeyboardInterrupt

    producer = Acknowledging(good=0)
    sent = sent_by(producer, interrupted(), Progress("x", stream=io.StringIO()))
    assert (sent.interrupted, sent.given, sent.acknowledged) == (True, 1, 0)
    assert producer.closed == [INTERRUPTED_TIMEOUT_MS]


def test_an_interruption_of_the_wait_for_the_last_ones_is_one_too() -> None:
    producer = Acknowledging(good=1, interrupted=True)
    sent = sent_by(producer, lines(2), Progress("x", stream=io.StringIO()))
    assert (sent.interrupted, sent.given, sent.acknowledged) == (True, 2, 1)
    assert producer.closed == [INTERRUPTED_TIMEOUT_MS]


TOO_LARGE = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "much")


def test_refused_message_is_reported_by_line_and_others_are_sent() -> None:
    producer = Acknowledging(good=2, then=TOO_LARGE, bad=1)
    sent = sent_by(producer, lines(10), Progress("x", stream=io.StringIO()))
    assert (sent.given, sent.acknowledged, sent.failure, producer.closed) == (10, 9, TOO_LARGE, [None])
    assert str(sent.error()) == (
        "MESSAGE_TOO_LARGE: 1 of 10 messages not acknowledged; first error, at line 3: much"
    )


def test_unsendable_message_is_reported_by_line_and_others_sent() -> None:
    producer = Acknowledging(good=2, refused=TOO_LARGE, bad=3)
    sent = sent_by(producer, lines(10), Progress("x", stream=io.StringIO()))
    assert (sent.given, sent.acknowledged, sent.failure, producer.closed) == (10, 7, TOO_LARGE, [None])
    assert str(sent.error()) == (
        "MESSAGE_TOO_LARGE: 3 of 10 messages not acknowledged; first error, at line 3: much"
    )


def test_of_an_outage_it_is_told_that_no_more_was_read() -> None:
    away = NetworkError("away")
    sent = sent_by(Acknowledging(good=2, then=away), lines(10), Progress("x", stream=io.StringIO()))
    error = sent.error()
    assert isinstance(error, NetworkError)
    assert str(error) == (
        "1 of 3 messages not acknowledged; nothing was read after line 3; first error: away"
    )


def test_a_line_without_the_separator_does_not_hide_one_that_was_refused() -> None:
    producer = Acknowledging(good=1, refused=TOO_LARGE, bad=1)
    given = messages_in([b"a:1\n", b"b:2\n", b"c\n"], InputForm(key_separator=":"))
    sent = sent_by(producer, given, Progress("x", stream=io.StringIO()))
    assert (sent.failure, sent.acknowledged, producer.closed) == (TOO_LARGE, 1, [None])
    assert str(sent.failed_place) == "line 2"
    assert isinstance(sent.error(), ConfigError)


def test_failed_batch_reports_its_first_line_in_any_order() -> None:
    sent = SendResults()
    for line in (5, 4, 6):
        sent.fail(Place(line, line), TOO_LARGE)
    away = NetworkError("later, and another matter")
    sent.fail(Place(1, 1), away)
    assert (sent.failure, sent.failed_place, sent.stop_cause) == (TOO_LARGE, Place(4, 4), away)


def test_what_no_line_is_to_blame_for_names_none() -> None:
    away = NetworkError("away")
    sent = sent_by(Acknowledging(good=2, then=away), lines(10), Progress("x", stream=io.StringIO()))
    assert "line 3: away" not in str(sent.error())
    gone = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    with pytest.raises(BrokerError, match="gone"):
        sent_by(Acknowledging(good=2, refused=gone), lines(10), Progress("x", stream=io.StringIO()))


def test_full_buffer_error_reports_acknowledged_messages() -> None:
    full = NetworkError("no room")
    sent = sent_by(Acknowledging(good=2, refused=full), lines(10), Progress("x", stream=io.StringIO()))
    assert (sent.given, sent.acknowledged, sent.failure) == (3, 2, full)
    assert str(sent.error()).endswith("first error: no room")


def test_a_line_loses_its_newline_and_nothing_else() -> None:
    lines = [b" a \r\n", b"\n", b"\xff\x00\n", b"last"]
    assert list(pairs(lines, None)) == [(None, b" a \r"), (None, b""), (None, b"\xff\x00"), (None, b"last")]


def test_what_comes_before_the_first_separator_is_the_key() -> None:
    assert list(pairs([b"k:v:w\n", b":v\n", b"k:\n"], ":")) == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]


def test_what_is_not_utf8_on_the_command_line_is_sent_as_it_is() -> None:
    assert parse_header("a=\udcff") == ("a", b"\xff")
    (message,) = messages_in([b"a\xffb\n"], InputForm(key_separator="\udcff"))
    assert (message.key, message.value) == (b"a", b"b")
    with pytest.raises(ConfigError, match="UTF-8"):
        parse_header("\udcff=a")


def test_a_separator_may_be_any_text() -> None:
    assert list(pairs(["k→v\n".encode()], "→")) == [(b"k", b"v")]


def test_line_without_separator_is_reported_after_valid_lines() -> None:
    given = pairs([b"a:1\n", b"b:2\n", b"c\n"], ":")
    assert [next(given), next(given)] == [(b"a", b"1"), (b"b", b"2")]
    with pytest.raises(
        ConfigError, match="not found in line 3, which starts with 'c'; the lines before it were sent, this"
    ):
        next(given)


def test_of_a_line_without_the_separator_the_beginning_is_shown_escaped() -> None:
    line = b"\x1b[31mred\xff\xe2\x80\xae" + b"x" * 100 + b"\n"
    with pytest.raises(ConfigError) as caught:
        next(pairs([line], ":"))
    assert rf"starts with '\x1b[31mred\\xff\u202e{'x' * 28}'; the lines before" in str(caught.value)


def interrupted_lines(count: int) -> Iterator[bytes]:
    yield from (b"%d\n" % number for number in range(count))
    raise KeyboardInterrupt


def test_ctrl_c_when_all_is_acknowledged_prints_the_count(
    serve: Callable[[BrokerHarness], BrokerHarness], cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(BrokerHarness(1))
    monkeypatch.setattr(
        "minikafka.clients.produce.producer.BatchingProducer", lambda *_: Acknowledging(good=3)
    )
    typed = SimpleNamespace(buffer=interrupted_lines(3), isatty=lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    assert cli.run("produce", "t") == 130
    assert cli.err == "3 messages to t\n"
