"""Change notifications in ZooKeeper, followed like 0.10.1's ZkNodeChangeNotificationListener.

They are persistent sequential znodes under one parent. Every broker handles each once, and removes those that
it read more than 15 minutes ago. A broker that was disconnected for longer has lost its session and reads all
values again.

(0.10.1 removes those that are so old by its own wall clock. A broker whose clock is wrong would remove
notifications before others have read them.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationError, CoordinationLost, InconsistentClusterId, SessionExpired
from minikafka.registry import paths
from minikafka.registry.entity_configs import CONFIG_CHANGE, ConfigChange
from minikafka.registry.store import Store
from minikafka.registry.znodes import Kind, Znodes, children, remove

_log = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""The age at which a notification is removed: 0.10.1's ``changeExpirationMs``."""

KEPT_MAX = 1_000
CROWDED_MS = 60_000
"""The age at which the oldest of more than ``KEPT_MAX`` notifications are removed: each read lists all of
them, and clients can change configs in a loop. Brokers follow within seconds; a broker that was disconnected
for longer has lost its session, and reads all configs again.
"""


Value = TypeVar("Value")


class Notifications(Generic[Value]):
    """The notifications under one znode, each of which is handled once. Invalid ones are passed over."""

    def __init__(
        self, store: Store, clock: Clock, directory: str, prefix: str, kind: Kind[Value], what: str
    ) -> None:
        """``what`` names the subject of the notifications in the log."""
        self._store = store
        self._znodes = Znodes(store)
        self._kind = kind
        self._clock = clock
        self._directory = directory
        self._prefix = prefix
        self._what = what
        self._seen_ms: dict[str, int] = {}
        """The times (monotonic) at which the existing notifications were handled."""

    def follow(self, act: Callable[[Value], None]) -> None:
        """Call ``act`` with each new notification, in order; then remove old ones.

        A job: after a lost connection it continues where it stopped. Other errors of one notification do not
        prevent the handling of the others.
        """
        names = children(self._store, self._directory)
        for name in self._seen_ms.keys() - set(names):
            del self._seen_ms[name]
            self._znodes.forget(f"{self._directory}/{name}")
        for name in names:
            if name not in self._seen_ms:
                self._act_on(name, act)
        now_ms = self._clock.monotonic_ms()
        spare = len(self._seen_ms) - KEPT_MAX
        for place, (name, seen_ms) in enumerate(sorted(self._seen_ms.items())):
            # Znodes that are not Kafka's are kept.
            limit_ms = EXPIRATION_MS if place >= spare else CROWDED_MS
            if name.startswith(self._prefix) and now_ms - seen_ms > limit_ms:
                remove(self._store, f"{self._directory}/{name}")  # if no other broker has removed it

    def _act_on(self, name: str, act: Callable[[Value], None]) -> None:
        try:
            notification = self._znodes.read(f"{self._directory}/{name}", self._kind)
            if notification is not None:
                act(notification)
        except (CoordinationLost, SessionExpired, InconsistentClusterId):
            raise
        except CoordinationError as error:
            _log.warning("ignored a notification of %s: %s", self._what, error)
        self._seen_ms[name] = self._clock.monotonic_ms()


def config_changes(store: Store, clock: Clock) -> Notifications[ConfigChange]:
    """Return the config change notifications: ``/config/changes``, as of 0.10.1's DynamicConfigManager.

    A tool that changes configs writes them to ``/config/TYPE/NAME``, and then creates a persistent sequential
    znode that names the entity (``ConfigChange``). A broker that was disconnected for so long that it
    missed notifications has lost its session, and reads the configs of its topics when it leads them again.
    """
    return Notifications(
        store, clock, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, CONFIG_CHANGE, "changed configs"
    )
