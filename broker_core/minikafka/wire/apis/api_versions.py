"""ApiVersions: the APIs and versions that a broker supports. Clients since 0.10 send it first.

Version 1: throttle_time_ms; 2 is the same. Newer clients start with version 3 or 4. Those requests have a
body and a header with tagged fields that are unknown here; only the correlation id is needed, and it is at
the same position. The response is that of ``refusal``: a body of version 0 after a plain header. The client
then repeats the request with version 0.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from minikafka.base.errors import ErrorCode
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, since
from minikafka.wire.frame_parts import Part


@fast_value
class ApiVersionsRequest:
    """A request without a body."""


@fast_value
class ApiVersion:
    """The versions of one API that a broker supports."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@fast_value
class ApiVersionsResponse:
    """The broker's table, sorted by key."""

    error_code: Annotated[Int16, "35 when the request's version is not supported"]
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[Int32, since(1)] = 0


API_VERSIONS = Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 2, ApiVersionsRequest, ApiVersionsResponse)


def table_of(apis: Iterable[Api[Any, Any]]) -> ApiVersionsResponse:
    """Return the response that advertises ``apis`` as they are implemented here."""
    rows = (ApiVersion(int(api.key), api.min_version, api.max_version) for api in apis)
    return ApiVersionsResponse(int(ErrorCode.NONE), tuple(sorted(rows, key=lambda row: row.api_key)))


def refusal(newest: int) -> list[Part]:
    """Return the response body for a version above ``newest``: error 35 in a response of version 0.

    0.10.1 sends an empty table. Later releases send the row of ApiVersions itself, as is done here: it
    tells the client which version to use.
    """
    row = ApiVersion(int(API_VERSIONS.key), API_VERSIONS.min_version, newest)
    return API_VERSIONS.encode_response(0, ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), (row,)))
