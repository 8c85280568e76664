"""ApiVersions: the APIs and versions that a broker supports. Clients since 0.10 send it first.

Version 1: throttle_time_ms; 3: the client's software, and the features of the cluster. Versions 2 and 4 have
no new fields. A client starts with its newest version. If the broker does not serve that, the response is
that of ``refusal``: a body of version 0, which the client repeats the request with. The header of a response
has no tagged fields in any version.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from minikafka.base.errors import ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since, tagged
from minikafka.wire.frame_parts import Part

SOFTWARE_SINCE = 3
"""The first version with the name and version of the client's software."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@fast_value
class ApiVersionsRequest:
    """A request, with the name and version of the client's software."""

    client_software_name: Annotated[str, since(3)] = ""
    client_software_version: Annotated[str, since(3)] = ""


def is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """Return False if the name or version of the software has characters that Kafka refuses.

    They have letters, digits, dots and hyphens, and begin and end with a letter or a digit.
    """
    software = (request.client_software_name, request.client_software_version)
    return version < SOFTWARE_SINCE or all(map(_SOFTWARE.fullmatch, software))


@fast_value
class ApiVersion:
    """The versions of one API that a broker supports."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@fast_value
class SupportedFeature:
    """The levels of a feature that the broker supports."""

    name: str
    min_version: Int16
    max_version: Int16


@fast_value
class FinalizedFeature:
    """The levels of a feature that the cluster has agreed on."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


@fast_value
class ApiVersionsResponse:
    """The broker's table, sorted by key."""

    error_code: Annotated[Int16, "35 when the request's version is not supported"]
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeature, ...], tagged(0, 3)] = ()
    finalized_features_epoch: Annotated[Int64, tagged(1, 3), "-1: unknown"] = -1
    finalized_features: Annotated[tuple[FinalizedFeature, ...], tagged(2, 3)] = ()
    zk_migration_ready: Annotated[bool, tagged(3, 3)] = False


API_VERSIONS = Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4, ApiVersionsRequest, ApiVersionsResponse)


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


def is_refusal(body: Buffer) -> bool:
    """Return True for the response body of a broker that does not support the version of the request.

    The error code comes first in every version.
    """
    return bytes(body[:2]) == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
