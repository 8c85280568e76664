"""AlterClientQuotas: set or remove quotas of users, client ids and addresses.

Of Kafka 2.6; version 1 is flexible. Sent to any broker. Each entity succeeds or fails on its own.
"""

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.apis.describe_client_quotas import QuotaEntityPart
from minikafka.wire.fields import Float64, Int16, Int32


@fast_value
class QuotaOperation:
    """A quota to set, or to remove; then ``value`` has no meaning."""

    key: str
    value: Float64
    remove: bool


@fast_value
class AlterClientQuotasEntry:
    """An entity (see DescribeClientQuotas), and the changes of its quotas."""

    entity: tuple[QuotaEntityPart, ...]
    ops: tuple[QuotaOperation, ...]


@fast_value
class AlterClientQuotasRequest:
    """A request to change quotas. ``validate_only``: report the errors, change nothing."""

    entries: tuple[AlterClientQuotasEntry, ...]
    validate_only: bool


@fast_value
class AlterClientQuotasResult:
    """The result for one entity."""

    error_code: Int16
    error_message: str | None
    entity: tuple[QuotaEntityPart, ...]


@fast_value
class AlterClientQuotasResponse:
    """The results for the entities of the request."""

    throttle_time_ms: Int32
    entries: tuple[AlterClientQuotasResult, ...]


ALTER_CLIENT_QUOTAS = Api(
    ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, AlterClientQuotasRequest, AlterClientQuotasResponse
)
