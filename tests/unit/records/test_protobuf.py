"""Protobuf messages as columns: the same as protobuf's own runtime reads and writes."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from minikafka.records.protobuf import encoding
from minikafka.records.protobuf.decoding import DecodedMessages, decode_messages
from minikafka.records.protobuf.encoding import encode_messages
from minikafka.records.protobuf.types import Field, Message, ProtobufError
from tests.support.protobuf_messages import EVERYTHING, PROTO2, fill, messages, runtime_class

TYPES = messages(EVERYTHING, PROTO2)
MESSAGE = TYPES.message("test.everything.Everything")
Everything = runtime_class(TYPES, MESSAGE.name)
OLD = TYPES.message("test.proto2.Old")
Old = runtime_class(TYPES, OLD.name)
LEVELS = TYPES.message("test.proto2.Levels")
Levels = runtime_class(TYPES, LEVELS.name)
CHOICES = messages(
    """
    syntax = "proto2";
    package test.choice;
    enum Level { LOW = 1; HIGH = 7; BELOW = -1; }
    message Point { optional int32 x = 1; optional int32 y = 2; }
    message Choice { optional Level level = 1; oneof kind { Level e = 2; int32 n = 3; Point point = 4; } }
    """
)
CHOICE = CHOICES.message("test.choice.Choice")
Choice = runtime_class(CHOICES, CHOICE.name)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def decode(values: list[bytes | None], message: Message = MESSAGE) -> DecodedMessages:
    column = pa.array(values, pa.binary())
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(values) + 1).astype(np.int64)
    starts = np.where(column.is_valid().to_numpy(zero_copy_only=False), offsets[:-1], -1)
    found = decode_messages(data, starts, offsets[1:].copy(), message)
    found.column.validate(full=True)
    assert found.column.type == message.arrow_type
    return found


def row(value: bytes, message: Message = MESSAGE) -> Any:
    found = decode([value], message)
    assert not len(found.bad), found.reasons
    return found.column[0].as_py()


def expected(found: Any, message: Message) -> Any:
    """Return what the runtime has read, as a row."""
    if message.name == "google.protobuf.Timestamp":
        return EPOCH + dt.timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    if message.name == "google.protobuf.Duration":
        return dt.timedelta(seconds=found.seconds, microseconds=int(found.nanos / 1000))
    return {field.name: _expected_field(found, field) for field in message.columns}


def _expected_field(found: Any, field: Field) -> Any:
    value = getattr(found, field.name)
    if field.is_map:
        return sorted(
            (_expected_value(key, field.entry[0]), _expected_value(value[key], field.entry[1]))
            for key in value
        )
    if field.is_repeated:
        return [_expected_value(item, field) for item in value]
    if field.has_presence and not found.HasField(field.name):
        return field.default
    if not field.has_presence and not value:
        return None
    return _expected_value(value, field)


def _expected_value(value: Any, field: Field) -> Any:
    if field.message is not None:
        return expected(value, field.message)
    if field.enum is not None:
        return dict(zip(field.enum.numbers, field.enum.names, strict=True))[value]
    if field.kind in ("uint32", "fixed32"):
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)
    if field.kind in ("uint64", "fixed64"):
        return (value + (1 << 63)) % (1 << 64) - (1 << 63)
    return value


def sorted_maps(value: Any, message: Message) -> Any:
    """Return a row with the entries of its maps in order."""
    if not isinstance(value, dict):
        return value
    return {field.name: _sorted_field(value[field.name], field) for field in message.columns}


def _sorted_field(value: Any, field: Field) -> Any:
    if field.is_map:
        below = field.entry[1].message
        return sorted((key, item if below is None else sorted_maps(item, below)) for key, item in value)
    if field.message is None or value is None:
        return value
    if field.is_repeated:
        return [sorted_maps(item, field.message) for item in value]
    return sorted_maps(value, field.message)


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_read_as_the_runtime_reads_them(seed: int) -> None:
    chance = random.Random(seed)
    made = [fill(Everything(), chance) for _ in range(50)]
    found = decode([message.SerializeToString() for message in made])
    assert not len(found.bad)
    rows = [sorted_maps(value, MESSAGE) for value in found.column.to_pylist()]
    assert rows == [expected(message, MESSAGE) for message in made]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_written_as_the_runtime_reads_them(seed: int) -> None:
    chance = random.Random(seed)
    values = [fill(Everything(), chance).SerializeToString() for _ in range(50)]
    column = decode(values).column
    written = encode_messages(MESSAGE, column).to_pylist()
    again = [expected(Everything.FromString(value), MESSAGE) for value in written]
    assert again == [sorted_maps(value, MESSAGE) for value in column.to_pylist()]
    assert [len(value) for value in encode_messages(MESSAGE, column.slice(7, 20)).to_pylist()] == [
        len(value) for value in written[7:27]
    ]


@pytest.mark.parametrize("seed", range(5))
def test_damaged_messages_are_bad_where_the_runtime_refuses_them(seed: int) -> None:
    chance = random.Random(seed)
    values = []
    for _ in range(200):
        # The fields of the second one replace some of the first, and are merged with others.
        value = bytearray(fill(Everything(), chance).SerializeToString())
        value += fill(Everything(), chance).SerializeToString() if chance.random() < 0.3 else b""
        for _ in range(chance.choice([0, 1, 3])):
            value[chance.randrange(len(value)) if value else 0 :][:1] = b""
            if value:
                value[chance.randrange(len(value))] = chance.randrange(256)
        values.append(
            bytes(value[: chance.randrange(len(value) + 1)]) if chance.random() < 0.3 else bytes(value)
        )
    found = decode(values)
    bad = set(found.bad.tolist())
    for number, value in enumerate(values):
        try:
            Everything.FromString(value)
        except Exception:  # noqa: BLE001
            assert number in bad, value
        else:
            assert number not in bad, (value, found.reasons)
    assert found.column.is_null().to_pylist() == [number in bad for number in range(len(values))]


def test_null_stays_null_among_others() -> None:
    found = decode([None, b"", None, Everything(an_int32=1).SerializeToString()])
    assert found.column.is_null().to_pylist() == [True, False, True, False]
    assert encode_messages(MESSAGE, found.column).to_pylist() == [None, b"", None, b"\x18\x01"]


def test_no_messages_are_an_empty_column() -> None:
    assert len(decode([]).column) == 0
    assert len(encode_messages(MESSAGE, decode([]).column)) == 0


def field_of(number: int, value: bytes) -> bytes:
    """Return a field with its value's length."""
    assert number < 16
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


@pytest.mark.parametrize("group", ["0b 00 00 0c", "0b 0a 01", "0b 14", "0c", "0b 0f 0c"])
def test_damaged_group_is_bad(group: str) -> None:
    value = bytes.fromhex(group)
    if 0 not in value:  # a number that protobuf's runtime for Java alone refuses in a group
        with pytest.raises(DecodeError):
            Everything.FromString(value)
    assert decode([value, b""]).bad.tolist() == [0]


def test_unknown_fields_and_groups_are_passed_over() -> None:
    unknown = bytes.fromhex("a0 92 f4 01 05") + bytes.fromhex("fb 3f 0b 0c 12 01 61 fc 3f")
    assert row(unknown + b"\x18\x07")["an_int32"] == 7


def test_field_of_another_wire_type_is_passed_over() -> None:
    assert row(b"\x1a\x01a\x18\x07")["an_int32"] == 7


def test_zero_of_a_field_without_presence_is_null() -> None:
    found = row(b"\x18\x00" + b"\x88\x01\x00")
    assert (found["an_int32"], found["optional_int32"]) == (None, 0)


def test_last_value_of_a_field_and_of_a_oneof_counts() -> None:
    first, last = Everything(an_int32=1, one=5), Everything(an_int32=2, other="x")
    found = row(first.SerializeToString() + last.SerializeToString())
    assert (found["an_int32"], found["one"], found["other"]) == (2, None, "x")


def test_parts_of_a_message_are_merged() -> None:
    first, last = Everything(), Everything()
    first.inner.a, first.inner.text = 1, "one"
    first.inner.many.append(1)
    last.inner.text = "two"
    last.inner.many.append(2)
    joined = first.SerializeToString() + last.SerializeToString()
    assert row(joined)["inner"] == {"a": 1, "text": "two", "many": [1, 2]}


def test_parts_before_another_member_of_the_oneof_are_not_merged() -> None:
    parts = [{"third": {"a": 1}}, {"third": {"many": [1]}}, {"other": "x"}]
    parts += [{"third": {"text": "y"}}, {"third": {"many": [2]}}]
    value = b"".join(Everything(**part).SerializeToString() for part in parts)
    assert row(value) == expected(Everything.FromString(value), MESSAGE)
    assert row(value)["third"] == {"a": None, "text": "y", "many": [2]}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x72\x01\xff" + b"\x72\x01a", "test.everything.Everything: a text, in place of which"),
        (b"\x8a\x02\x01\xff" + b"\x80\x02\x05", "test.everything.Everything: a text, in place of which"),
        (b"\x9a\x01\x03\x12\x01\xff" + b"\x9a\x01\x03\x12\x01a", "Inner: a text, in place of which"),
        (b"\x9a\x01\x01\x08" + b"\x9a\x01\x01\x01", "Inner: the bytes end inside a field"),
        (b"\x92\x02\x01\x08" + b"\x80\x02\x05", "Inner: the bytes end inside a field"),
        (b"\x92\x02\x03\x12\x01\xff" + b"\x80\x02\x05", "field text: the text is not UTF-8"),
        (b"\xba\x02\x01\x08", "test.everything.Nothing: the bytes end inside a field"),
        (b"\xf2\x01\x09\x12\x03\x12\x01\xff\x12\x02\x08\x01", "field text: the text is not UTF-8"),
    ],
    ids=[
        "text",
        "text of a oneof",
        "text of merged parts",
        "parts",
        "oneof",
        "text in a oneof",
        "no column",
        "map",
    ],
)
def test_damage_in_what_no_column_has_is_bad(value: bytes, reason: str) -> None:
    with pytest.raises(DecodeError):
        Everything.FromString(value)
    found = decode([b"", value, b"\x18\x07"])
    assert found.bad.tolist() == [1]
    assert reason in found.reasons[0]


def test_replaced_values_without_damage_are_good() -> None:
    value = b"\x72\x00\x72\x01b" + b"\x8a\x02\x02\xc3\xa9" + b"\x92\x02\x02\x08\x01" + b"\x80\x02\x05"
    assert row(value) == expected(Everything.FromString(value), MESSAGE)
    old = field_of(4, b"\x28\x01") + b"\x28\x05" + field_of(3, b"")
    assert row(old, LEVELS)["old"] is None, "it has no id, which only counts in a message that is there"


@pytest.mark.parametrize("field", ["at", "took"])
def test_a_time_of_too_many_microseconds_is_bad(field: str) -> None:
    values = [Everything(**{field: {"seconds": seconds}}) for seconds in (10**13, -(2**63), -(10**12))]
    found = decode([value.SerializeToString() for value in values])
    assert found.bad.tolist() == [0, 1]
    assert "does not fit 64 bits of microseconds" in found.reasons[0]


def test_unknown_number_of_an_enum_is_named_by_it() -> None:
    assert row(b"\x80\x01\x09")["colour"] == "UNKNOWN_ENUM_VALUE_Colour_9"


def test_text_that_is_not_utf8_is_bad() -> None:
    found = decode([b"\x72\x01a", b"\x72\x01\xff", b"\xca\x01\x00", b"\xca\x01\x02\x0a\x00"])
    assert found.bad.tolist() == [1]
    assert found.reasons == ("field a_string: the text is not UTF-8",)
    assert found.column[0].as_py()["a_string"] == "a"


def test_map_entry_without_key_or_value_has_zeros() -> None:
    assert row(b"\xea\x01\x00")["counts"] == [("", 0)]
    assert row(b"\xf2\x01\x00")["by_number"] == [(0, {"a": None, "text": None, "many": []})]


def test_parts_of_a_message_in_a_map_are_merged() -> None:
    entry = b"\x08\x07" + b"\x12\x02\x08\x01" + b"\x12\x03\x12\x01a"
    value = bytes([0xF2, 0x01, len(entry)]) + entry
    assert row(value) == expected(Everything.FromString(value), MESSAGE)
    assert row(value)["by_number"] == [(7, {"a": 1, "text": "a", "many": []})]


def test_proto2_has_defaults_and_required_fields() -> None:
    assert row(Old(id=0).SerializeToString(), OLD) == {
        "id": 0, "name": "no name", "weight": -1.5, "level": "HIGH", "numbers": [], "packed": [], "flag": None
    }  # fmt: skip
    found = decode([b"", Old(id=1).SerializeToString()], OLD)
    assert found.reasons == ("test.proto2.Old: the required field id is missing",)
    assert found.bad.tolist() == [0]


def test_required_field_with_a_default_is_required() -> None:
    found = decode([b"", Levels(title="x").SerializeToString()], LEVELS)
    assert found.reasons == ("test.proto2.Levels: the required field title is missing",)
    assert found.bad.tolist() == [0]


def test_number_unknown_to_a_closed_enum_is_absent() -> None:
    assert row(b"\x08\x01\x20\x63", OLD)["level"] == "HIGH"


@pytest.mark.parametrize(
    "value",
    [
        "0801 0863",
        "1805 1063",
        "1001 1063",
        "1063 1805",
        "1001 1063 1805",
        "0801 08ffffffffffffffffff01",
        "08ffffffff0f",
    ],
)
def test_number_unknown_to_a_closed_enum_replaces_nothing(value: str) -> None:
    assert row(bytes.fromhex(value), CHOICE) == expected(Choice.FromString(bytes.fromhex(value)), CHOICE)


def test_number_unknown_to_a_closed_enum_ends_no_message() -> None:
    value = b"\x22\x02\x08\x01" + b"\x22\x02\x10\x02" + b"\x10\x63"
    assert row(value, CHOICE) == expected(Choice.FromString(value), CHOICE)
    assert row(value, CHOICE)["point"] == {"x": 1, "y": 2}


def test_list_is_without_the_numbers_unknown_to_a_closed_enum() -> None:
    title = field_of(3, b"")
    known = Levels(levels=[1, 7], title="").SerializeToString()
    some = b"\x08\x63\x08\x07" + field_of(1, b"\x01\x63\x07\x63") + title
    none = b"\x08\x63" + title
    for value in (known, some, none):
        assert row(value, LEVELS) == expected(Levels.FromString(value), LEVELS)
    assert [value["levels"] for value in decode([known, none, some], LEVELS).column.to_pylist()] == [
        ["LOW", "HIGH"], [], ["HIGH", "LOW", "HIGH"]
    ]  # fmt: skip


def test_map_has_zero_for_a_number_unknown_to_a_closed_enum() -> None:
    entries = [b"\x0a\x01a\x10\x63", b"\x0a\x01b\x10\x01", b"\x0a\x01c"]
    value = b"".join(field_of(2, entry) for entry in entries) + field_of(3, b"")
    assert row(value, LEVELS)["by_name"] == [("a", "SMALL"), ("b", "LARGE"), ("c", "SMALL")]


def test_map_entry_with_unknown_fields_is_kept() -> None:
    assert row(b"\xea\x01\x07\x0a\x01a\x10\x05\x18\x09")["counts"] == [("a", 5)]


def test_negative_durations_and_early_timestamps_are_written() -> None:
    took = pa.StructArray.from_arrays(
        [pa.array([-1_500_000], pa.duration("us")), pa.array([-1_500_000], pa.timestamp("us", tz="UTC"))],
        ["took", "at"],
    )
    found = Everything.FromString(encode_messages(MESSAGE, took)[0].as_py())
    assert (found.took.seconds, found.took.nanos) == (-1, -500_000_000)
    assert (found.at.seconds, found.at.nanos) == (-2, 500_000_000)


def test_columns_are_found_by_name_in_any_case_and_order() -> None:
    rows = pa.array([{"A_STRING": "x", "an_int32": 3}])
    assert encode_messages(MESSAGE, rows).to_pylist() == [b"\x18\x03\x72\x01x"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"colour": "GREEN"}, "the enum of the field test.everything.Everything.colour has no value 'GREEN'"),
        ({"texts": ["a", None]}, "the repeated field test.everything.Everything.texts has a null element"),
        ({"an_int32": 1 << 40}, "the field test.everything.Everything.an_int32, of type int32, cannot have"),
    ],
)
def test_value_that_no_message_can_have_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtobufError, match=reason):
        encode_messages(MESSAGE, pa.array([value]))


def test_field_that_exceeds_the_largest_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_OUTPUT_MAX", 10)
    column = pa.array([{"a_string": "abc"}, {"a_string": "abcd"}])
    assert encode_messages(MESSAGE, column.slice(0, 1)).to_pylist() == [b"\x72\x03abc"]
    with pytest.raises(ProtobufError, match="a field of 2 values exceeds 2 GiB: write fewer rows at a time"):
        encode_messages(MESSAGE, column)


def test_null_of_a_required_field_is_refused() -> None:
    with pytest.raises(ProtobufError, match=r"the required field test.proto2.Old.id is null"):
        encode_messages(
            OLD,
            pa.array([{"id": None, "name": "x"}, None], pa.struct({"id": pa.int32(), "name": pa.string()})),
        )


def test_map_with_a_null_value_is_refused() -> None:
    kind = pa.struct([pa.field("counts", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(ProtobufError, match="has a null key or value"):
        encode_messages(MESSAGE, pa.array([{"counts": [("a", None)]}], kind))


def test_hidden_items_of_null_lists_are_not_written() -> None:
    items = pa.ListArray.from_arrays(
        pa.array([0, 2, 4]), pa.array([1, 2, 3, 4], pa.int32()), mask=pa.array([True, False])
    )
    written = encode_messages(MESSAGE, pa.StructArray.from_arrays([items], ["packed"]))
    assert [list(Everything.FromString(value).packed) for value in written.to_pylist()] == [[], [3, 4]]
