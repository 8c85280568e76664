"""Quotas of clients, users and addresses, and in ZooKeeper the rates of replication of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from minikafka.base.config.config_def import Faults
from minikafka.base.config.types import INT_MAX, digits
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import HIDDEN, redact
from minikafka.registry import paths
from minikafka.registry.entity_configs import BROKER_RATES, CONNECTION_RATE, CONNECTION_RATE_TYPE, RATE
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, QuotaType

if TYPE_CHECKING:
    from minikafka.clients.admin.client_quotas import QuotasBackend


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of settings that a command names: a broker, client, user, client of a user, or address."""

    kind: str
    """One of ``paths.ENTITY_TYPES``."""
    name: str
    user: str | None = None
    """Of a client: the user, if the settings are about the clients of one user."""

    @property
    def client(self) -> ClientEntity:
        """The client or user."""
        if self.kind == paths.USERS:
            return ClientEntity.of(user=self.name)
        return ClientEntity.of(user=self.user, client_id=self.name)

    @property
    def kind_and_name(self) -> tuple[str, str]:
        """The type and name of the entity in ZooKeeper."""
        if self.kind == paths.IPS:
            from minikafka.server.quotas.address_quotas import normal_address

            return self.kind, normal_address(self.name) or DEFAULT_ENTITY
        return (self.kind, self.name) if self.kind == paths.BROKERS else self.client.kind_and_name

    def rows(self, backend: QuotasBackend, *, everything: bool) -> list[dict[str, object]]:
        """Return rows with the settings; with ``everything`` also those of others that hold for the owner."""
        entity_type = self.kind.removesuffix("s")
        sources = {self.kind_and_name: entity_type}
        if everything and self.kind == paths.IPS:
            sources.setdefault((self.kind, DEFAULT_ENTITY), f"{self.kind}/{DEFAULT_ENTITY}")
        elif everything and self.kind != paths.BROKERS:
            for entity in self._precedence():
                sources.setdefault(entity.kind_and_name, str(entity))
        found: dict[str, dict[str, object]] = {}
        for (kind, name), source in sources.items():
            for setting, value in backend.read(kind, name).items():
                secret = setting in _credentials()
                row = {"setting": setting, "value": HIDDEN if secret else redact(setting, value)}
                if not secret or source == entity_type:
                    found.setdefault(setting, {**self.named(), **row, "source": source})
        return [found[setting] for setting in sorted(found)]

    def named(self) -> dict[str, object]:
        """Return the fields of a row that name the owner."""
        whose = {} if self.user is None else {"user": self.user}
        return {self.kind.removesuffix("s"): self.name, **whose}

    def _precedence(self) -> Iterator[ClientEntity]:
        """Yield the entities whose quotas hold for the owner, the ones that win first."""
        from minikafka.server.quotas.client_quotas import precedence

        of_user = self.name if self.kind == paths.USERS else self.user
        for entity, _ in precedence(of_user or "", "" if self.kind == paths.USERS else self.name):
            about_user, about_client = entity.user is not None, entity.client_id is not None
            if (of_user is not None or not about_user) and (self.kind != paths.USERS or not about_client):
                yield entity

    def check_changes(self, changes: Mapping[str, str | None]) -> None:
        """Raise ConfigError for names and values that brokers ignore."""
        if self.kind == paths.IPS:
            known = {CONNECTION_RATE: CONNECTION_RATE_TYPE}
            _check_address(self.name)
        elif self.kind == paths.BROKERS:
            known = dict.fromkeys(BROKER_RATES, RATE)
            if digits(self.name, INT_MAX) is None:
                raise ConfigError("NAME", self.name, "must be a broker id")
        else:
            known = {quota.value: quota.new_type for quota in QuotaType}
            _check_name("NAME", self.name, "user" if self.kind == paths.USERS else "client id")
            if self.user is not None:
                _check_name("--user", self.user, "user")
        faults = Faults()
        for key, value in changes.items():
            if key in _credentials() and self.kind == paths.USERS:
                allowed = f"is a password; change it with `minikafka user passwd {self.name}`"
                faults.add([ConfigError(key, HIDDEN, allowed)])
            elif value is None:
                continue
            elif key in known:
                faults.attempt(partial(known[key].parse, key, value), None)
            else:
                where = " in ZooKeeper" if self.kind == paths.BROKERS else ""
                allowed = f"not a setting of {self.kind}{where}; use {' or '.join(known)}"
                faults.add([ConfigError(key, value, allowed)])
        faults.check(changes)

    def change(self, backend: QuotasBackend, changes: Mapping[str, str | None]) -> None:
        """Write the changed settings and delete those that are None. Raise ConfigError if one is missing."""
        deleted = [key for key, value in changes.items() if value is None]
        held = backend.read(*self.kind_and_name) if deleted else {}
        for key in deleted:
            if key not in held:
                has = ", ".join(held) or "none"
                raise ConfigError("--delete", key, f"{self.name} has no such setting; it has {has}")
        backend.change(*self.kind_and_name, changes)


def _check_address(name: str) -> None:
    from minikafka.server.quotas.address_quotas import normal_address

    try:
        normal_address(name)
    except ValueError:
        allowed = f"must be an address, such as 10.0.0.1, or {DEFAULT_ENTITY} for those without their own"
        raise ConfigError("NAME", name, allowed) from None


def _check_name(option: str, name: str, what: str) -> None:
    if not name or name in {".", ".."}:
        allowed = f"must be a {what}, or {DEFAULT_ENTITY} for those without their own"
        raise ConfigError(option, name, allowed)


def _credentials() -> frozenset[str]:
    """Return the names of the settings of users that are secrets."""
    from minikafka.security.sasl.scram import ScramMechanism

    return frozenset(mechanism.value for mechanism in ScramMechanism)
