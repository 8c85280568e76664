"""Settings that only ZooKeeper stores: byte rates of clients and of replication."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from minikafka.base.config.config_def import Faults
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import redact
from minikafka.registry import paths
from minikafka.registry.entity_configs import NEW_QUOTA, RATE, RATES, read_config, write_config

if TYPE_CHECKING:
    from minikafka.registry.store import Store


def entity_rows(store: Store, kind: str, name: str, *, everything: bool) -> list[dict[str, object]]:
    """Return rows with the settings of a client or broker; with ``everything`` also the clients' defaults."""
    found: dict[str, dict[str, object]] = {}
    defaults = [paths.DEFAULT_ENTITY] * (everything and kind == paths.CLIENTS)
    entity_type = kind.removesuffix("s")
    for owner in [*defaults, name]:
        source = owner if owner == paths.DEFAULT_ENTITY else entity_type
        for setting, value in read_config(store, kind, _entity(kind, owner)).items():
            found[setting] = {
                entity_type: name,
                "setting": setting,
                "value": redact(setting, value),
                "source": source,
            }
    return [found[setting] for setting in sorted(found)]


def check_changes(kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    """Raise ConfigError for names and values that brokers ignore."""
    from minikafka.server.quotas.client_quotas import QuotaType

    if kind == paths.BROKERS:
        known = dict.fromkeys(RATES, RATE)
        if not (name.isascii() and name.isdecimal()):
            raise ConfigError("NAME", name, "must be a broker id")
    else:
        known = {quota.value: NEW_QUOTA for quota in QuotaType}
        if not name:
            raise ConfigError(
                "NAME", name, f"must be a client id, or {paths.DEFAULT_ENTITY} for clients without their own"
            )
    faults = Faults()
    for key, value in changes.items():
        if value is None:
            continue
        if key in known:
            faults.attempt(partial(known[key].parse, key, value), None)
        else:
            allowed = f"not a setting of {kind} in ZooKeeper; use {' or '.join(known)}"
            faults.add([ConfigError(key, value, allowed)])
    faults.check(changes)


def change_entity(store: Store, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    """Write the changed settings and delete those that are None. Raise ConfigError if one does not exist."""
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
