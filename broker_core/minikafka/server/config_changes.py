"""The news that settings have changed: ``/config/changes``, as 0.10.1's DynamicConfigManager follows it.

Whoever changes settings writes them to ``/config/TYPE/NAME``, and then makes a persistent sequential znode
that names the entity (``paths.ConfigChange``). A broker that was away for so long that it missed some has
lost its session, and reads the settings of its topics when it leads them again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationError
from minikafka.base.secrets import shown
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange, EntityConfig
from minikafka.registry.store import Store
from minikafka.server.notifications import Notifications

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


def read_topic_configs(store: Store, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """The own settings of many topics, read at once; none for those that have none, or nonsense."""
    by_path = {paths.topic_config_path(topic): topic for topic in topics}
    settings: dict[str, Mapping[str, str]] = {topic: {} for topic in by_path.values()}
    for path, (data, _) in store.read_all(by_path).items():
        with contextlib.suppress(CoordinationError):  # who gives them to logs says what is wrong
            settings[by_path[path]] = EntityConfig.from_json(data, path).config
    return settings


def tell_changes(topic: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Log in one line what is other in a topic's settings."""
    changed = {name for name, text in new.items() if old.get(name) != text}
    names = sorted(changed | old.keys() - new.keys())
    if names:
        words = [
            f"{name} {shown(name, old.get(name, 'default'))} -> {shown(name, new.get(name, 'default'))}"
            for name in names
        ]
        _log.info("topic %s has other settings: %s", topic, ", ".join(words))
