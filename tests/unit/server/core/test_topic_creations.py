"""The queue of topics that wait to be made."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import BrokerError, CoordinationError, CoordinationLost, ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.controller.assignment import Assignment
from minikafka.server.core.topic_creations import (
    AT_ONCE,
    AUTOMATIC_MAX,
    PARTITIONS_MAX,
    PENDING_MAX,
    CreationRequest,
    TopicCreations,
)
from minikafka.server.workers.worker import InlineWorker
from tests.support.raising import raising

Topics = Mapping[str, tuple[Assignment, Mapping[str, str]]]


class Harness:
    """The queue, and what it had made, in its order, with the worker's other jobs."""

    def __init__(self) -> None:
        self.worker = InlineWorker()
        self.clock = ManualClock()
        self.creations = TopicCreations(self.worker, self.clock, self.make)
        self.done: list[str] = []
        self.found: frozenset[str] = frozenset()
        self.failures: dict[str, ErrorCode] = {}
        self.error: Exception | None = None
        self.bad: dict[str, Exception] = {}
        """Topics that cannot be made, and what is raised for them."""

    def make(self, topics: Topics) -> frozenset[str]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        for name in topics:
            if name in self.bad:
                raise self.bad[name]
        self.done += topics
        return self.found & topics.keys()

    def failed(self, name: str, error: BrokerError) -> None:
        self.failures[name] = error.code

    def need(self, *names: str) -> None:
        for name in names:
            self.creations.add_automatic(wish(name))

    def ask(self, *names: str, deadline_ms: int | None = None) -> None:
        self.creations.add([wish(name) for name in names], self.failed, deadline_ms)


def wish(name: str) -> CreationRequest:
    return CreationRequest(name, {0: (1,)}, {})


def names(count: int) -> list[str]:
    return [f"t{number:05d}" for number in range(count)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_other_jobs_come_between_a_few_topics_and_the_next(harness: Harness) -> None:
    harness.need(*names(2 * AT_ONCE))
    harness.worker.submit(lambda: harness.done.append("election"))
    harness.worker.run_until_idle()
    assert harness.done == [*names(AT_ONCE), "election", *names(2 * AT_ONCE)[AT_ONCE:]]
    assert not harness.creations.is_pending("t00000")


def test_automatic_creation_is_queued_once(harness: Harness) -> None:
    harness.need("a", "a")
    assert harness.creations.is_pending("a")
    harness.worker.run_until_idle()
    assert harness.done == ["a"]


def test_full_queue_rejects_auto_creation_except_the_offsets_topic(harness: Harness) -> None:
    harness.need(*names(AUTOMATIC_MAX))
    with pytest.raises(BrokerError, match=r"LEADER_NOT_AVAILABLE: .* topic one-more"):
        harness.creations.check_room("one-more")
    harness.creations.check_room(OFFSETS_TOPIC)
    harness.need(OFFSETS_TOPIC)
    harness.worker.run_until_idle()
    assert harness.done[0] == OFFSETS_TOPIC
    harness.creations.check_room("one-more")


def test_request_beyond_the_queue_limit_is_rejected_for_the_rest(harness: Harness) -> None:
    harness.ask(*names(PENDING_MAX + 2))
    harness.worker.run_until_idle()
    assert len(harness.done) == PENDING_MAX
    assert harness.failures == dict.fromkeys(
        names(PENDING_MAX + 2)[PENDING_MAX:], ErrorCode.REQUEST_TIMED_OUT
    )


def test_a_topic_whose_request_has_ended_is_not_made(harness: Harness) -> None:
    harness.ask("late", deadline_ms=harness.clock.monotonic_ms() + 1_000)
    harness.ask("in-time", deadline_ms=harness.clock.monotonic_ms() + 3_000)
    harness.clock.advance(2_000)
    harness.worker.run_until_idle()
    assert harness.done == ["in-time"]
    assert harness.failures == {"late": ErrorCode.REQUEST_TIMED_OUT}


def test_a_topic_that_is_there_fails_its_request_and_no_other(harness: Harness) -> None:
    harness.found = frozenset(("a", "c"))
    harness.ask("a", "b")
    harness.need("c")
    harness.worker.run_until_idle()
    assert harness.failures == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}


def test_existing_topic_is_no_error_after_a_lost_connection(harness: Harness) -> None:
    harness.error = CoordinationLost("lost")
    harness.ask("a")
    assert harness.worker.run_until_idle() == 0
    harness.found = frozenset("a")
    harness.worker.run_until_idle()
    assert (harness.done, harness.failures) == (["a"], {})


def test_what_zookeeper_refuses_is_told_and_the_next_are_made(harness: Harness) -> None:
    harness.error = CoordinationError("no rights")
    harness.ask("a")
    harness.worker.run_until_idle()
    harness.ask("b")
    harness.worker.run_until_idle()
    assert (harness.done, harness.failures) == (["b"], {"a": ErrorCode.UNKNOWN})


def test_an_unexpected_error_fails_its_topics_and_the_next_are_made(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.bad = {"a": ValueError("broken"), "b": ValueError("broken")}
    harness.ask("a")
    harness.need("b")
    harness.worker.run_until_idle()
    assert (harness.failures, len(caplog.records)) == ({"a": ErrorCode.UNKNOWN}, 1)
    assert "failed to create 2 topics (a, b): unexpected error" in caplog.text
    assert not harness.creations.is_pending("b")
    harness.ask("c")
    harness.worker.run_until_idle()
    assert (harness.done, len(harness.creations)) == (["c"], 0)


def test_a_request_that_cannot_be_told_keeps_nobody_from_its_topics(harness: Harness) -> None:
    harness.creations.add([wish("late")], raising(ValueError("gone")), harness.clock.monotonic_ms())
    harness.found = frozenset("a")
    harness.creations.add([wish("a")], raising(ValueError("gone")), None)
    harness.ask("b")
    harness.worker.run_until_idle()
    harness.ask("c")
    harness.worker.run_until_idle()
    assert (harness.done, harness.failures) == (["a", "b", "c"], {})


@pytest.mark.parametrize("error", [CoordinationError("too large"), ValueError("broken")])
def test_a_topic_that_cannot_be_made_fails_alone(
    harness: Harness, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    harness.bad["bad"] = error
    harness.ask("a", "bad", "b")
    harness.need(OFFSETS_TOPIC)
    harness.worker.run_until_idle()
    assert (harness.done, harness.failures) == ([OFFSETS_TOPIC, "a", "b"], {"bad": ErrorCode.UNKNOWN})
    assert len(caplog.records) == 1
    assert "failed to create 1 topic (bad)" in caplog.text


def test_topics_created_by_a_failed_attempt_are_no_errors(harness: Harness) -> None:
    harness.bad["bad"] = CoordinationError("too large")
    harness.found = frozenset("a")
    harness.ask("a", "bad")
    harness.worker.run_until_idle()
    assert harness.failures == {"bad": ErrorCode.UNKNOWN}


def test_connection_lost_between_single_topics_retries_all(harness: Harness) -> None:
    harness.bad = {"bad": CoordinationError("too large"), "b": CoordinationLost("lost")}
    harness.ask("a", "bad", "b")
    assert harness.worker.run_until_idle() == 0
    assert harness.failures == {}
    del harness.bad["b"]
    harness.worker.run_until_idle()
    assert (harness.done, harness.failures) == (["a", "a", "b"], {"bad": ErrorCode.UNKNOWN})


def test_waiting_topics_have_a_limit_of_partitions_together() -> None:
    harness, half = Harness(), dict.fromkeys(range(PARTITIONS_MAX // 2 + 1), (1,))
    wide = [CreationRequest(name, half, {}) for name in ("a", "b")]
    for _ in range(2):  # what was made leaves its room
        harness.creations.add(wide, harness.failed, None)
        harness.ask("small")
        harness.worker.run_until_idle()
        assert harness.failures == {"b": ErrorCode.REQUEST_TIMED_OUT}
        assert harness.done == ["a", "small"]
        harness.failures.clear()
        harness.done.clear()
