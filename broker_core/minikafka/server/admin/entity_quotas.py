"""Quotas of users, client ids and addresses as clients read and change them (KIP-546). For the worker's jobs.

An entity of the protocol has parts, each a type and a name, with null for the default:

    user                /config/users/USER
    client-id           /config/clients/ID
    user, client-id     /config/users/USER/clients/ID
    ip                  /config/ips/ADDRESS

What else is in a znode, such as the SCRAM credentials of a user, is not shown, and stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from minikafka.base.config.types import Type
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.registry import paths
from minikafka.registry.entity_configs import CONNECTION_RATE, CONNECTION_RATE_TYPE
from minikafka.registry.store import is_znode_name
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, QuotaType, desanitize, sanitize
from minikafka.server.admin.dynamic_config import change_entity
from minikafka.server.core.broker import Broker
from minikafka.server.quotas.address_quotas import normal_address
from minikafka.wire.apis.alter_client_quotas import QuotaOperation
from minikafka.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    MatchType,
    QuotaEntityPart,
    QuotaEntry,
    QuotaFilterComponent,
    QuotaValue,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (USER, CLIENT_ID, IP)
_EPSILON = 1e-6
"""A value this near to a whole number is that number: it has been a text and a float before."""


class QuotaFilter:
    """The filter of a request."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        """Raise BrokerError for a filter that is not valid."""
        self._strict = request.strict
        self._components: dict[str, QuotaFilterComponent] = {}
        for component in request.components:
            kind = component.entity_type
            if kind and kind not in _TYPES:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"entity type {kind!r} is not supported")
            if not kind or kind in self._components:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"each filter needs an entity type of its own, {', '.join(_TYPES)}; got {kind!r} "
                    f"{'again' if kind else ''}".rstrip(),
                )
            if component.match_type not in set(MatchType):
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type} of {kind}"
                )
            self._components[kind] = component
        if IP in self._components and len(self._components) > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a filter for addresses cannot be used with others")

    def matches(self, entity: ClientEntity) -> bool:
        """Return True if the quotas of an entity are asked for."""
        return (
            IP not in self._components
            and self._matches(USER, entity.user)
            and self._matches(CLIENT_ID, entity.client_id)
        )

    def matches_address(self, name: str) -> bool:
        """Return True if the quota of an address is asked for; ``DEFAULT_ENTITY``: of all others."""
        return not self._components.keys() - {IP} and self._matches(IP, name)

    def _matches(self, kind: str, encoded: str | None) -> bool:
        component = self._components.get(kind)
        if component is None:
            return encoded is None or not self._strict
        if encoded is None:
            return False
        match component.match_type:
            case MatchType.EXACT:
                return encoded != DEFAULT_ENTITY and desanitize(encoded) == component.match
            case MatchType.DEFAULT:
                return encoded == DEFAULT_ENTITY
            case _:
                return True


def find_quotas(
    settings: Mapping[ClientEntity, Mapping[str, str]], wanted: QuotaFilter
) -> Iterator[QuotaEntry]:
    """Yield the quotas that match, of all ``settings`` of clients and users."""
    for entity, configs in settings.items():
        if wanted.matches(entity):
            values = tuple(
                QuotaValue(key, number)
                for key in (quota.value for quota in QuotaType)
                if key in configs and (number := _number_in(configs[key])) is not None
            )
            if values:
                yield QuotaEntry(tuple(_parts(entity)), values)


def find_address_quotas(
    settings: Mapping[str, Mapping[str, str]], wanted: QuotaFilter
) -> Iterator[QuotaEntry]:
    """Yield the quotas that match, of all ``settings`` of addresses."""
    for name, configs in settings.items():
        number = _number_in(configs.get(CONNECTION_RATE, ""))
        if number is not None and wanted.matches_address(name):
            part = QuotaEntityPart(IP, None if name == DEFAULT_ENTITY else name)
            yield QuotaEntry((part,), (QuotaValue(CONNECTION_RATE, number),))


def _number_in(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parts(entity: ClientEntity) -> Iterator[QuotaEntityPart]:
    for kind, encoded in ((USER, entity.user), (CLIENT_ID, entity.client_id)):
        if encoded is not None:
            yield QuotaEntityPart(kind, None if encoded == DEFAULT_ENTITY else desanitize(encoded))


def alter_quotas(
    broker: Broker,
    parts: Sequence[QuotaEntityPart],
    operations: Sequence[QuotaOperation],
    *,
    validate_only: bool,
) -> None:
    """Change the quotas of an entity, and apply them on this broker. Raises BrokerError."""
    kind, name = _entity_of(parts)
    known = {CONNECTION_RATE: (CONNECTION_RATE_TYPE, "INT")}
    if kind != paths.IPS:
        known = {quota.value: (quota.new_type, "LONG" if quota.is_whole else "DOUBLE") for quota in QuotaType}
    changes = {operation.key: _new_value(operation, known) for operation in operations}
    if validate_only:
        return

    def changed(before: dict[str, str]) -> Mapping[str, str]:
        after = {**before, **changes}
        return {key: text for key, text in after.items() if text is not None}

    change_entity(broker, kind, name, changed)


def _entity_of(parts: Sequence[QuotaEntityPart]) -> tuple[str, str]:
    """Return the type and name of the entity in ZooKeeper."""
    names: dict[str, str] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind not in _TYPES or kind in names:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"an entity has a user, a client-id, or both, or an ip; got {kind!r}",
            )
        names[kind] = DEFAULT_ENTITY if name is None else sanitize(name)
        if name is not None and not is_znode_name(names[kind]):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name!r} cannot be the name of a {kind}")
    if IP in names:
        return paths.IPS, _address_of(parts)
    if not names:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the entity is empty: name a user, a client-id, or both")
    return ClientEntity(names.get(USER), names.get(CLIENT_ID)).kind_and_name


def _address_of(parts: Sequence[QuotaEntityPart]) -> str:
    if len(parts) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "an ip cannot be together with a user or client-id")
    name = parts[0].entity_name
    try:
        return DEFAULT_ENTITY if name is None else normal_address(name)
    except ValueError:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} is not an address") from None


def _new_value(operation: QuotaOperation, known: Mapping[str, tuple[Type, str]]) -> str | None:
    """Return the text of a quota, None if it is to be removed.

    ``known``: the types of quotas by their names, with Kafka's names of the types.
    """
    if operation.remove:
        return None
    if operation.key not in known:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"unsupported quota {operation.key}: expected {' or '.join(known)}"
        )
    value, (type_, kafkas_type) = operation.value, known[operation.key]
    text = str(value)
    if kafkas_type != "DOUBLE":
        if not math.isfinite(value) or abs(int(value + _EPSILON) - value) > _EPSILON:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{operation.key} must be a {kafkas_type} value, not {value}"
            )
        text = str(int(value + _EPSILON))
    try:
        type_.parse(operation.key, text)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return text
