"""The log of a process that serves: its forms, its ids, and lines that repeat."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.ids import TopicPartition
from minikafka.base.log_lines import LineFormatter, LogFormat, RepeatedLines, fields_of
from minikafka.server.event_log import EventLog
from minikafka.wire.framing import RequestHeader

FORGED = "t\n2026-01-01T00:00:00.000Z INFO broker 0 is the controller now (minikafka.server)"
INTERVAL_MS, SAME, SIMILAR = RepeatedLines.INTERVAL_MS, RepeatedLines.SAME, RepeatedLines.SIMILAR


class LogHarness:
    """A logger whose lines go to memory, on a clock that stands still."""

    def __init__(self, every_line: tuple[str, ...] = ()) -> None:
        self.stream, self.clock = io.StringIO(), ManualClock()
        self.repeated = RepeatedLines(every_line)
        self.handler = EventLog(self.repeated, self.stream, self.clock)
        self.logger = logging.Logger("minikafka.test")  # noqa: LOG001 - not kept by the logging module
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def json(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]

    def end_interval(self) -> None:
        """Do what the thread does at the end of an interval."""
        self.clock.advance(INTERVAL_MS)
        self.handler.write_due()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHarness]:
    monkeypatch.setattr(EventLog, "_await_due", lambda self: True)
    harness = LogHarness()
    yield harness
    harness.handler.close()


def raised(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def record_of(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("n", logging.INFO, "f", 1, message, arguments, None)
    record.__dict__.update(extra)
    return record


def test_a_text_line_has_time_level_message_and_logger(log: LogHarness) -> None:
    record = record_of("flushed %d logs", 3)
    record.created = 1_700_000_000.25
    assert LineFormatter().format(record) == "2023-11-14T22:13:20.250Z INFO flushed 3 logs (n)"


def test_a_name_with_a_line_break_forges_no_record(log: LogHarness) -> None:
    log.logger.info("topic %s was made", FORGED)
    (line,) = log.lines
    assert "INFO topic t\\n2026-01-01" in line


def test_a_traceback_is_readable_and_its_error_forges_no_record(log: LogHarness) -> None:
    log.logger.error("failed", exc_info=raised(f"no such topic: {FORGED}\x1b[2J"))
    assert log.lines[0].endswith("ERROR failed (minikafka.test)")
    assert log.lines[1] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in log.lines[1:])
    assert "\x1b" not in log.stream.getvalue()


def test_record_formatted_by_another_handler_is_escaped(log: LogHarness) -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = log.logger.makeRecord("n", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    logging.Formatter().format(record)
    log.logger.handle(record)
    assert all(line.startswith("  ") for line in log.lines[1:])


def test_json_has_one_object_a_line(log: LogHarness) -> None:
    log.handler.use(LogFormat.JSON)
    log.handler.identify(broker_id=4)
    log.handler.identify(broker_id=4, cluster_id="abc")
    log.logger.warning("deleted topic %s", FORGED)
    (line,) = log.json()
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "minikafka.test",
        "thread": "MainThread",
        "broker_id": 4,
        "cluster_id": "abc",
        "msg": f"deleted topic {FORGED}",
        "topic": FORGED,
    }


def test_a_traceback_is_one_string_of_json(log: LogHarness) -> None:
    log.handler.use(LogFormat.JSON)
    log.logger.error("failed", exc_info=raised("no\x7f such\u202e topic"))
    assert log.stream.getvalue().isascii()
    assert "\x7f" not in log.stream.getvalue()
    (line,) = log.json()
    traceback = str(line["traceback"])
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("no\x7f such\u202e topic")


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (record_of("truncated %s to %d", TopicPartition("t", 3), 7), {"topic": "t", "partition": 3}),
        (
            record_of("denied: principal=%s host=%s", "User:a", "10.0.0.1"),
            {"principal": "User:a", "host": "10.0.0.1"},
        ),
        (record_of("100%% of group %r on broker %d", "g", 2), {"group": "g", "broker": 2}),
        (record_of("failed to read %s-%d: %s", "t-1", 3, "EIO"), {"topic": "t-1", "partition": 3}),
        (record_of("connection from %s closed: %s", "10.0.0.1:5", "x"), {"connection": "10.0.0.1:5"}),
        (
            record_of("failed to answer request %s: %s", RequestHeader(0, 7, 42, "c"), "x"),
            {"api_key": 0, "api_version": 7, "correlation_id": 42, "client_id": "c"},
        ),
        (record_of("msg=%s level=%s", "a", "b"), {}),
        (record_of("%(a)s", {"a": 1}), {}),
        (record_of("no arguments for topic %s"), {}),
    ],
)
def test_ids_of_an_event_are_found(record: logging.LogRecord, found: dict[str, object]) -> None:
    assert fields_of(record) == found


def test_repeated_lines_are_counted_at_the_end_of_an_interval(log: LogHarness) -> None:
    for _ in range(SAME + 214):
        log.logger.warning("cannot reach %s", "a:1")
    assert len(log.lines) == SAME
    log.end_interval()
    (line,) = log.lines[SAME:]
    assert line.endswith("WARNING cannot reach a:1 (repeated 214 times in 30 s) (minikafka.test)")


def test_a_line_that_goes_on_to_repeat_is_one_line_an_interval(log: LogHarness) -> None:
    for _ in range(3):
        for _ in range(SAME + 10):
            log.logger.warning("cannot reach %s", "a:1")
        log.end_interval()
    counts = [line.partition("repeated ")[2].partition(" ")[0] for line in log.lines[SAME:]]
    assert counts == ["10", "13", "13"]
    log.end_interval()
    log.clock.advance(INTERVAL_MS)
    log.logger.warning("cannot reach %s", "a:1")
    assert log.lines[-1].endswith("cannot reach a:1 (minikafka.test)")


def test_of_many_similar_lines_the_first_and_the_last_are_written(log: LogHarness) -> None:
    log.handler.use(LogFormat.JSON)
    for number in range(SIMILAR + 50):
        log.logger.warning("cannot reach broker %d", number)
    log.end_interval()
    assert [line["broker"] for line in log.json()] == [*range(SIMILAR), SIMILAR + 49]
    assert log.json()[-1]["repeated"] == 50
    assert str(log.json()[-1]["msg"]).endswith("(the last of 50 lines like it in 30 s)")


def test_same_message_of_two_places_is_counted_apart(log: LogHarness) -> None:
    for _ in range(SAME):
        log.logger.warning("failed")
    for _ in range(SAME):
        log.logger.warning("failed")
    assert len(log.lines) == 2 * SAME


def test_lines_of_a_logger_that_matters_are_all_written() -> None:
    log = LogHarness(("minikafka.test",))
    for _ in range(SAME + 10):
        log.logger.info("denied: principal=%s", "User:a")
    assert len(log.lines) == SAME + 10
    log.handler.close()


def test_a_held_line_keeps_its_traceback_but_no_frame(log: LogHarness) -> None:
    for number in range(SAME + 2):
        log.logger.error("failed", exc_info=raised(f"error {number}"))
    (closing,) = log.repeated.due(log.clock.monotonic_ms(), final=True)
    assert closing.exc_info is None
    assert "error 4" in LineFormatter().format(closing)


def test_the_end_of_the_process_writes_what_is_held(log: LogHarness) -> None:
    for _ in range(SAME + 1):
        log.logger.warning("failed")
    log.handler.close()
    assert log.lines[-1].endswith("failed (repeated 1 time in 1 s) (minikafka.test)")


def test_the_thread_writes_what_is_due_and_ends() -> None:
    log = LogHarness()
    for _ in range(SAME + 1):
        log.logger.warning("failed")
        log.clock.advance(INTERVAL_MS if log.repeated.next_due_ms() else 0)
    log.handler._write_when_due()
    assert log.repeated.next_due_ms() is None
    log.handler.close()
    assert sum("failed" in line for line in log.lines) == SAME + 1


def test_without_a_thread_to_be_had_lines_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log, start = LogHarness(), threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    for number in range(SAME + 3):
        if number == SAME + 2:
            monkeypatch.setattr(threading.Thread, "start", start)
        log.logger.warning("failed")
    assert [line.count("repeated 1 time") for line in log.lines] == [0] * SAME + [1, 1]
    log.handler.close()
    assert len(log.lines) == SAME + 3


def test_a_line_after_the_end_is_not_held() -> None:
    log = LogHarness()
    log.handler.close()
    for _ in range(SAME + 1):
        log.logger.warning("failed")
    assert len(log.lines) == SAME + 1


def test_places_are_forgotten_or_written_beyond_a_limit(
    log: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RepeatedLines, "SITES_MAX", 2)
    repeated = RepeatedLines()

    def admit(place: int, now_ms: int) -> bool:
        record = record_of("failed", lineno=place)
        return repeated.admit(record, now_ms)

    assert admit(0, 0)
    assert admit(1, 0)
    assert all(admit(2, 0) for _ in range(SAME + 1))
    assert admit(20, INTERVAL_MS)
    assert [admit(20, INTERVAL_MS) for _ in range(SAME)] == [True] * (SAME - 1) + [False]


def test_arguments_that_do_not_fit_harm_only_their_line(
    log: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.logger.info("%d logs", "many")
    log.logger.info("next")
    assert len(log.lines) == 1


def test_a_failure_is_one_line_in_either_form(log: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    log.handler.write_failure("log.dirs: a\nb")
    assert log.lines == ["minikafka: log.dirs: a\\nb"]
    log.handler.use(LogFormat.JSON)
    log.handler.write_failure("log.dirs: a\nb")
    assert [record.getMessage() for record in caplog.records] == ["log.dirs: a\nb"]


@pytest.mark.parametrize(
    ("text", "form"), [("json", LogFormat.JSON), (" JSON ", LogFormat.JSON), ("xml", LogFormat.TEXT)]
)
def test_the_form_is_known_before_the_properties_are_checked(text: str, form: LogFormat) -> None:
    assert LogFormat.among({"log.format": text}) is form
