"""DescribeClientQuotas: the quotas of users, client ids and addresses.

Of Kafka 2.6; version 1 is flexible. Sent to any broker. An entity is a user, a client id, a client id of a
user, or an address (``ip``); a name of null is the default for all that have no quotas of their own.
"""

from enum import IntEnum
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Float64, Int8, Int16, Int32


class MatchType(IntEnum):
    """The names that a component matches."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@fast_value
class QuotaFilterComponent:
    """A filter for the part of entities that has this type. ``match`` is the name to match EXACT."""

    entity_type: Annotated[str, "user, client-id or ip"]
    match_type: Annotated[Int8, "0 exact, 1 default, 2 any"]
    match: str | None


@fast_value
class DescribeClientQuotasRequest:
    """A filter: all components must match. ``strict``: the entity has no part of another type."""

    components: tuple[QuotaFilterComponent, ...]
    strict: bool


@fast_value
class QuotaEntityPart:
    """A user, client id or address, as a part of an entity."""

    entity_type: str
    entity_name: Annotated[str | None, "null: the default"]


@fast_value
class QuotaValue:
    """One quota."""

    key: str
    value: Float64


@fast_value
class QuotaEntry:
    """An entity and its quotas."""

    entity: tuple[QuotaEntityPart, ...]
    values: tuple[QuotaValue, ...]


@fast_value
class DescribeClientQuotasResponse:
    """The entities that match. ``entries`` is None on errors."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    entries: tuple[QuotaEntry, ...] | None


DESCRIBE_CLIENT_QUOTAS = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    "DescribeClientQuotas",
    0,
    1,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
