"""One request on its way: its header, its API, and the way back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

from minikafka.base.errors import CoordinationError, RemoteWireError
from minikafka.base.values import fast_value
from minikafka.net.server import Exchange
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, refusal
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import RequestHeader, response_header

_log = logging.getLogger(__name__)


@fast_value
class RequestContext:
    """Header, API and way back of one request."""

    header: RequestHeader
    api: Api[Any, Any]
    exchange: Exchange

    @property
    def version(self) -> int:
        """The version that the client speaks."""
        return self.header.api_version

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in by."""
        return self.exchange.listener

    @property
    def replies_unchanged(self) -> bool:
        """Whether nothing is taken out of a response, or put into it, on its way."""
        return True

    def may_create(self, topic: str) -> bool:
        """Whether who asks may have a topic made that is not there: what else they may not is seen to before
        a handler has the request (``access_control``).
        """
        return True

    def reply(self, response: Any) -> None:
        """Send the response. Called once, by any thread, outside the core's lock."""
        self.exchange.respond(self.encoded(response))

    def reply_encoded(self, body: list[Part]) -> None:
        """``reply``, with what follows the header of a response. For contexts that ``replies_unchanged``."""
        self.exchange.respond([response_header(self.header.correlation_id), *body])

    def encoded(self, response: Any) -> list[Part]:
        """The response behind its header."""
        parts = self.api.encode_response(self.version, response)
        return [response_header(self.header.correlation_id), *parts]

    def answer(self, response: Callable[[], Any]) -> None:
        """``reply`` for whoever does not run on the connection's thread: a failure ends the connection."""
        try:
            self.reply(response())
        except CoordinationError as error:
            _log.warning("request %s cannot be answered: %s", self.header, error)
            self.exchange.close("failed to build the response")
        except Exception:  # noqa: BLE001 - others' answers wait behind it
            _log.exception("request %s cannot be answered", self.header)
            self.exchange.close("failed to build the response")

    def no_reply(self) -> None:
        """The request wants no response (acks=0): take the next one from this connection."""
        self.exchange.respond([])


def decode_request(
    exchange: Exchange,
    frame: memoryview,
    served: Container[int],
    newest: Mapping[ApiKey, int] | None = None,
) -> tuple[RequestContext, Any]:
    """Header and body of a request for one of the APIs in ``served``; the body is None when the request was
    answered here. ``newest`` holds APIs down to these versions, and others out.

    Raises RemoteWireError for bytes that are no request, an unknown API or a version that we do not speak:
    Kafka ends such a connection. Only ApiVersions is answered, in version 0 with UNSUPPORTED_VERSION, so that
    a newer client learns what to speak.
    """
    header, body = RequestHeader.decode(frame)
    if header.api_key not in served:
        raise RemoteWireError(f"API key {header.api_key} (version {header.api_version}) is not served")
    api = APIS[ApiKey(header.api_key)]
    context = RequestContext(header, api, exchange)
    held_down = newest is not None and header.api_version > newest.get(api.key, -1)
    if api is API_VERSIONS and (held_down or not api.supports(header.api_version)):
        exchange.respond([response_header(header.correlation_id), *refusal()])
        return context, None
    if held_down:
        raise RemoteWireError(
            f"{api.name} {header.api_version} is not spoken beside a broker of 0.10.1 "
            "(inter.broker.protocol.version)"
        )
    return context, api.decode_request(header.api_version, body)
