"""Quotas of users and client ids as clients read and change them (KIP-546). For the jobs of the worker.

An entity of the protocol has parts, each a type and a name, with null for the default:

    user                /config/users/USER
    client-id           /config/clients/ID
    user, client-id     /config/users/USER/clients/ID

What else is in a znode, such as the SCRAM credentials of a user, is not shown, and stays. Quotas that brokers
here do not enforce, among them those of addresses, are refused: nobody shall take them for limits in force.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
)
from minikafka.registry.entity_configs import ConfigChange, change_config
from minikafka.registry.store import is_znode_name
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity, QuotaType, desanitize, sanitize
from minikafka.server.admin.dynamic_config import refresh_client
from minikafka.server.core.broker import Broker
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
        if IP in self._components:
            return False
        return self._matches(USER, entity.user) and self._matches(CLIENT_ID, entity.client_id)

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
    entity = _entity_of(parts)
    changes = {operation.key: _new_value(operation) for operation in operations}
    if validate_only:
        return

    def changed(before: dict[str, str]) -> Mapping[str, str]:
        after = {**before, **changes}
        return {key: text for key, text in after.items() if text is not None}

    kind, name = entity.kind_and_name
    try:
        change_config(broker.zk_client.store, kind, name, changed)
    except (CoordinationLost, SessionExpired, InconsistentClusterId):
        raise
    except CoordinationError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    refresh_client(broker, ConfigChange(kind, name))


def _entity_of(parts: Sequence[QuotaEntityPart]) -> ClientEntity:
    names: dict[str, str] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind not in _TYPES or kind in names:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"an entity has a user, a client-id, or both; got {kind!r}"
            )
        names[kind] = DEFAULT_ENTITY if name is None else sanitize(name)
        if name is not None and not is_znode_name(names[kind]):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name!r} cannot be the name of a {kind}")
    if IP in names:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "quotas of addresses are not supported: limit users or client ids"
        )
    if not names:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the entity is empty: name a user, a client-id, or both")
    return ClientEntity(names.get(USER), names.get(CLIENT_ID))


def _new_value(operation: QuotaOperation) -> str | None:
    """Return the text of a quota, None if it is to be removed."""
    if operation.remove:
        return None
    known = {quota.value: quota for quota in QuotaType}
    if operation.key not in known:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"unsupported quota {operation.key}: expected {' or '.join(known)}"
        )
    value, quota = operation.value, known[operation.key]
    text = str(value)
    if quota.is_whole:
        if not math.isfinite(value) or abs(int(value + _EPSILON) - value) > _EPSILON:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{operation.key} must be a LONG value, not {value}")
        text = str(int(value + _EPSILON))
    try:
        quota.new_type.parse(operation.key, text)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return text
