"""DescribeUserScramCredentials: the SCRAM mechanisms of users, and their iterations.

Of Kafka 2.7. Sent to any broker. No secret is in the response.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32


@fast_value
class ScramUserName:
    """A user whose credentials are requested."""

    name: str


@fast_value
class DescribeUserScramCredentialsRequest:
    """A request for the credentials of users."""

    users: Annotated[tuple[ScramUserName, ...] | None, "null or none: all"]


@fast_value
class ScramCredentialInfo:
    """A credential without its secrets."""

    mechanism: Annotated[Int8, "1 SCRAM-SHA-256, 2 SCRAM-SHA-512"]
    iterations: Int32


@fast_value
class DescribeUserScramCredentialsResult:
    """The credentials of a user."""

    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: tuple[ScramCredentialInfo, ...]


@fast_value
class DescribeUserScramCredentialsResponse:
    """The users of the request, or all."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: tuple[DescribeUserScramCredentialsResult, ...]


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    "DescribeUserScramCredentials",
    0,
    0,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
