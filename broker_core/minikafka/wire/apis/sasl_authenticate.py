"""SaslAuthenticate: one token of a SASL exchange, after SaslHandshake 1.

Version 1: session_lifetime_ms; 2 has no new fields. Tokens are secrets (the one of PLAIN is the password), so
no repr shows them.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int64, since


@fast_value
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: bytes = field(repr=False)


@fast_value
class SaslAuthenticateResponse:
    """The broker's token, or the reason for which it refuses the client."""

    error_code: Int16
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime_ms: Annotated[Int64, since(1), "0: no limit"] = 0


SASL_AUTHENTICATE = Api(
    ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, SaslAuthenticateRequest, SaslAuthenticateResponse
)
