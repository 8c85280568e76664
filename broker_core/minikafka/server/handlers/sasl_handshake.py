"""SaslHandshake on a connection that is authenticated, or on a listener without SASL: ILLEGAL_SASL_STATE.

Before that, ``server.security.authentication`` serves it.
"""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(broker: Broker, context: RequestContext, request: SaslHandshakeRequest) -> None:
    """Serve one SaslHandshake request."""
    context.reply(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, ()))
