"""The error codes of responses, wherever they are."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.describe_groups import DescribeGroupsResponse
from minikafka.wire.apis.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from minikafka.wire.apis.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse
from minikafka.wire.response_errors import error_codes
from minikafka.wire.schema import fields_of

LATE, UNKNOWN = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def produced(index: int, code: ErrorCode) -> ProducePartitionResponse:
    return ProducePartitionResponse(index, code, -1, -1, -1)


def test_errors_of_partitions_are_found_in_order() -> None:
    topics = (
        ProduceTopicResponse("a", (produced(0, ErrorCode.NONE), produced(1, LATE))),
        ProduceTopicResponse("b", (produced(0, UNKNOWN), produced(1, LATE))),
    )
    assert error_codes(ProduceResponse(topics=topics)) == [LATE, UNKNOWN, LATE]


def test_errors_of_the_whole_and_of_parts_are_found() -> None:
    part = FetchPartitionResponse(0, UNKNOWN, -1, -1, -1, None, b"")
    response = FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, (FetchTopicResponse("t", (part,)),))
    assert sorted(error_codes(response)) == sorted([ErrorCode.FETCH_SESSION_ID_NOT_FOUND, UNKNOWN])


def test_response_without_errors_has_none() -> None:
    assert error_codes(DescribeGroupsResponse(0, ())) == []


def test_every_api_may_report_an_error() -> None:
    for api in APIS.values():
        names = _names(api.response)
        assert any(name.endswith("error_code") for name in names), api.name


def _names(cls: type) -> list[str]:
    found = []
    for row in fields_of(cls):
        found.append(row.name)
        inner = getattr(getattr(row.type, "element", row.type), "cls", None)
        found += _names(inner) if inner is not None else []
    return found
