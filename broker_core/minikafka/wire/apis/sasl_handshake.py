"""SaslHandshake: name the SASL mechanism of a connection, before the first token.

After version 0, tokens follow as bare frames: an int32 length and the bytes, in both directions. A failure
closes the connection without a response. After version 1, which has the same fields, tokens travel in
SaslAuthenticate.
"""

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16


@fast_value
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: str


@fast_value
class SaslHandshakeResponse:
    """The mechanisms that the listener has enabled."""

    error_code: Int16
    mechanisms: tuple[str, ...]


SASL_HANDSHAKE = Api(
    ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, SaslHandshakeRequest, SaslHandshakeResponse
)
