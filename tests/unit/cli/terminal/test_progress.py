from __future__ import annotations

import io

import pytest

from minikafka.cli.terminal import progress
from minikafka.cli.terminal.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_what_is_done_within_a_second_shows_no_bar(clock: Clock) -> None:
    with Progress("x", 10, stream=Terminal()) as bar:
        clock.now_s += 0.9
        bar.advance(10)
        assert not bar.visible


def test_what_takes_longer_shows_a_bar_on_a_terminal(clock: Clock) -> None:
    terminal = Terminal()
    with Progress("producing", 10, stream=terminal) as bar:
        clock.now_s += 1.1
        bar.advance(4)
        assert bar.visible
    assert "producing" in terminal.getvalue()


@pytest.mark.parametrize(("stream", "hidden"), [(io.StringIO(), False), (Terminal(), True)])
def test_no_bar_where_no_terminal_is_or_where_it_would_be_in_the_way(
    clock: Clock, stream: io.StringIO, hidden: bool
) -> None:
    with Progress("x", 10, hidden=hidden, stream=stream) as bar:
        clock.now_s += 5
        bar.advance(3)
        assert not bar.visible
    assert stream.getvalue() == ""
    assert bar.done == 3


def test_without_a_terminal_a_line_comes_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress("producing to t", 5_000, lines=True, stream=stream) as progress:
        for _ in range(50):
            clock.now_s += 0.5
            progress.advance(100)
        assert not progress.visible
    assert stream.getvalue() == (
        "minikafka: producing to t: 2,000 of 5,000, 200/s\nminikafka: producing to t: 4,000 of 5,000, 200/s\n"
    )


def test_a_total_that_nobody_knows_is_not_told(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress("producing to t", lines=True, stream=stream) as progress:
        clock.now_s += 10
        progress.advance(30)
    assert stream.getvalue() == "minikafka: producing to t: 30, 3/s\n"


def test_a_terminal_that_shall_show_no_bar_gets_no_lines_either(clock: Clock) -> None:
    terminal = Terminal()
    with Progress("x", hidden=True, lines=True, stream=terminal) as progress:
        clock.now_s += 20
        progress.advance()
    assert terminal.getvalue() == ""


def test_no_color_is_shown_where_the_environment_says_so(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = []
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        terminal = Terminal()
        with Progress("producing", 10, stream=terminal) as bar:
            clock.now_s += 1.1
            bar.advance(5)
        shown.append("\x1b[38" in terminal.getvalue() or "\x1b[3" in terminal.getvalue())
    assert shown == [True, False]
