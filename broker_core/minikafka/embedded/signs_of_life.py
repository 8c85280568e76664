"""What a daemon that starts says that it does, passed on to whoever waits for it.

A start is waited for as long as it gets on. Where nothing new comes for ``QUIET_S``, as while one large
kernel is compiled on a busy machine, it is said that the start goes on, so that nobody takes the silence for
a hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 8.0
"""The longest time without a word."""
STARTING = "starting ZooKeeper and the broker"
"""What is being done where the daemon says nothing."""


class SignsOfLife:
    """Of one start. state: how to ask for what is being done; "" for nothing. patience_s: how long a start is
    waited for that does not get on. known: what was being done before, which is no news.
    """

    def __init__(
        self,
        state: Callable[[], str],
        on_progress: Callable[[str], None],
        patience_s: float,
        *,
        known: str = "",
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._on_progress = on_progress
        self._patience_s = patience_s
        self._clock_s = clock_s
        self._began_s = self._told_s = self._new_s = clock_s()
        self.last = known

    @property
    def given_up(self) -> bool:
        """Whether nothing new came for too long."""
        return self._clock_s() - self._new_s >= self._patience_s

    def look(self) -> None:
        """Pass on what is new, or that the start goes on."""
        state, now_s = self._state(), self._clock_s()
        if state not in {"", self.last}:
            self.last, self._new_s, self._told_s = state, now_s, now_s
            self._on_progress(state)
        elif now_s - self._told_s >= QUIET_S:
            self._told_s = now_s
            self._on_progress(f"{self.last or STARTING}: goes on, {now_s - self._began_s:.0f} s so far")
