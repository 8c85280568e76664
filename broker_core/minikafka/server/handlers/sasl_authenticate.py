"""SaslAuthenticate on a listener without SASL: ILLEGAL_SASL_STATE, and the end of the connection.

On a listener with SASL, ``server.security.authentication`` serves it. Kafka leaves the connection open, but a
client cannot use it; so the broker's log says what is wrong.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.handlers.sasl_handshake import no_sasl
from minikafka.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(broker: Broker, context: RequestContext, request: SaslAuthenticateRequest) -> None:
    """Serve one SaslAuthenticate request."""
    problem = no_sasl(context.listener)
    response = SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, problem, b"")
    context.exchange.close(problem, context.encoded(response))
