"""Persistent watches, built on ZooKeeper's own, which fire once.

A broker has a few, and the controller one for each topic. So watches that read at the same time, as after a
lost connection, send all requests before they wait for the answers: one round trip for all. The states are
reported in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from minikafka.base.errors import CoordinationLost, NoNode, SessionExpired

Fired = Callable[[object], None]
"""Called when ZooKeeper's watch fires or is lost with the connection; on any thread."""
Begin = Callable[[Fired], Callable[[], Any]]
"""Send a request that sets ZooKeeper's watch; the returned function waits for the answer. Both may raise."""

_ABSENT = (None, None)


class PersistentWatch:
    """A watch that reports every change. All but ``cancel`` and ``_fired`` runs on the store's thread."""

    def __init__(
        self,
        *,
        begin: Begin,
        read_existence: Begin,
        state_in: Callable[[Any], tuple[object, ...]],
        callback: Callable[..., None],
        fired: Callable[[PersistentWatch], None],
        lost: Callable[[PersistentWatch], None],
        cancelled: Callable[[PersistentWatch], None],
    ) -> None:
        """Create a watch.

        ``begin`` reads the znode and ``read_existence`` its existence: only that watch of ZooKeeper reports
        the creation of a znode. ``callback`` gets the parts of the state that ``state_in`` finds in an
        answer. ``fired`` requests another read of this watch; ``lost`` reports that a read failed.
        """
        self._begin = begin
        self._read_existence = read_existence
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
        """Request the state, with a new one-shot watch; None if the connection or session is lost."""
        if self._cancelled:
            return None
        try:
            return self._begin(self._fired)
        except (CoordinationLost, SessionExpired):
            self._has_lost(self)
            return None

    def report(self, answer: Callable[[], Any]) -> None:
        """Report the state in ``answer`` unless it equals the last reported one."""
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
                # It may have been created meanwhile.
                if self._read_existence(self._fired)() is None:
                    return _ABSENT
                answer = self._begin(self._fired)

    def _fired(self, event: object) -> None:
        self._has_fired(self)


def read_again(watches: Iterable[PersistentWatch]) -> Iterator[Callable[[], None]]:
    """Request the states of all watches; yield the functions that report them, in the same order."""
    requested = [(watch, watch.begin()) for watch in watches]
    return (partial(watch.report, answer) for watch, answer in requested if answer is not None)
