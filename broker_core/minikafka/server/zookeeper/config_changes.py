"""Config change notifications: ``/config/changes``, followed like 0.10.1's DynamicConfigManager.

A tool that changes configs writes them to ``/config/TYPE/NAME``, and then creates a persistent sequential
znode that names the entity (``paths.ConfigChange``). A broker that was disconnected for so long that it
missed notifications has lost its session, and reads the configs of its topics when it leads them again.
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
    """The config change notifications, each of which is handled once."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._notifications = Notifications(
            store, clock, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, "changed configs"
        )

    def follow(self, changed: Mapping[str, Callable[[str], None]]) -> None:
        """Handle new notifications in order, then remove old ones. A job.

        ``changed`` has a callback for each entity type, which is called with the name of the entity.
        """

        def act(data: bytes, path: str) -> None:
            change = ConfigChange.from_json(data, path)
            callback = changed.get(change.entity_type)
            if callback is not None:
                callback(change.entity_name)
            else:
                entity = f"{change.entity_type}/{change.entity_name}"
                _log.info("ignored changed configs of %s: this version does not support them", entity)

        self._notifications.follow(act)
