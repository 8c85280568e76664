"""The news that settings have changed: ``/config/changes``, as 0.10.1's DynamicConfigManager follows it.

Whoever changes settings writes them to ``/config/TYPE/NAME``, and then makes a persistent sequential znode
that names the entity (``paths.ConfigChange``). A broker that was away for so long that it missed some has
lost its session, and reads the settings of its topics when it leads them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minikafka.base.clock import Clock
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange
from minikafka.registry.store import Store
from minikafka.server.zookeeper.notifications import Notifications

_log = logging.getLogger(__name__)


class ConfigChanges:
    """The notifications, each of which is acted on once."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._notifications = Notifications(
            store, clock, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, "changed settings"
        )

    def follow(self, changed: Mapping[str, Callable[[str], None]]) -> None:
        """For each new notification, in their order, call what ``changed`` has for its type with the name of
        the entity; then remove old ones. A job.
        """

        def act(data: bytes, path: str) -> None:
            change = ConfigChange.from_json(data, path)
            tell = changed.get(change.entity_type)
            if tell is not None:
                tell(change.entity_name)
            else:
                entity = f"{change.entity_type}/{change.entity_name}"
                _log.info("settings of %s changed: they have no effect here", entity)

        self._notifications.follow(act)
