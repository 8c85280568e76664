"""Settings that stand in ZooKeeper and nowhere else: byte rates of clients and of replication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import redact
from minikafka.registry import paths
from minikafka.registry.entity_configs import RATES, read_config, write_config

if TYPE_CHECKING:
    from minikafka.registry.store import Store


def entity_rows(store: Store, kind: str, name: str, *, everything: bool) -> list[dict[str, object]]:
    """What a client or broker has of its own; with ``everything``, what all clients have besides."""
    found: dict[str, dict[str, object]] = {}
    everybody = [paths.DEFAULT_ENTITY] * (everything and kind == paths.CLIENTS)
    one = kind.removesuffix("s")
    for owner in [*everybody, name]:
        source = owner if owner == paths.DEFAULT_ENTITY else one
        for setting, value in read_config(store, kind, _entity(kind, owner)).items():
            found[setting] = {
                one: name,
                "setting": setting,
                "value": redact(setting, value),
                "source": source,
            }
    return [found[setting] for setting in sorted(found)]


def check_changes(kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    """ConfigError for what no broker would act on."""
    from minikafka.server.quotas.client_quotas import QuotaType

    if kind == paths.BROKERS:
        known, least = list(RATES), 0
        if not (name.isascii() and name.isdecimal()):
            raise ConfigError("NAME", name, "the id of a broker")
    else:
        known, least = [flow.value for flow in QuotaType], 1
        if not name:
            raise ConfigError(
                "NAME", name, f"a client's id, or {paths.DEFAULT_ENTITY} for all without their own"
            )
    for key, value in changes.items():
        if value is None:
            continue
        if key not in known:
            raise ConfigError(
                key, value, f"no setting of {kind} that is in ZooKeeper: give {' or '.join(known)}"
            )
        if not (value.isascii() and value.isdecimal() and int(value) >= least):
            raise ConfigError(key, value, f"bytes a second, at least {least}")


def change_entity(store: Store, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    """Write what is set, and take away what is None. ConfigError for what is not there to be taken away."""
    entity = _entity(kind, name)
    config = read_config(store, kind, entity)
    for key, value in changes.items():
        if value is not None:
            config[key] = value
        elif config.pop(key, None) is None:
            raise ConfigError(
                "--delete", key, f"{name} has no such setting; it has {', '.join(config) or 'none'}"
            )
    write_config(store, kind, entity, config)


def _entity(kind: str, name: str) -> str:
    return paths.client_entity(name) if kind == paths.CLIENTS else name
