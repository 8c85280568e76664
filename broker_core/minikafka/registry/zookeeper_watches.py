"""Persistent watches over ZooKeeper's own, which fire once.

A broker has a few, and the controller one for each topic. So those that are to read at the same time, as
after a lost connection, ask one after the other and then take the answers: one round trip for all. What
they find is reported in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from minikafka.base.errors import CoordinationLost, NoNode, SessionExpired

Fired = Callable[[object], None]
"""To be called when ZooKeeper's watch fires, or was lost with the connection; on any thread."""
Begin = Callable[[Fired], Callable[[], Any]]
"""Ask ZooKeeper something and set its watch; the answer comes from what is returned. Both may raise."""

_ABSENT = (None, None)


class PersistentWatch:
    """Everything but ``cancel`` and ``_fired`` runs on the store's thread."""

    def __init__(
        self,
        *,
        begin: Begin,
        look: Begin,
        state_in: Callable[[Any], tuple[object, ...]],
        callback: Callable[..., None],
        fired: Callable[[PersistentWatch], None],
        lost: Callable[[PersistentWatch], None],
        cancelled: Callable[[PersistentWatch], None],
    ) -> None:
        """``begin`` asks for the znode, ``look`` whether there is one: only that watch of ZooKeeper's tells
        of a znode that comes to be. ``callback`` gets the parts of the state that ``state_in`` finds in an
        answer. ``fired``: it is to be read again; ``lost``: that was not possible.
        """
        self._begin = begin
        self._look = look
        self._state_in = state_in
        self._callback = callback
        self._has_fired = fired
        self._has_lost = lost
        self._has_ended = cancelled
        self._last: tuple[object, ...] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Stop the watch."""
        self._cancelled = True
        self._has_ended(self)

    def begin(self) -> Callable[[], Any] | None:
        """Ask for the state, with a new one-shot watch; None where that is not possible."""
        if self._cancelled:
            return None
        try:
            return self._begin(self._fired)
        except (CoordinationLost, SessionExpired):
            self._has_lost(self)
            return None

    def report(self, answer: Callable[[], Any]) -> None:
        """Report the state in ``answer``, unless it is the one that was reported last."""
        if self._cancelled:
            return
        try:
            state = self._state(answer)
        except (CoordinationLost, SessionExpired):
            self._has_lost(self)
            return
        if state != self._last and not self._cancelled:
            self._last = state
            self._callback(*state)

    def _state(self, answer: Callable[[], Any]) -> tuple[object, ...]:
        while True:
            try:
                return self._state_in(answer())
            except NoNode:
                # It may have come meanwhile.
                if self._look(self._fired)() is None:
                    return _ABSENT
                answer = self._begin(self._fired)

    def _fired(self, event: object) -> None:
        self._has_fired(self)


def read_again(watches: Iterable[PersistentWatch]) -> Iterator[Callable[[], None]]:
    """Have all of these ask for the state; what reports it, of one after the other."""
    begun = [(watch, watch.begin()) for watch in watches]
    return (partial(watch.report, answer) for watch, answer in begun if answer is not None)
