"""Ctrl-C and SIGTERM as a wish to stop, for commands that run until somebody stops them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


class StopRequested(BaseException):
    """Raised in the main thread where it stands. No Exception, so that nothing takes it for a failure."""


@dataclass(slots=True)
class Stop:
    """Whether somebody wanted the command to stop."""

    number: int | None = None
    """The signal that said so."""

    @property
    def wanted(self) -> bool:
        """Whether there was one."""
        return self.number is not None


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Leave the block without an error at the first SIGINT or SIGTERM.

    Later ones disturb neither the cleaning up nor the end of the process, which must be near: they are taken
    and passed over. (With SIG_IGN, Python would complain of one that came at the same time as the first.)
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
