"""The connector of a broker to other brokers: TCP, TLS and SASL as its inter-broker listener has them."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.errors import AuthenticationFailed, SslAuthenticationFailed
from minikafka.net.connection import secured_connector
from minikafka.net.interfaces import Connection, PendingResponse
from minikafka.net.login_ports import login_ports
from minikafka.security.sasl.login import login
from minikafka.server.config.inter_broker_security import InterBrokerSecurity

CLIENT_ID = "minikafka-inter-broker"
"""The client id of the requests that log in."""


class InterBrokerConnector:
    """Connects to other brokers. See ``net.interfaces.Connector``. Thread-safe.

    The files of key stores are read again when they have changed, as those of listeners are: a certificate
    is renewed without a restart.
    """

    def __init__(
        self, security: InterBrokerSecurity, *, connect_timeout_ms: int, request_timeout_ms: int
    ) -> None:
        """Read the key stores. Raises ConfigErrors for those that cannot be used."""
        self._security = security
        self._connector = secured_connector(
            security.ssl,
            None if security.sasl is None else login(security.sasl, login_ports()),
            connections="connections to other brokers",
            client_id=CLIENT_ID,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )

    def connect(self, host: str, port: int) -> Connection:
        """Return a new connection, on which this broker is authenticated.

        Raises NetworkError or AuthenticationFailed.
        """
        security = self._security
        if security.advice:
            text = f"no credentials for listener {security.listener} of other brokers: {security.advice}"
            raise AuthenticationFailed(text, text)
        try:
            return self._connector.connect(host, port)
        except SslAuthenticationFailed:
            raise
        except AuthenticationFailed as error:
            # The name that clients have for it is not in the file of a broker.
            text = f"{error.reason} (of this broker: {security.login_property})"
            raise AuthenticationFailed(text, text, error.code) from None

    def wait_any(self, pending: Sequence[PendingResponse], timeout_ms: int) -> bool:
        """See ``net.interfaces.Connector``."""
        return self._connector.wait_any(pending, timeout_ms)
