"""SaslHandshake on a listener without SASL: ILLEGAL_SASL_STATE, and the end of the connection.

On a listener with SASL, ``server.security.authentication`` serves it. Kafka leaves the connection open, but a
client cannot use it; so the broker's log says what is wrong.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(broker: Broker, context: RequestContext, request: SaslHandshakeRequest) -> None:
    """Serve one SaslHandshake request."""
    response = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, ())
    context.exchange.close(no_sasl(context.listener), context.encoded(response))


def no_sasl(listener: str) -> str:
    """Return why a client with SASL is refused."""
    return (
        f"a client with SASL on the listener {listener}, which has none: change its security.protocol, or "
        "the address that it connects to"
    )
