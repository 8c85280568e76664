from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from minikafka.cli.terminal.signals import stop_on_signal

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of this process come back: a command that was stopped leaves its own."""
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_block_without_an_error(number: signal.Signals) -> None:
    reached_the_end = False
    with stop_on_signal() as stop:
        os.kill(os.getpid(), number)
        signal.pause()
        reached_the_end = True
    assert stop.wanted
    assert not reached_the_end


def test_a_second_signal_does_not_disturb_the_cleaning_up() -> None:
    cleaned = False
    with stop_on_signal():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned = True
    assert cleaned


def test_two_signals_at_the_same_time_are_one_wish(capsys: pytest.CaptureFixture[str]) -> None:
    with stop_on_signal() as stop:
        signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
        for number in BOTH:
            signal.pthread_kill(threading.get_ident(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
    assert stop.wanted
    assert capsys.readouterr() == ("", "")


def test_signals_after_the_block_do_not_disturb_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert stop.number == signal.SIGTERM


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert not stop.wanted


def test_other_errors_go_on_their_way() -> None:
    with pytest.raises(ZeroDivisionError), stop_on_signal():
        _ = 1 // 0
