"""News in ZooKeeper, as 0.10.1's ZkNodeChangeNotificationListener follows them: persistent sequential znodes
in one directory. Every broker acts once on each, and removes those that it saw more than 15 minutes ago. One
that was away for longer has lost its session: what it knows is read anew then.

(0.10.1 removes those that were made so long ago by its own wall clock. One broker whose clock is wrong would
take the news away before others have read it.)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    CoordinationError,
    CoordinationLost,
    InconsistentClusterId,
    NoNode,
    SessionExpired,
)
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""How long a notification stays: 0.10.1's ``changeExpirationMs``."""

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
        self._seen_ms: dict[str, int] = {}
        """When the notifications that are there were acted on (monotonic)."""

    def follow(self, act: Callable[[bytes, str], None]) -> None:
        """For each new notification, in their order, call ``act`` with its data and path; then remove old
        ones.

        A job: after a lost connection it goes on where it was. What else fails for one does not stop others.
        """
        names = self._names()
        self._seen_ms = {name: self._seen_ms[name] for name in names if name in self._seen_ms}
        for name in names:
            if name not in self._seen_ms:
                self._act_on(name, act)
        now_ms = self._clock.monotonic_ms()
        spare = len(self._seen_ms) - KEPT_MAX
        for place, (name, seen_ms) in enumerate(sorted(self._seen_ms.items())):
            # What is not Kafka's stays.
            limit_ms = EXPIRATION_MS if place >= spare else CROWDED_MS
            if name.startswith(self._prefix) and now_ms - seen_ms > limit_ms:
                with contextlib.suppress(NoNode):  # another broker may have been first
                    self._store.delete(f"{self._directory}/{name}", recursive=True)

    def _names(self) -> list[str]:
        try:
            return self._store.children(self._directory)
        except NoNode:
            return []

    def _act_on(self, name: str, act: Callable[[bytes, str], None]) -> None:
        path = f"{self._directory}/{name}"
        try:
            data, _ = self._store.read(path)
            act(data, path)
        except (CoordinationLost, SessionExpired, InconsistentClusterId):
            raise
        except NoNode:
            return
        except CoordinationError as error:
            _log.warning("a notification of %s is passed over: %s", self._what, error)
        self._seen_ms[name] = self._clock.monotonic_ms()
