"""Configs of topics as they were last read, and invalid ones."""

from __future__ import annotations

import logging

import pytest

from minikafka.registry import paths
from minikafka.registry.entity_configs import EntityConfig
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.server.zookeeper.entity_settings import EntitySettings

KEPT = {"retention.ms": "-1"}


def test_invalid_configs_keep_the_last_ones_though_mended_by_now(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryZooKeeper().connect()
    for topic in ("a", "b"):
        store.create(paths.topic_config_path(topic), EntityConfig(KEPT).to_json(), make_parents=True)
    settings = EntitySettings(store)
    assert settings.of_topics(["a", "b"]) == {"a": KEPT, "b": KEPT}
    store.write(paths.topic_config_path("a"), EntityConfig({}).to_json())
    store.write(paths.topic_config_path("b"), b"{")

    def mend_and_read(record: logging.LogRecord) -> None:
        """Act as another thread does after both were read: the changes of ``a`` are logged then."""
        if record.levelno != logging.INFO:
            return
        store.write(paths.topic_config_path("b"), EntityConfig(KEPT).to_json())
        assert EntitySettings(store).of_topics(["b"]) == {"b": KEPT}

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(caplog.handler, "emit", mend_and_read)
    assert settings.of_topics(["a", "b"]) == {"a": {}, "b": KEPT}
