"""The configs of topics, clients, users, brokers and addresses in ZooKeeper: ``/config/TYPE/NAME``.

For the jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from minikafka.base.secrets import redact
from minikafka.registry import paths
from minikafka.registry.entity_configs import ENTITY_CONFIG, write_config
from minikafka.registry.store import Store
from minikafka.registry.users import ClientEntity, client_entities
from minikafka.registry.znodes import Znodes, children

_log = logging.getLogger(__name__)


class EntitySettings:
    """Reads and writes entity configs, and remembers those of topics as they were last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._znodes = Znodes(store)
        self._of_topics: dict[str, Mapping[str, str]] = {}

    def of_topics(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return the own configs of topics, read at once; empty if there is no znode (text 003: it may be
        left out).

        If the znode is invalid the last configs are returned, since with the defaults retention may delete
        records that should be kept. Changes since the last read are logged, as the caller applies them to the
        logs.
        """
        by_path = {paths.topic_config_path(topic): topic for topic in topics}
        found, problems = self._znodes.read_all_with_problems(by_path, ENTITY_CONFIG)
        for path, topic in by_path.items():
            if path not in problems:
                self._apply(topic, found[path][0].config if path in found else {})
        return {topic: self._of_topics.get(topic, {}) for topic in by_path.values()}

    def of_all_topics(self) -> dict[str, Mapping[str, str]]:
        """Return the own configs of every topic."""
        return self.of_topics(self._store.children(paths.TOPIC_CONFIGS))

    def peek(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return the own configs of topics without applying them: empty if there are none, or invalid."""
        by_path = {paths.topic_config_path(topic): topic for topic in topics}
        found = self._znodes.read_all(by_path, ENTITY_CONFIG)
        return {topic: found[path][0].config if path in found else {} for path, topic in by_path.items()}

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        """Return the configs of an entity by its znode's name; empty if missing or invalid."""
        config = self._znodes.read(paths.config_path(kind, name), ENTITY_CONFIG)
        return {} if config is None else config.config

    def of_clients_and_users(self) -> dict[ClientEntity, Mapping[str, str]]:
        """Return the configs of every client, user, and client of a user."""
        by_path = client_entities(self._store)
        found = self._znodes.read_all(by_path, ENTITY_CONFIG)
        return {by_path[path]: config.config for path, (config, _) in found.items()}

    def of_addresses(self) -> dict[str, Mapping[str, str]]:
        """Return the configs of every address."""
        by_path = {paths.config_path(paths.IPS, ip): ip for ip in children(self._store, paths.IP_CONFIGS)}
        found = self._znodes.read_all(by_path, ENTITY_CONFIG)
        return {by_path[path]: config.config for path, (config, _) in found.items()}

    def change(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        """Write the configs of a topic or broker, then the notification, like 0.10.1's tools."""
        write_config(self._store, kind, name, config)

    def forget(self, topic: str) -> None:
        """Forget the configs of a deleted topic."""
        self._of_topics.pop(topic, None)

    def _apply(self, topic: str, settings: Mapping[str, str]) -> None:
        last = self._of_topics.get(topic)
        if last is not None:
            log_changes(topic, last, settings)
        self._of_topics[topic] = settings


def log_changes(topic: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Log the changes between two versions of a topic's configs in one line."""
    changed = {name for name, text in new.items() if old.get(name) != text}
    names = sorted(changed | old.keys() - new.keys())
    if names:
        changes = [
            f"{name} {redact(name, old.get(name, 'default'))} -> {redact(name, new.get(name, 'default'))}"
            for name in names
        ]
        _log.info("configs of topic %s changed: %s", topic, ", ".join(changes))
