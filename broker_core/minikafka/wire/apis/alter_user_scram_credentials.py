"""AlterUserScramCredentials: set or delete the SCRAM credentials of users.

Of Kafka 2.7. Sent to the controller. The password is not sent, but salted and hashed by the client: as
whoever has the hash can log in, the repr of a request does not show it.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int8, Int16, Int32


@fast_value
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str
    mechanism: Annotated[Int8, "1 SCRAM-SHA-256, 2 SCRAM-SHA-512"]


@fast_value
class ScramCredentialUpsertion:
    """A credential to set. ``salted_password`` is RFC 5802's SaltedPassword."""

    name: str
    mechanism: Annotated[Int8, "1 SCRAM-SHA-256, 2 SCRAM-SHA-512"]
    iterations: Int32
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@fast_value
class AlterUserScramCredentialsRequest:
    """The credentials to delete and to set."""

    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]


ScramChange = ScramCredentialDeletion | ScramCredentialUpsertion


def changes_of(request: AlterUserScramCredentialsRequest) -> Iterator[ScramChange]:
    """Yield all changes of a request."""
    yield from request.deletions
    yield from request.upsertions


@fast_value
class AlterUserScramCredentialsResult:
    """The result for one user."""

    user: str
    error_code: Int16
    error_message: str | None


@fast_value
class AlterUserScramCredentialsResponse:
    """The results for the users of the request."""

    throttle_time_ms: Int32
    results: tuple[AlterUserScramCredentialsResult, ...]


ALTER_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    "AlterUserScramCredentials",
    0,
    0,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
