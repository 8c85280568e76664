"""Stopping by Ctrl-C and SIGTERM, for commands that run until they are stopped."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


class StopRequested(BaseException):
    """Raised in the main thread by a signal. Not an Exception, so that no handler treats it as a failure."""


@dataclass(slots=True)
class Stop:
    """The request to stop a command, if there was one."""

    number: int | None = None
    """The number of the signal; None before one."""

    @property
    def wanted(self) -> bool:
        """True after a signal."""
        return self.number is not None


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Leave the block without an error at the first SIGINT or SIGTERM.

    Later signals interrupt neither the cleanup nor the end of the process, which must be near: the handler
    ignores them. (With SIG_IGN, Python would report a signal that arrived together with the first one.)
    """
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.wanted:
            stop.number = number
            raise StopRequested

    before = {wanted: signal.signal(wanted, on_signal) for wanted in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(StopRequested):
            yield stop
    finally:
        if not stop.wanted:
            for wanted, handler in before.items():
                signal.signal(wanted, handler)
