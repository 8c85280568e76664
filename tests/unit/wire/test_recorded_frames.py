"""Every message of Apache Kafka 3.9.1 whose version we have is decoded, and encoded as 3.9.1 does it."""

from __future__ import annotations

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.frame_parts import join
from tests.support.recorded_frames import RecordedFrame, recorded_frames

SUPPORTED = [
    frame
    for frame in recorded_frames()
    if frame.key in APIS and APIS[ApiKey(frame.key)].supports(frame.version)
]
NULL_RECORDS = [
    frame
    for frame in SUPPORTED
    if (frame.key, frame.kind) == (ApiKey.PRODUCE, "request") and frame.variant == "nulls"
]
"""Produce requests with null records, which 3.9.1's encoder allows and no producer sends."""


def versions() -> list[tuple[ApiKey, int]]:
    return sorted({(ApiKey(frame.key), frame.version) for frame in SUPPORTED})


def encoded_again(frame: RecordedFrame) -> bytes:
    api: Api[object, object] = APIS[ApiKey(frame.key)]
    if frame.kind == "request":
        request = api.decode_request(frame.version, memoryview(frame.body))
        return join(api.encode_request(frame.version, request))
    response = api.decode_response(frame.version, memoryview(frame.body))
    return join(api.encode_response(frame.version, response))


@pytest.mark.parametrize(("key", "version"), versions(), ids=str)
def test_bytes_of_3_9_1_decode_and_encode_unchanged(key: ApiKey, version: int) -> None:
    """A field that nobody knows is left out when the message is encoded again."""
    frames = [frame for frame in SUPPORTED if (frame.key, frame.version) == (key, version)]
    known = {(frame.kind, frame.variant): frame.body for frame in frames}
    for frame in frames:
        if frame not in NULL_RECORDS:
            variant = "filled" if frame.variant == "unknown-tags" else frame.variant
            assert encoded_again(frame) == known[frame.kind, variant], frame


@pytest.mark.parametrize("frame", NULL_RECORDS, ids=str)
def test_produce_request_with_null_records_is_refused(frame: RecordedFrame) -> None:
    with pytest.raises(RemoteWireError, match="null"):
        encoded_again(frame)
