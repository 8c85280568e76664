"""What is told while a cluster starts, and for how long it is waited for."""

from __future__ import annotations

from minikafka.base.clock import ManualClock
from minikafka.embedded.process import StartProgress


class Start:
    """A start whose clock and state the test turns."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ""
        self.told: list[str] = []
        self.progress = StartProgress(
            lambda: self.state, self.told.append, 100.0, clock_s=lambda: self.clock.monotonic_ms() / 1000
        )

    def look_after(self, seconds: int) -> None:
        self.clock.advance(seconds * 1000)
        self.progress.poll()


def test_a_start_without_news_is_said_to_go_on_from_time_to_time() -> None:
    start = Start()
    for _ in range(8):
        start.look_after(3)
    line = "starting ZooKeeper and the broker: still running after {} s"
    assert start.told == [line.format(9), line.format(18)]


def test_news_are_told_once_and_then_that_they_hold() -> None:
    start = Start()
    start.state = "compiling: 0 of 25"
    start.look_after(6)
    start.look_after(6)
    start.look_after(6)
    assert start.told == ["compiling: 0 of 25", "compiling: 0 of 25: still running after 18 s"]


def test_a_start_is_is_timed_out_where_nothing_new_comes_though_that_is_told() -> None:
    start = Start()
    start.look_after(90)
    start.state = "opening logs"
    start.look_after(9)
    start.look_after(99)
    assert not start.progress.is_timed_out
    start.look_after(1)
    assert start.progress.is_timed_out
