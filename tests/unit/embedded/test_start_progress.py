"""The progress messages of a start, and its time-out."""

from __future__ import annotations

from minikafka.base.clock import ManualClock
from minikafka.embedded.process import StartProgress


class Start:
    """A start whose clock and state the test sets."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ""
        self.messages: list[str] = []
        self.progress = StartProgress(
            lambda: self.state, self.messages.append, 100.0, clock_s=lambda: self.clock.monotonic_ms() / 1000
        )

    def poll_for(self, seconds: int) -> None:
        self.clock.advance(seconds * 1000)
        self.progress.poll()


def test_start_without_progress_is_reported_as_still_running() -> None:
    start = Start()
    for _ in range(8):
        start.poll_for(3)
    line = "starting ZooKeeper and the broker: still running after {} s"
    assert start.messages == [line.format(9), line.format(18)]


def test_progress_is_reported_once_and_then_as_still_running() -> None:
    start = Start()
    start.state = "compiling: 0 of 25"
    start.poll_for(6)
    start.poll_for(6)
    start.poll_for(6)
    assert start.messages == ["compiling: 0 of 25", "compiling: 0 of 25: still running after 18 s"]


def test_start_without_new_progress_times_out() -> None:
    start = Start()
    start.poll_for(90)
    start.state = "opening logs"
    start.poll_for(9)
    start.poll_for(99)
    assert not start.progress.is_timed_out
    start.poll_for(1)
    assert start.progress.is_timed_out
