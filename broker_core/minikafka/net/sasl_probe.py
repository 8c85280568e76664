"""A question to a listener that closes a connection at its first request: whether it demands a login.

A broker tells nobody: it answers ApiVersions, and closes the connection at any other request. But it answers
SaslHandshake with a mechanism that does not exist, and names those that it has. No secret is sent.
(``listener_probe`` asks about TLS.)
"""

from __future__ import annotations

from minikafka.base.errors import AuthenticationFailed, ErrorCode, NetworkError, RemoteWireError
from minikafka.net.authentication import ask
from minikafka.net.interfaces import Connector
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

TIMEOUT_MS = 1_000
_NO_MECHANISM = ""


def demanded_mechanisms(connector: Connector, host: str, port: int, client_id: str) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener that demands a login; () if it does not, or is silent."""
    try:
        connection = connector.connect(host, port)
    except (NetworkError, AuthenticationFailed):
        return ()
    try:
        table = ask(connection, API_VERSIONS, 0, ApiVersionsRequest(), 1, client_id, TIMEOUT_MS)
        if all(row.api_key != SASL_HANDSHAKE.key for row in table.api_keys):
            return ()
        handshake = SaslHandshakeRequest(_NO_MECHANISM)
        answer = ask(connection, SASL_HANDSHAKE, 0, handshake, 2, client_id, TIMEOUT_MS)
    except (NetworkError, AuthenticationFailed, RemoteWireError):
        return ()
    finally:
        connection.close()
    return answer.mechanisms if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else ()
