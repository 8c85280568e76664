"""The worker of the control path."""

import threading

import pytest

from minikafka.base.errors import CoordinationLost
from minikafka.server.workers.worker import InlineWorker, ThreadWorker
from tests.support.raising import raising


def test_jobs_run_in_order_also_those_that_jobs_submit() -> None:
    worker, seen = InlineWorker(), []
    worker.submit(lambda: (seen.append(1), worker.submit(lambda: seen.append(3))))
    worker.submit(lambda: seen.append(2))
    worker.run_until_idle()
    assert seen == [1, 2, 3]


def test_a_job_that_meets_a_lost_connection_is_run_again_before_the_others() -> None:
    worker, seen, outcomes = InlineWorker(), [], [CoordinationLost("gone"), None]

    def write() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        seen.append("write")

    worker.submit(write)
    worker.submit(lambda: seen.append("later"))
    worker.run_until_idle()
    assert seen == []
    worker.run_until_idle()
    assert seen == ["write", "later"]


def test_a_job_that_fails_is_logged_and_does_not_stop_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    worker, seen = InlineWorker(), []
    worker.submit(raising(ValueError("a bug")))
    worker.submit(lambda: seen.append("next"))
    worker.run_until_idle()
    assert seen == ["next"]
    assert "a bug" in caplog.text


def test_the_thread_goes_on_when_the_session_is_back() -> None:
    worker, tried, done = ThreadWorker("test"), threading.Event(), threading.Event()

    def write() -> None:
        if not tried.is_set():
            tried.set()
            raise CoordinationLost("gone")
        done.set()

    worker.submit(write)
    assert tried.wait(10)
    worker.resume()
    assert done.wait(10)
    worker.stop()
