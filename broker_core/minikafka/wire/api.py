"""One API of the protocol: its number, its versions, its request and its response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.wire import schema
from minikafka.wire.frame_parts import Part
from minikafka.wire.keys import ApiKey
from minikafka.wire.schema import Struct

RESPONSE_BYTES_MAX = 256 << 20
"""The largest response to anything but a fetch: the metadata of a million partitions."""

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, eq=False)
class Api(Generic[Request, Response]):
    """What stands behind the headers of one API, in all versions from ``min_version`` to ``max_version``."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    request: Struct[Request]
    response: Struct[Response]
    most_elements: int = schema.MOST_ELEMENTS
    """What all arrays of a request may have together."""
    response_bytes: Callable[[int, Request], int] | None = None
    """The most bytes that a response to a request of a version may have, where the request says so."""

    def supports(self, version: int) -> bool:
        """Whether ``version`` is spoken here."""
        return self.min_version <= version <= self.max_version

    def response_bytes_max(self, version: int, request: Request) -> int:
        """The most bytes that the response may have: a peer that announces more is not believed."""
        if self.response_bytes is None:
            return RESPONSE_BYTES_MAX
        return self.response_bytes(version, request)

    def decode_request(self, version: int, body: Buffer) -> Request:
        """The request in ``body``, which follows the header. RemoteWireError unless it fits exactly, and for
        one that makes more objects than any client's has (``most_elements``).
        """
        if not self.supports(version):
            raise RemoteWireError(self._unsupported(version))
        return schema.decode(self.request, version, body, self.most_elements)

    def decode_response(self, version: int, body: Buffer) -> Response:
        """The response in ``body``, which follows the header. RemoteWireError unless it fits exactly."""
        self._check_own(version)
        return schema.decode(self.response, version, body, schema.MOST_RESPONSE_ELEMENTS)

    def encode_request(self, version: int, request: Request) -> list[Part]:
        """The parts that follow the request header. LocalWireError when a value does not fit."""
        self._check_own(version)
        return schema.encode(self.request, version, request)

    def encode_response(self, version: int, response: Response) -> list[Part]:
        """The parts that follow the correlation id. LocalWireError when a value does not fit."""
        self._check_own(version)
        return schema.encode(self.response, version, response)

    def _check_own(self, version: int) -> None:
        if not self.supports(version):
            raise LocalWireError(self._unsupported(version))

    def _unsupported(self, version: int) -> str:
        return f"{self.name} {version} is not spoken here, only {self.min_version} to {self.max_version}"
