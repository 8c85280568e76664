"""SaslAuthenticate on a connection that is authenticated, or on a listener without SASL: ILLEGAL_SASL_STATE.

Before that, ``server.security.authentication`` serves it.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(broker: Broker, context: RequestContext, request: SaslAuthenticateRequest) -> None:
    """Serve one SaslAuthenticate request."""
    problem = "unexpected SaslAuthenticate: there is no authentication in progress on this connection"
    context.reply(SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, problem, b""))
