"""News in ZooKeeper, as 0.10.1's ZkNodeChangeNotificationListener follows them: persistent sequential znodes
in one directory. Every broker acts once on each, and removes those that are older than 15 minutes. One that
was away for longer has lost its session: what it knows is read anew then.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationError, CoordinationLost, NoNode, SessionExpired
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""How old a notification becomes: 0.10.1's ``changeExpirationMs``."""

KEPT_MAX = 1_000
CROWDED_MS = 60_000
"""Of more than ``KEPT_MAX`` the oldest ones go at this age: each look lists all of them, and clients can
change settings in a loop. Brokers follow within seconds; one that was away for longer has lost its session,
and reads all settings anew.
"""


class Notifications:
    """The notifications of one directory, each of which is acted on once."""

    def __init__(self, store: Store, clock: Clock, directory: str, prefix: str, what: str) -> None:
        """``what`` they tell of, for the log."""
        self._store = store
        self._clock = clock
        self._directory = directory
        self._prefix = prefix
        self._what = what
        self._made_ms: dict[str, int] = {}
        """When the notifications were made that are there and have been acted on."""

    def follow(self, act: Callable[[bytes, str], None]) -> None:
        """For each new notification, in their order, call ``act`` with its data and path; then remove old
        ones.

        A job: after a lost connection it goes on where it was. What else fails for one does not stop others.
        """
        names = self._names()
        self._made_ms = {name: self._made_ms[name] for name in names if name in self._made_ms}
        for name in names:
            if name not in self._made_ms:
                self._act_on(name, act)
        now_ms = self._clock.now_ms()
        spare = len(self._made_ms) - KEPT_MAX
        for place, (name, made_ms) in enumerate(sorted(self._made_ms.items())):
            # What is not Kafka's stays.
            limit_ms = EXPIRATION_MS if place >= spare else CROWDED_MS
            if name.startswith(self._prefix) and now_ms - made_ms > limit_ms:
                with contextlib.suppress(NoNode):  # another broker may have been first
                    self._store.delete(f"{self._directory}/{name}", recursive=True)

    def _names(self) -> list[str]:
        try:
            return self._store.children(self._directory)
        except NoNode:
            return []

    def _act_on(self, name: str, act: Callable[[bytes, str], None]) -> None:
        path = f"{self._directory}/{name}"
        made_ms = self._clock.now_ms()
        try:
            data, stat = self._store.read(path)
            made_ms = stat.created_ms
            act(data, path)
        except (CoordinationLost, SessionExpired):
            raise
        except NoNode:
            return
        except CoordinationError as error:
            _log.warning("a notification of %s is passed over: %s", self._what, error)
        self._made_ms[name] = made_ms
