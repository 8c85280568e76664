"""Quotas of users, client ids and addresses, read and changed by brokers (KIP-546; Kafka 2.6).

Entities are named as in ZooKeeper: by a type of ``paths.ENTITY_TYPES`` and an encoded name, such as ``users``
and ``alice/clients/app``. ``QuotasBackend`` is the way to them: the brokers, or ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import raise_for_code
from minikafka.registry import paths
from minikafka.registry.entity_configs import ConfigChange, change_config, read_config
from minikafka.registry.store import Store
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, desanitize
from minikafka.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    QuotaOperation,
)
from minikafka.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    MatchType,
    QuotaEntityPart,
    QuotaFilterComponent,
)


class QuotasBackend(Protocol):
    """The way to the quotas of entities."""

    def read(self, kind: str, name: str) -> dict[str, str]:
        """Return the settings of an entity."""

    def change(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Set the settings of an entity, and delete those that are None."""


class BrokerQuotas:
    """The quotas as brokers tell and change them."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def read(self, kind: str, name: str) -> dict[str, str]:
        """See ``QuotasBackend``."""
        parts = _parts(kind, name)
        request = DescribeClientQuotasRequest(tuple(map(_exactly, parts)), strict=True)
        response = self._cluster.call(None, DESCRIBE_CLIENT_QUOTAS, request)
        raise_for_code(response.error_code, response.error_message, f"quotas of {kind}/{name}")
        return {
            quota.key: _text(quota.value)
            for entry in response.entries or ()
            if set(entry.entity) == set(parts)
            for quota in entry.values
        }

    def change(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """See ``QuotasBackend``."""
        operations = tuple(
            QuotaOperation(key, float(value or 0), value is None) for key, value in changes.items()
        )
        entry = AlterClientQuotasEntry(_parts(kind, name), operations)
        response = self._cluster.call(
            None, ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((entry,), validate_only=False)
        )
        for row in response.entries:
            raise_for_code(row.error_code, row.error_message, f"quotas of {kind}/{name}")
        if not response.entries:
            raise BrokerError(ErrorCode.UNKNOWN, f"no result for the quotas of {kind}/{name}")


class ZooKeeperConfigs:
    """The settings of entities in ZooKeeper. Running brokers are notified of changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, kind: str, name: str) -> dict[str, str]:
        """See ``QuotasBackend``."""
        return read_config(self._store, kind, name)

    def change(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """See ``QuotasBackend``. No change of others is lost."""

        def changed(held: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in {**held, **changes}.items() if value is not None}

        change_config(self._store, kind, name, changed)


def _parts(kind: str, name: str) -> tuple[QuotaEntityPart, ...]:
    if kind == paths.IPS:
        return (QuotaEntityPart("ip", None if name == DEFAULT_ENTITY else name),)
    entity = ClientEntity.changed(ConfigChange(kind, name))
    return tuple(
        QuotaEntityPart(entity_type, None if encoded == DEFAULT_ENTITY else desanitize(encoded))
        for entity_type, encoded in (("user", entity.user), ("client-id", entity.client_id))
        if encoded is not None
    )


def _exactly(part: QuotaEntityPart) -> QuotaFilterComponent:
    match = MatchType.DEFAULT if part.entity_name is None else MatchType.EXACT
    return QuotaFilterComponent(part.entity_type, match, part.entity_name)


def _text(value: float) -> str:
    """Return a quota as text, a whole one without a fraction."""
    return str(int(value)) if value.is_integer() else str(value)
