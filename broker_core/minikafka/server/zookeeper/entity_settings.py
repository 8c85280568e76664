"""Own settings of topics, clients and brokers, as ZooKeeper has them: ``/config/TYPE/NAME``.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping

from minikafka.base.errors import CoordinationError
from minikafka.base.secrets import redact
from minikafka.registry import paths
from minikafka.registry.entity_configs import write_config
from minikafka.registry.paths import EntityConfig
from minikafka.registry.store import Stat, Store
from minikafka.server.zookeeper.znodes import Znodes

_log = logging.getLogger(__name__)


class EntitySettings:
    """Reads and writes them, and remembers those of topics as they were last read."""

    def __init__(self, store: Store, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._of_topics: dict[str, Mapping[str, str]] = {}

    def of_topic(self, topic: str) -> Mapping[str, str]:
        """The topic's own settings; empty when there is no such znode (text 003: it may be left out).

        Where it holds nonsense the last ones stay, as the defaults may let retention delete what should be
        kept. What is other than the last time is logged: who reads settings gives them to the logs.
        """
        return self.of_topics((topic,))[topic]

    def of_topics(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """``of_topic`` of many, read at once."""
        by_path = {paths.topic_config_path(topic): topic for topic in topics}
        found = self._store.read_all(by_path)
        return {topic: self._settings_in(topic, path, found.get(path)) for path, topic in by_path.items()}

    def of_all_topics(self) -> dict[str, Mapping[str, str]]:
        """The own settings of every topic."""
        return self.of_topics(self._store.children(paths.TOPIC_CONFIGS))

    def peek(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """The own settings of many topics for somebody who gives them to no log: none for those that have
        none, or nonsense.
        """
        by_path = {paths.topic_config_path(topic): topic for topic in topics}
        settings: dict[str, Mapping[str, str]] = {topic: {} for topic in by_path.values()}
        for path, (data, _) in self._store.read_all(by_path).items():
            with contextlib.suppress(CoordinationError):  # who gives them to logs says what is wrong
                settings[by_path[path]] = EntityConfig.from_json(data, path).config
        return settings

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        """The settings of a client or broker, by its znode's name; empty when there are none, or nonsense."""
        config = self._znodes.read(paths.config_path(kind, name), EntityConfig.from_json)
        return {} if config is None else config.config

    def of_clients(self) -> dict[str, Mapping[str, str]]:
        """The settings of every client."""
        names = self._store.children(paths.CLIENT_CONFIGS)
        by_path = {paths.config_path(paths.CLIENTS, name): name for name in names}
        found = self._store.read_all(by_path)
        configs = {
            name: self._znodes.parse(path, found.get(path), EntityConfig.from_json)
            for path, name in by_path.items()
        }
        return {name: {} if held is None else held[0].config for name, held in configs.items()}

    def change(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        """Write all own settings of a topic or broker, then the news for all, as 0.10.1's tools do it."""
        write_config(self._store, kind, name, config)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._of_topics.pop(topic, None)

    def _settings_in(self, topic: str, path: str, found: tuple[bytes, Stat] | None) -> Mapping[str, str]:
        last = self._of_topics.get(topic)
        config = self._znodes.parse(
            path, found, EntityConfig.from_json, "; the topic keeps the settings that it has"
        )
        if self._znodes.is_nonsense(path):
            return last or {}
        settings = {} if config is None else config[0].config
        if last is not None:
            tell_changes(topic, last, settings)
        self._of_topics[topic] = settings
        return settings


def tell_changes(topic: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Log in one line what is other in a topic's settings."""
    changed = {name for name, text in new.items() if old.get(name) != text}
    names = sorted(changed | old.keys() - new.keys())
    if names:
        words = [
            f"{name} {redact(name, old.get(name, 'default'))} -> {redact(name, new.get(name, 'default'))}"
            for name in names
        ]
        _log.info("topic %s has other settings: %s", topic, ", ".join(words))
