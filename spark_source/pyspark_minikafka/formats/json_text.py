"""Columns as JSON texts, as Spark's ``to_json`` writes them, by whole columns.

A field that is null is left out; in an array or map it is ``null``. Times have milliseconds and the offset of
the session's time zone, bytes are base64. Numbers are the same and may be written differently: ``1e+20``.
"""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_COMMA, _NOTHING = pa.scalar(","), pa.scalar("")
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


def texts(column: pa.Array) -> pa.StringArray:
    """Return the JSON text of each element; null for null."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _where_valid(column, _struct(column))
    if pa.types.is_map(kind):
        return _where_valid(column, _map(column))
    if pa.types.is_list(kind):
        return _where_valid(column, _list(column))
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _join('"', _times(column), '"')
    if pa.types.is_date(kind):
        return _join('"', column.cast(pa.string()), '"')
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _join('"', _base64(column), '"')
    return _join('"', _escaped(column.cast(pa.string())), '"')


def _join(*parts: str | pa.Array) -> pa.StringArray:
    """Return the parts of each element one after another; null if one is null."""
    return pc.binary_join_element_wise(
        *(pa.scalar(part) if isinstance(part, str) else part for part in parts), _NOTHING
    )


def _where_valid(column: pa.Array, found: pa.StringArray) -> pa.StringArray:
    return pc.if_else(column.is_valid(), found, None) if column.null_count else found


def _name(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) + ":"


def _struct(column: pa.StructArray) -> pa.StringArray:
    fields = [
        _join("," + _name(field.name), texts(column.field(number)))
        for number, field in enumerate(column.type)
    ]
    if not fields:
        return pa.repeat("{}", len(column))
    # Not with commas as separators and nulls skipped: Arrow then leaves out elements of nulls alone.
    joined = pc.binary_join_element_wise(
        pa.scalar("{"), *fields, pa.scalar("}"), _NOTHING, null_handling="replace", null_replacement=""
    )
    return pc.replace_substring(joined, "{,", "{", max_replacements=1)


def _list(column: pa.ListArray) -> pa.StringArray:
    offsets, start, size = _extent(column)
    return _join("[", _joined(offsets, texts(column.values.slice(start, size)).fill_null("null")), "]")


def _map(column: pa.MapArray) -> pa.StringArray:
    offsets, start, size = _extent(column)
    values = texts(column.items.slice(start, size)).fill_null("null")
    entries = _join(texts(column.keys.slice(start, size)), ":", values)
    return _join("{", _joined(offsets, entries), "}")


def _extent(column: pa.ListArray | pa.MapArray) -> tuple[pa.Int32Array, int, int]:
    """Return the offsets from 0 on, and the first element and the number of elements."""
    offsets = np.asarray(column.offsets)
    return pa.array(offsets - offsets[0]), int(offsets[0]), int(offsets[-1] - offsets[0])


def _joined(offsets: pa.Int32Array, elements: pa.StringArray) -> pa.StringArray:
    return pc.binary_join(pa.ListArray.from_arrays(offsets, elements), _COMMA)


def _floats(column: pa.FloatingPointArray) -> pa.StringArray:
    """Return numbers as Java shows that they are no whole ones; what JSON has no number for is text."""
    found = column.cast(pa.string())
    found = pc.if_else(pc.match_substring_regex(found, "^-?[0-9]+$"), _join(found, ".0"), found)
    if not pc.all(pc.is_finite(column)).as_py():
        for text, name in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
            found = pc.if_else(pc.equal(found, text), name, found)
    return found


def _times(column: pa.TimestampArray) -> pa.StringArray:
    zone = column.type.tz
    # Without the zone: Arrow rounds local times, and fails at those that a day has twice.
    moments = column.cast(pa.timestamp("us"))
    milliseconds = pc.floor_temporal(moments, unit="millisecond").cast(pa.timestamp("ms"))
    if zone is not None and zone not in _UTC_NAMES:
        found = pc.strftime(milliseconds.cast(pa.timestamp("ms", zone)), "%Y-%m-%dT%H:%M:%S%Ez")
        return pc.replace_substring_regex(found, r"\+00:00$", "Z")
    found = pc.replace_substring(milliseconds.cast(pa.string()), " ", "T")
    return found if zone is None else _join(found, "Z")


def _base64(column: pa.Array) -> pa.StringArray:
    values = (None if value is None else base64.b64encode(value) for value in column.to_pylist())
    return pa.array(values, pa.binary()).cast(pa.string())


def _escaped(column: pa.StringArray) -> pa.StringArray:
    """Return texts with JSON's escapes. Most columns need none, and are only looked through."""
    _, ends, data = column.buffers()
    if data is None:
        return column
    offsets = np.frombuffer(ends, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]
    for letter in (0x5C, 0x22):  # the backslash first: the other escapes have one
        if (letters == letter).any():
            column = pc.replace_substring(column, chr(letter), "\\" + chr(letter))
    if (letters < 0x20).any():
        for letter in np.unique(letters[letters < 0x20]).tolist():
            column = pc.replace_substring(column, chr(letter), json.dumps(chr(letter))[1:-1])
    return column
