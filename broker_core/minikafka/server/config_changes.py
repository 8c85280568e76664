"""The news that settings have changed: ``/config/changes``, as 0.10.1's DynamicConfigManager follows it.

Whoever changes settings writes them to ``/config/TYPE/NAME``, and then makes a persistent sequential znode
that names the entity (``paths.ConfigChange``). Every broker acts once on each, and removes those that are
older than 15 minutes. One that was away for longer has lost its session, and reads the settings of its topics
when it leads them again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationError, CoordinationLost, NoNode, SessionExpired
from minikafka.log.config import without_effect
from minikafka.registry import paths
from minikafka.registry.paths import ConfigChange, EntityConfig
from minikafka.registry.store import Store

_log = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
"""How old a notification becomes: 0.10.1's ``changeExpirationMs``."""


class ConfigChanges:
    """The notifications, each of which is acted on once."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._made_ms: dict[str, int] = {}
        """When the notifications were made that are there and have been acted on."""

    def follow(self, changed: Mapping[str, Callable[[str], None]]) -> None:
        """For each new notification, in their order, call what ``changed`` has for its type with the name of
        the entity; then remove old ones.

        A job: after a lost connection it goes on where it was. What else fails for one does not stop others.
        """
        names = self._names()
        self._made_ms = {name: self._made_ms[name] for name in names if name in self._made_ms}
        for name in names:
            if name not in self._made_ms:
                self._act_on(name, changed)
        now_ms = self._clock.now_ms()
        for name, made_ms in self._made_ms.items():
            # What is not Kafka's stays.
            if name.startswith(paths.CONFIG_CHANGE_PREFIX) and now_ms - made_ms > EXPIRATION_MS:
                with contextlib.suppress(NoNode):  # another broker may have been first
                    self._store.delete(f"{paths.CONFIG_CHANGES}/{name}", recursive=True)

    def _names(self) -> list[str]:
        try:
            return self._store.children(paths.CONFIG_CHANGES)
        except NoNode:
            return []

    def _act_on(self, name: str, changed: Mapping[str, Callable[[str], None]]) -> None:
        path = f"{paths.CONFIG_CHANGES}/{name}"
        made_ms = self._clock.now_ms()
        try:
            data, stat = self._store.read(path)
            made_ms = stat.created_ms
            change = ConfigChange.from_json(data, path)
            act = changed.get(change.entity_type)
            if act is not None:
                act(change.entity_name)
            else:
                entity = f"{change.entity_type}/{change.entity_name}"
                _log.info("settings of %s changed: they have no effect here", entity)
        except (CoordinationLost, SessionExpired):
            raise
        except NoNode:
            return
        except CoordinationError as error:
            _log.warning("a notification of changed settings is passed over: %s", error)
        self._made_ms[name] = made_ms


def read_topic_configs(store: Store, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """The own settings of many topics, read at once; none for those that have none, or nonsense."""
    by_path = {paths.topic_config_path(topic): topic for topic in topics}
    settings: dict[str, Mapping[str, str]] = {topic: {} for topic in by_path.values()}
    for path, (data, _) in store.read_all(by_path).items():
        with contextlib.suppress(CoordinationError):  # who gives them to logs says what is wrong
            settings[by_path[path]] = EntityConfig.from_json(data, path).config
    return settings


def tell_changes(topic: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Log in one line what is other in a topic's settings, and warn of what has no effect."""
    changed = {name: text for name, text in new.items() if old.get(name) != text}
    names = sorted(changed.keys() | old.keys() - new.keys())
    if names:
        words = [f"{name} {old.get(name, 'default')} -> {new.get(name, 'default')}" for name in names]
        _log.info("topic %s has other settings: %s", topic, ", ".join(words))
    idle = without_effect(changed)
    if idle:
        _log.warning("topic %s: this version does not act on %s", topic, ", ".join(idle))
