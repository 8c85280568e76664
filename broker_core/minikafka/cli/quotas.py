"""The settings of clients, which stand in ZooKeeper: byte rates, as the broker acts on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError
from minikafka.registry import paths
from minikafka.registry.entity_configs import read_config, write_config

if TYPE_CHECKING:
    from minikafka.registry.store import Store


def rows(store: Store, name: str, *, everything: bool) -> list[dict[str, object]]:
    """What a client has of its own; with ``everything``, what all clients have besides."""
    found: dict[str, dict[str, object]] = {}
    for one in [paths.DEFAULT_ENTITY] * everything + [name]:
        source = one if one == paths.DEFAULT_ENTITY else "client"
        for setting, value in read_config(store, paths.CLIENTS, paths.client_entity(one)).items():
            found[setting] = {"client": name, "setting": setting, "value": value, "source": source}
    return [found[setting] for setting in sorted(found)]


def check(name: str, changes: Mapping[str, str | None]) -> None:
    """ConfigError for what no broker would act on."""
    if not name:
        raise ConfigError("NAME", name, f"a client's id, or {paths.DEFAULT_ENTITY} for all without their own")
    from minikafka.server.quotas import Flow

    known = [flow.value for flow in Flow]
    for key, value in changes.items():
        if value is None:
            continue
        if key not in known:
            raise ConfigError(key, value, f"no setting of clients: give {' or '.join(known)}")
        if not (value.isascii() and value.isdecimal() and int(value)):
            raise ConfigError(key, value, "bytes a second, at least 1")


def change(store: Store, name: str, changes: Mapping[str, str | None]) -> None:
    """Write what is set, and take away what is None. ConfigError for what is not there to be taken away."""
    entity = paths.client_entity(name)
    config = read_config(store, paths.CLIENTS, entity)
    for key, value in changes.items():
        if value is not None:
            config[key] = value
        elif config.pop(key, None) is None:
            raise ConfigError(
                "--delete", key, f"{name} has no such setting; it has {', '.join(config) or 'none'}"
            )
    write_config(store, paths.CLIENTS, entity, config)
