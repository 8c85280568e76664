"""Every frame that was recorded between real brokers, 0.10.1.1 and 3.9.1, and their clients, byte for byte.

``tests/data/wire/KEY-Name-vN.json`` holds whole frames with their length, as hex. A null response: the broker
closed the connection, acks was 0, or the client had left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minikafka.base.errors import ErrorCode, RemoteWireError
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse, refusal
from minikafka.wire.apis.fetch import FETCH
from minikafka.wire.apis.metadata import METADATA
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.frame_parts import buffer_of, join
from minikafka.wire.framing import FrameReader, RequestHeader, encode_frame, response_header, split_response

DATA = Path(__file__).resolve().parents[2] / "data" / "wire"


class Recorded(NamedTuple):
    """A recorded exchange; ``number`` counts within its file."""

    key: int
    version: int
    number: int
    request: bytes
    response: bytes | None

    def __str__(self) -> str:
        return f"{self.key}-v{self.version}-{self.number}"


def recorded() -> Iterator[Recorded]:
    for path in sorted(DATA.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for number, example in enumerate(content["examples"]):
            response = example["response"]
            yield Recorded(
                content["api_key"],
                content["api_version"],
                number,
                bytes.fromhex(example["request"]),
                None if response is None else bytes.fromhex(response),
            )


ALL = list(recorded())
REFUSED = [exchange for exchange in ALL if exchange.key == ApiKey.API_VERSIONS and exchange.version > 2]
"""Requests that 0.10.1 answers in version 0, whatever their body."""
SUPPORTED = [
    exchange
    for exchange in ALL
    if exchange.key in APIS
    and APIS[ApiKey(exchange.key)].supports(exchange.version)
    and exchange not in REFUSED
]
ANSWERED = [exchange for exchange in SUPPORTED if exchange.response is not None]


def frame_of(data: bytes) -> memoryview:
    (frame,) = FrameReader().feed(data)
    return frame


def test_every_version_that_0_10_1_answered_is_spoken() -> None:
    unsupported = {(exchange.key, exchange.version) for exchange in ALL if exchange.response is not None} - {
        (exchange.key, exchange.version) for exchange in ANSWERED
    }
    assert unsupported == {(exchange.key, exchange.version) for exchange in REFUSED}


@pytest.mark.parametrize("exchange", SUPPORTED, ids=str)
def test_recorded_request_decodes_and_encodes_unchanged(exchange: Recorded) -> None:
    header, body = RequestHeader.decode(frame_of(exchange.request))
    assert (header.api_key, header.api_version) == (exchange.key, exchange.version)
    api = APIS[ApiKey(exchange.key)]
    request = api.decode_request(exchange.version, body)
    assert (
        join(encode_frame([header.encode(), *api.encode_request(exchange.version, request)]))
        == exchange.request
    )


@pytest.mark.parametrize("exchange", ANSWERED, ids=str)
def test_recorded_response_decodes_and_encodes_unchanged(exchange: Recorded) -> None:
    assert exchange.response is not None
    api = APIS[ApiKey(exchange.key)]
    flexible = api.has_tagged_response_header(exchange.version)
    correlation_id, body = split_response(frame_of(exchange.response), flexible)
    header, _ = RequestHeader.decode(frame_of(exchange.request))
    assert correlation_id == header.correlation_id
    response = api.decode_response(exchange.version, body)
    parts = [response_header(correlation_id, flexible), *api.encode_response(exchange.version, response)]
    assert join(encode_frame(parts)) == exchange.response


def shortest(direction: str) -> list[Recorded]:
    """The shortest recording of each version."""
    found: dict[tuple[int, int], Recorded] = {}
    for exchange in sorted(ANSWERED, key=lambda exchange: len(getattr(exchange, direction))):
        found.setdefault((exchange.key, exchange.version), exchange)
    return list(found.values())


@pytest.mark.parametrize("exchange", shortest("request"), ids=str)
def test_cut_request_is_the_peers_fault(exchange: Recorded) -> None:
    _, body = RequestHeader.decode(frame_of(exchange.request))
    api = APIS[ApiKey(exchange.key)]
    for size in range(len(body)):
        with pytest.raises(RemoteWireError):
            api.decode_request(exchange.version, body[:size])


@pytest.mark.parametrize("exchange", shortest("request"), ids=str)
def test_bytes_behind_a_request_are_ignored(exchange: Recorded) -> None:
    _, body = RequestHeader.decode(frame_of(exchange.request))
    api = APIS[ApiKey(exchange.key)]
    followed = api.decode_request(exchange.version, bytes(body) + b"\0\0\0")
    assert followed == api.decode_request(exchange.version, body)


@pytest.mark.parametrize("exchange", shortest("response"), ids=str)
def test_response_one_byte_off_is_the_peers_fault(exchange: Recorded) -> None:
    assert exchange.response is not None
    api = APIS[ApiKey(exchange.key)]
    flexible = api.has_tagged_response_header(exchange.version)
    _, body = split_response(frame_of(exchange.response), flexible)
    for size in range(len(body)):
        with pytest.raises(RemoteWireError):
            api.decode_response(exchange.version, body[:size])
    with pytest.raises(RemoteWireError):
        api.decode_response(exchange.version, bytes(body) + b"\0")


def examples(key: ApiKey, version: int) -> list[Recorded]:
    return [exchange for exchange in ANSWERED if (exchange.key, exchange.version) == (key, version)]


def test_the_fields_of_a_produce_exchange_are_where_they_belong() -> None:
    exchange = examples(ApiKey.PRODUCE, 2)[0]
    header, body = RequestHeader.decode(frame_of(exchange.request))
    assert header.client_id == "producer-1"
    request = PRODUCE.decode_request(2, body)
    assert (request.acks, request.timeout_ms) == (-1, 30000)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.index) == ("wire", 0)
    records = buffer_of(partition.records)
    assert int.from_bytes(records[8:12], "big") == len(records) - 12, "one message, which fills the set"
    assert exchange.response is not None
    response = PRODUCE.decode_response(2, split_response(frame_of(exchange.response))[1])
    (produced,) = response.topics[0].partitions
    assert (produced.index, produced.error_code, produced.base_offset) == (0, 0, 0)
    assert (produced.log_append_time_ms, response.throttle_time_ms) == (-1, 0)


def test_the_fields_of_a_fetch_exchange_are_where_they_belong() -> None:
    exchange = examples(ApiKey.FETCH, 3)[0]
    request = FETCH.decode_request(3, RequestHeader.decode(frame_of(exchange.request))[1])
    assert (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes) == (
        -1,
        500,
        1,
        50 << 20,
    )
    assert exchange.response is not None
    response = FETCH.decode_response(3, split_response(frame_of(exchange.response))[1])
    (partition,) = response.topics[0].partitions
    assert (partition.index, partition.error_code, partition.high_watermark) == (0, 0, 48)
    assert len(buffer_of(partition.records)) == 3116


def test_old_fetch_request_has_no_response_limit() -> None:
    exchange = examples(ApiKey.FETCH, 0)[0]
    assert (
        FETCH.decode_request(0, RequestHeader.decode(frame_of(exchange.request))[1]).max_bytes == 0x7FFFFFFF
    )


def test_metadata_distinguishes_all_topics_from_none() -> None:
    for version in (0, 1, 2):
        everything = METADATA.decode_request(version, b"\0\0\0\0" if version == 0 else b"\xff\xff\xff\xff")
        assert everything.topics is None
    assert METADATA.decode_request(1, b"\0\0\0\0").topics == ()


def test_refusal_of_newer_api_versions_has_recorded_form() -> None:
    assert {exchange.version for exchange in REFUSED} == {3, 4}
    for exchange in REFUSED:
        header, _ = RequestHeader.decode(frame_of(exchange.request))
        empty = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, ())
        parts = [response_header(header.correlation_id), *API_VERSIONS.encode_response(0, empty)]
        assert join(encode_frame(parts)) == exchange.response


def test_our_refusal_adds_the_supported_versions() -> None:
    response = API_VERSIONS.decode_response(0, join(refusal(2)))
    assert response == ApiVersionsResponse(35, (ApiVersion(18, 0, 2),))


def test_request_for_unknown_api_has_readable_header() -> None:
    (unknown,) = (exchange for exchange in ALL if exchange.key == 99)
    header, body = RequestHeader.decode(frame_of(unknown.request))
    assert (header.api_key, header.client_id, bytes(body)) == (99, "by-hand", b"")
    assert unknown.response is None
