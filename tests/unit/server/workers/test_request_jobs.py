"""Clients' requests to ZooKeeper between the other jobs of the worker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import CoordinationLost
from minikafka.server.workers.request_jobs import PART_MS, RequestJob, RequestJobs
from minikafka.server.workers.worker import InlineWorker
from tests.support.raising import raising


class RequestJobsHarness:
    """Jobs each of whose steps takes a whole part."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.worker = InlineWorker()
        self.jobs = RequestJobs(self.worker, self.clock)
        self.done: list[str] = []
        self.lost_before: set[str] = set()

    def job(self, name: str, steps: int, step_ms: int = PART_MS) -> RequestJob:
        left = [f"{name}{number}" for number in range(steps)]

        def go_on(is_over: Callable[[], bool]) -> bool:
            while left:
                if left[0] in self.lost_before:
                    self.lost_before.remove(left[0])
                    raise CoordinationLost("the connection was lost")
                self.done.append(left.pop(0))
                self.clock.advance(step_ms)
                if is_over():
                    break
            return not left

        return go_on


@pytest.fixture
def harness() -> RequestJobsHarness:
    return RequestJobsHarness()


def test_requests_take_turns(harness: RequestJobsHarness) -> None:
    harness.jobs.submit(harness.job("a", 3))
    harness.jobs.submit(harness.job("b", 2))
    harness.worker.run_until_idle()
    assert harness.done == ["a0", "b0", "a1", "b1", "a2"]
    assert not len(harness.jobs)


def test_another_job_of_the_worker_waits_for_one_part(harness: RequestJobsHarness) -> None:
    for name in "abc":
        harness.jobs.submit(harness.job(name, 100))
    harness.worker.submit(lambda: harness.done.append("election"))
    harness.worker.run_until_idle()
    assert harness.done.index("election") == 1


def test_short_requests_are_done_in_one_part(harness: RequestJobsHarness) -> None:
    harness.jobs.submit(harness.job("a", 3, step_ms=1))
    harness.jobs.submit(harness.job("b", 1))
    harness.worker.run_until_idle()
    assert harness.done == ["a0", "a1", "a2", "b0"]


def test_a_lost_connection_repeats_no_finished_step(harness: RequestJobsHarness) -> None:
    harness.lost_before = {"a1"}
    harness.jobs.submit(harness.job("a", 3, step_ms=1))
    harness.worker.run_until_idle()
    assert harness.done == ["a0"]
    harness.worker.run_until_idle()
    assert harness.done == ["a0", "a1", "a2"]


def test_a_request_that_fails_unexpectedly_leaves_the_others_their_turn(
    harness: RequestJobsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.jobs.submit(raising(ValueError("unexpected")))
    harness.jobs.submit(harness.job("a", 1))
    harness.worker.run_until_idle()
    assert harness.done == ["a0"]
    assert "ValueError: unexpected" in caplog.text


def test_what_comes_after_the_last_request_is_done_too(harness: RequestJobsHarness) -> None:
    harness.jobs.submit(harness.job("a", 1))
    harness.worker.run_until_idle()
    harness.jobs.submit(harness.job("b", 1))
    harness.worker.run_until_idle()
    assert harness.done == ["a0", "b0"]
