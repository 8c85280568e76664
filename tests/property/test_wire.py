"""Messages made from the tables themselves: any value round-trips, any damage is the peer's fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import RemoteWireError
from minikafka.wire import schema
from minikafka.wire.api_table import APIS
from minikafka.wire.fields import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    NULLABLE_BYTES,
    NULLABLE_RECORDS,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    Integer,
    Type,
)
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import FrameReader, encode_frame
from minikafka.wire.schema import Struct
from tests.support.wire_values import elements

MESSAGES = [
    (Struct(message), version, flexible)
    for api in APIS.values()
    for message in (api.request, api.response)
    for version, flexible in api.is_flexible.items()
]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def values(type_: Type, version: int) -> st.SearchStrategy[Any]:
    """Values of one type, with the default where the version lacks a field."""
    if type_ is BOOLEAN:
        return st.booleans()
    if isinstance(type_, Integer):
        half = 1 << (8 * type_.form.size - 1)
        return st.integers(-half, half - 1)
    if type_ is FLOAT64:
        return st.floats(allow_nan=False)
    if type_ is UUID:
        return st.binary(min_size=16, max_size=16)
    if type_ in (STRING, NULLABLE_STRING):
        return st.none() | text if type_ is NULLABLE_STRING else text
    if type_ in (BYTES, NULLABLE_BYTES, RECORDS, NULLABLE_RECORDS):
        data = st.binary(max_size=40)
        return st.none() | data if type_ in (NULLABLE_BYTES, NULLABLE_RECORDS) else data
    if isinstance(type_, ArrayOf):
        smallest = 1 if type_.empty_is_null else 0
        lists = st.lists(values(type_.element, version), min_size=smallest, max_size=4).map(tuple)
        return st.none() | lists if type_.nullable or type_.empty_is_null else lists
    assert isinstance(type_, Struct)
    defaults = {row.name: row.default for row in type_.fields}
    return st.builds(
        type_.cls,
        **{
            name: st.just(defaults[name]) if row is None else values(row.type, version)
            for name, row in type_.rows(version)
        },
    )


@st.composite
def messages(draw: st.DrawFn) -> tuple[Struct, int, bool, Any]:
    message, version, flexible = draw(st.sampled_from(MESSAGES))
    return message, version, flexible, draw(values(message, version))


@given(messages())
def test_any_value_of_any_version_round_trips(one: tuple[Struct, int, bool, Any]) -> None:
    message, version, flexible, value = one
    data = join(schema.encode(message.cls, version, value, flexible))
    decoded = schema.decode(message.cls, version, data, flexible=flexible)
    assert decoded == value
    assert join(schema.encode(message.cls, version, decoded, flexible)) == data


@given(messages())
def test_the_limit_of_elements_counts_those_of_all_arrays(one: tuple[Struct, int, bool, Any]) -> None:
    message, version, flexible, value = one
    data = join(schema.encode(message.cls, version, value, flexible))
    most = elements(message, version, value)
    assert schema.decode(message.cls, version, data, most, flexible) == value
    if most:
        with pytest.raises(RemoteWireError, match=f"exceeds? the limit of {most - 1} elements"):
            schema.decode(message.cls, version, data, most - 1, flexible)


@given(messages(), st.data())
def test_a_message_cut_anywhere_is_the_peers_fault(
    one: tuple[Struct, int, bool, Any], data: st.DataObject
) -> None:
    message, version, flexible, value = one
    whole = join(schema.encode(message.cls, version, value, flexible))
    if whole:
        cut = data.draw(st.integers(0, len(whole) - 1))
        try:
            schema.decode(message.cls, version, whole[:cut], flexible=flexible)
        except RemoteWireError:
            return
        raise AssertionError(f"{cut} of {len(whole)} bytes were taken for the whole")


@given(messages(), st.data())
def test_damage_gives_another_value_or_is_the_peers_fault(
    one: tuple[Struct, int, bool, Any], data: st.DataObject
) -> None:
    message, version, flexible, value = one
    damaged = bytearray(join(schema.encode(message.cls, version, value, flexible)))
    if damaged:
        where = data.draw(st.integers(0, len(damaged) - 1))
        damaged[where] = data.draw(st.integers(0, 255))
        try:
            schema.decode(message.cls, version, damaged, flexible=flexible)
        except RemoteWireError:
            return


@given(st.sampled_from(MESSAGES), st.binary(max_size=200))
def test_random_bytes_are_a_value_or_the_peers_fault(one: tuple[Struct, int, bool], noise: bytes) -> None:
    message, version, flexible = one
    try:
        schema.decode(message.cls, version, noise, flexible=flexible)
    except RemoteWireError:
        return


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 50), min_size=1))
def test_frames_are_the_same_however_the_stream_is_cut(frames: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(join(encode_frame([frame])) for frame in frames)
    reader = FrameReader(300)
    found: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += reader.feed(stream[position : position + size])
        position += size
        turn += 1
    assert found == frames
    assert not reader.inside_frame
