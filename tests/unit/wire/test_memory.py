"""Memory of decoded messages: every array of every request and response, filled in the worst way."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.errors import RemoteWireError
from minikafka.wire import classic, consumer_protocol, schema
from minikafka.wire.api import Api
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.metadata import METADATA, MetadataPartition, MetadataResponse, MetadataTopic
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.apis.update_metadata import (
    UPDATE_METADATA,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from minikafka.wire.codegen import varint
from minikafka.wire.fields import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    NULLABLE_BYTES,
    NULLABLE_RECORDS,
    RECORDS,
    UUID,
    ArrayOf,
    Integer,
    Type,
)
from minikafka.wire.frame_parts import join
from minikafka.wire.schema import Struct
from tests.support.wire_values import elements

TOPIC = FetchTopic("topic", (FetchPartition(0, -1, 0, -1, 1 << 20),))
BYTES_PER_ELEMENT = 300
BYTES_PER_LARGE_ELEMENT = 520
"""Of responses, and of requests that have a limit of their own."""
LARGEST_CLUSTER = 200_000
"""Partitions that Kafka 2.1 was made for."""

Path = tuple[str, ...]


def arrays(type_: Type, version: int, path: Path = ()) -> Iterator[Path]:
    """Return the paths of arrays: names of fields, and ``*`` for the elements of an array."""
    if isinstance(type_, ArrayOf):
        yield path
        yield from arrays(type_.element, version, (*path, "*"))
    elif isinstance(type_, Struct):
        for name, row in type_.rows(version):
            if row is not None:
                yield from arrays(row.type, version, (*path, name))


def costly(type_: Type, version: int, where: Path, count: int, path: Path = ()) -> Any:
    """A message of much memory and few bytes, with ``count`` elements in the array ``where``."""
    if isinstance(type_, Integer):
        return type_ is BOOLEAN or (100 if type_ is INT8 else 1000)  # small ones take nothing
    if isinstance(type_, ArrayOf):
        if path == where:
            return (costly(type_.element, version, where, count),) * count
        if path == where[: len(path)]:
            return (costly(type_.element, version, where, count, (*path, "*")),)
        return None if type_.nullable or type_.empty_is_null else ()
    if isinstance(type_, Struct):
        defaults = {row.name: row.default for row in type_.fields}
        return type_.cls(
            **{
                name: defaults[name]
                if row is None
                else costly(row.type, version, where, count, (*path, name))
                for name, row in type_.rows(version)
            }
        )
    if type_ is FLOAT64:
        return 0.5
    if type_ is UUID:
        return b"x" * 16
    return b"x" if type_ in (BYTES, NULLABLE_BYTES, RECORDS, NULLABLE_RECORDS) else "é1"


EVERY_ARRAY = [
    pytest.param(
        message, version, flexible, path, per_element, id=f"{message.name}-{version}-{'.'.join(path)}"
    )
    for api in APIS.values()
    for version, flexible in api.is_flexible.items()
    if version == api.max_version or flexible != api.is_flexible[version + 1]
    for message, per_element in (
        (
            Struct(api.request),
            BYTES_PER_ELEMENT if api.max_elements == schema.MAX_ELEMENTS else BYTES_PER_LARGE_ELEMENT,
        ),
        (Struct(api.response), BYTES_PER_LARGE_ELEMENT),
    )
    for path in arrays(message, version)
]
"""In the newest version, and in the newest that is not flexible."""


def allocated(message: Struct, version: int, data: bytes, flexible: bool) -> int:
    """The most that decoding takes at a time, in bytes."""
    with pytest.raises(RemoteWireError):
        schema.decode(message.cls, version, data[:1], flexible=flexible)  # makes the function
    tracemalloc.start()
    try:
        schema.decode(message.cls, version, data, flexible=flexible)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("message", "version", "flexible", "path", "per_element"), EVERY_ARRAY)
def test_no_element_takes_more_than_the_limit_reckons_with(
    message: Struct, version: int, flexible: bool, path: Path, per_element: int
) -> None:
    count = 200
    value = costly(message, version, path, count)
    data = join(schema.encode(message.cls, version, value, flexible))
    most = elements(message, version, value) * per_element + 1_000
    assert allocated(message, version, data, flexible) < most


def behind_count(one: bytes, two: bytes) -> int:
    """Return the position of the elements of the array with one element in ``one`` and two in ``two``."""
    return next(at for at in range(len(one)) if one[at] != two[at]) + 1


def repeated(message: type[Any], version: int, one: Any, two: Any) -> bytes:
    """The bytes of ``one``, with as many elements as the largest cluster has partitions instead of one."""
    first, second = (join(schema.encode(message, version, value)) for value in (one, two))
    start, width = behind_count(first, second), len(second) - len(first)
    count = LARGEST_CLUSTER.to_bytes(4, "big")
    element, rest = first[start : start + width], first[start + width :]
    return first[: start - 4] + count + element * LARGEST_CLUSTER + rest


@pytest.fixture(scope="module")
def largest_frame() -> bytearray:
    """A frame of zeros, as large as a broker takes; a test leaves it as it was."""
    return bytearray(100 << 20)


@pytest.mark.parametrize(
    ("api", "version", "path"),
    [
        pytest.param(api, version, path, id=f"{api.name}-{version}-{'.'.join(path)}")
        for api in APIS.values()
        for version, flexible in api.is_flexible.items()
        if version == api.max_version or flexible != api.is_flexible[version + 1]
        for path in arrays(Struct(api.request), version)
    ],
)
def test_huge_array_is_refused_before_allocation(
    api: Api[Any, Any], version: int, path: Path, largest_frame: bytearray
) -> None:
    one, two = (
        join(api.encode_request(version, costly(Struct(api.request), version, path, count)))
        for count in (1, 2)
    )
    behind = behind_count(one, two)
    if api.is_flexible[version]:
        start = one[: behind - 1] + varint(2_500_000 + 1)
    else:
        start = one[: behind - 4] + (2_500_000).to_bytes(4, "big")
    largest_frame[: len(start)] = start
    with contextlib.suppress(RemoteWireError):
        api.decode_request(version, bytes(len(one)))  # makes the function
    tracemalloc.start()
    try:
        with pytest.raises(RemoteWireError, match=rf"an array of 2500000 .* limit of {api.max_elements}"):
            api.decode_request(version, largest_frame)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()
        largest_frame[: len(start)] = bytes(len(start))


def test_many_small_arrays_are_refused_above_the_element_limit() -> None:
    """The worst there is: partitions with a byte of records each, two to a topic."""
    partition = bytes.fromhex("000003e8 00000001 ff")
    topic = bytes.fromhex("0003 c3a931 00000002") + 2 * partition
    possible = (100 << 20) // len(topic)
    most = 6_000
    frame = bytearray.fromhex("ffff 0001 00007530 00000000") + topic * possible
    for count, complaint in ((most // 3, "ends at byte"), (4_000, f"limit of {most}"), (possible, "limit")):
        frame[8:12] = count.to_bytes(4, "big")
        tracemalloc.start()
        try:
            with pytest.raises(RemoteWireError, match=complaint):
                schema.decode(PRODUCE.request, 7, frame, most)
            assert tracemalloc.get_traced_memory()[1] < most * BYTES_PER_ELEMENT
        finally:
            tracemalloc.stop()


def test_a_fetch_of_the_largest_cluster_is_read() -> None:
    request = FetchRequest(-1, 500, 1, 1 << 26, 0, 0, -1, (TOPIC,) * 2)
    frame = repeated(FETCH.request, 10, replace(request, topics=(TOPIC,)), request)
    assert FETCH.decode_request(10, frame).topics == (TOPIC,) * LARGEST_CLUSTER


def test_the_metadata_of_the_largest_cluster_are_read() -> None:
    replicas = (1000, 1001, 1002, 1003, 1004)
    partition = MetadataPartition(0, 0, 1000, 1, replicas, replicas)
    topic = MetadataTopic(0, "topic", False, (partition,))
    response = MetadataResponse(0, (), None, -1, (topic,) * 2)
    frame = repeated(METADATA.response, 7, replace(response, topics=(topic,)), response)
    assert METADATA.decode_response(7, frame).topics == (topic,) * LARGEST_CLUSTER


def test_controller_request_of_largest_cluster_is_read() -> None:
    replicas = (1000, 1001, 1002, 1003, 1004)
    partition = UpdateMetadataPartition("topic", 0, 1, 1000, 1, replicas, 1, replicas)
    request = UpdateMetadataRequest(1000, 1, (partition,) * 2, ())
    frame = repeated(UPDATE_METADATA.request, 2, replace(request, partitions=(partition,)), request)
    assert UPDATE_METADATA.decode_request(2, frame).partitions == (partition,) * LARGEST_CLUSTER


def test_a_subscription_has_the_limit_of_a_request() -> None:
    data = bytes.fromhex("0000 000f4240") + bytes(2_000_004)
    with pytest.raises(RemoteWireError, match=r"Subscription.topics: an array of 1000000 elements"):
        consumer_protocol.decode_subscription(data)


def test_classic_response_with_too_many_sets_is_refused() -> None:
    one = bytes.fromhex("00000002 0000")
    most = 0x7FFF
    code, answers = classic.decode_multi_message_set_send(b"\0\0" + one * most)
    assert (code, len(answers)) == (0, most)
    with pytest.raises(RemoteWireError, match="more than 32767 sets"):
        classic.decode_multi_message_set_send(b"\0\0" + one * (most + 1))
