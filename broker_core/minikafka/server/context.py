"""The context of one request: its header, its API, and the exchange for the response."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

from minikafka.base.config.types import LONG_MAX
from minikafka.base.errors import CoordinationError, RemoteWireError
from minikafka.base.values import fast_value
from minikafka.net.server import Exchange
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.served_versions import NEWEST_SERVED
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, refusal
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import RequestHeader, response_header
from minikafka.wire.response_errors import error_codes

_log = logging.getLogger(__name__)


@fast_value
class RequestContext:
    """The header, the API and the exchange of one request."""

    header: RequestHeader
    api: Api[Any, Any]
    exchange: Exchange

    @property
    def version(self) -> int:
        """The API version of the request."""
        return self.header.api_version

    @property
    def listener(self) -> str:
        """The name of the listener that received the request."""
        return self.exchange.listener

    @property
    def principal(self) -> KafkaPrincipal:
        """The principal of the client."""
        return self.exchange.principal

    @property
    def replies_unchanged(self) -> bool:
        """True if the response is sent unchanged."""
        return True

    def may_create(self, topic: str) -> bool:
        """Return True if the client may create a topic. Almost everything else is authorized before the
        handler runs (``access_control``).
        """
        return True

    def may_read(self, topic: str) -> bool:
        """Return True if the client may fetch a topic, perhaps one that its fetch session has."""
        return True

    @property
    def window_bytes(self) -> int:
        """The bytes of a fetch response that the quota of the client allows at once."""
        return LONG_MAX

    def record_mutations(self, count: int) -> None:
        """Count partitions that the client creates or deletes for its quota.

        Raises THROTTLING_QUOTA_EXCEEDED if it may not at the moment.
        """

    def record_copied(self, count: int) -> None:
        """Count bytes that the broker appends for the client, beside those of the request, for its quota."""

    def reply(self, response: Any) -> None:
        """Send the response. Called once, by any thread, outside the core's lock."""
        self.exchange.respond(self.encoded(response))

    def reply_to_fetch(self, response: Any, withheld: Any) -> bool:
        """Send the response to a fetch; or, if the client must pause, ``withheld``, and return False."""
        self.reply(response)
        return True

    def reply_encoded(self, body: list[Part]) -> None:
        """Send an encoded response body. For contexts with ``replies_unchanged``."""
        self.exchange.respond([self._response_header(), *body])

    def encoded(self, response: Any) -> list[Part]:
        """Return the encoded response with its header."""
        times = self.exchange.times
        if times.counts_errors:
            times.errors = error_codes(response)
        parts = self.api.encode_response(self.version, response)
        return [self._response_header(), *parts]

    def _response_header(self) -> bytes:
        is_flexible = self.api.has_tagged_response_header(self.version)
        return response_header(self.header.correlation_id, is_flexible)

    def answer(self, response: Callable[[], Any]) -> None:
        """Send a response from a thread that is not the connection's. A failure closes the connection."""
        try:
            self.reply(response())
        except CoordinationError as error:
            _log.warning("failed to answer request %s: %s", self.header, error)
            self.exchange.close("failed to build the response")
        except Exception:  # noqa: BLE001 - the thread serves other requests too
            _log.exception("unexpected error while answering request %s", self.header)
            self.exchange.close("failed to build the response")

    def no_reply(self) -> None:
        """Finish a request that expects no response (acks=0): the connection's next request may be read."""
        self.exchange.respond([])


def decode_request(
    exchange: Exchange, frame: memoryview, served: Container[int], newest: Mapping[ApiKey, int]
) -> tuple[RequestContext, Any]:
    """Decode a request for one of the APIs in ``served``; return its context and body.

    The body is None if the request was answered here. ``newest`` has the newest version of each API that is
    served (``served_versions``); an API that is not in it is not served.

    Raises RemoteWireError for an invalid request, an unknown API or an unsupported version: Kafka closes such
    a connection. Only ApiVersions is answered, in version 0 with UNSUPPORTED_VERSION, so that a newer client
    learns the supported versions.
    """
    header, body = RequestHeader.decode(frame)
    exchange.times.header = header
    if header.api_key not in served:
        raise RemoteWireError(f"unsupported API key {header.api_key} (version {header.api_version})")
    api = APIS[ApiKey(header.api_key)]
    context = RequestContext(header, api, exchange)
    newest_served = newest.get(api.key, -1)
    if not api.min_version <= header.api_version <= newest_served:
        if api is not API_VERSIONS:
            raise RemoteWireError(_unsupported(api, header.api_version, newest_served))
        exchange.respond([response_header(header.correlation_id), *refusal(newest_served)])
        return context, None
    return context, api.decode_request(header.api_version, body)


def _unsupported(api: Api[Any, Any], version: int, newest_served: int) -> str:
    if api.min_version <= version <= NEWEST_SERVED.get(api.key, -1):
        return (
            f"unsupported version {version} of {api.name}: "
            "inter.broker.protocol.version limits this broker to the versions of 0.10.1"
        )
    return f"{api.name} version {version} is not supported: expected {api.min_version} to {newest_served}"
