"""Ctrl-C and SIGTERM as a wish to stop, for commands that run until somebody stops them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


class StopWanted(BaseException):
    """Raised in the main thread where it stands. No Exception, so that nothing takes it for a failure."""


@dataclass(slots=True)
class Stop:
    """Whether somebody wanted the command to stop."""

    wanted: bool = False


@contextlib.contextmanager
def ends_cleanly_when_stopped() -> Iterator[Stop]:
    """Leave the block without an error at the first SIGINT or SIGTERM; later ones disturb no cleaning up."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.wanted = True
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, signal.SIG_IGN)
        raise StopWanted

    before = {wanted: signal.signal(wanted, on_signal) for wanted in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(StopWanted):
            yield stop
    finally:
        for wanted, handler in before.items():
            signal.signal(wanted, handler)
