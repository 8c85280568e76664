"""JSON values one by one, as Spark's ``from_json`` reads them: the way for what the kernel refuses.

Numbers keep their text until their type is known, so no digit is lost.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import re
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from pyspark_minikafka.formats.string_format import text_of

Convert = Callable[[Any], Any]

_INTEGERS: Mapping[type[DataType], int] = {
    types.ByteType: 8,
    types.ShortType: 16,
    types.IntegerType: 32,
    types.LongType: 64,
}
"""The types of whole numbers, with their bits."""
_NO_NUMBERS = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "-Infinity": "-inf",
    "INF": "inf",
    "+INF": "inf",
    "-INF": "-inf",
}
"""Texts that stand for values that JSON has no number for."""
_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_DATE_TEXT = re.compile(_DATE + r"(?:[T ].*)?)?)?", re.ASCII)
_TIME_TEXT = re.compile(
    _DATE + r"(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s?(.*?))?)?)?", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_ZONE_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS = 146_097
_MICROSECONDS = 1_000_000


class _Number(str):
    """The text of a number."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def json_reader(data_type: DataType) -> Callable[[bytes], Any]:
    """Return the function that reads one value; it raises ValueError with the reason for a bad one.

    Its result is what ``pyarrow.array`` takes for ``data_type``.
    """
    convert = _converter(data_type, "")

    def read(value: bytes) -> Any:
        try:
            found, _ = _DECODER.raw_decode(text_of(value).lstrip(" \t\r\n"))
            return convert(found)
        except json.JSONDecodeError as problem:
            raise ValueError(f"no JSON: {problem.msg} at character {problem.pos + 1}") from None
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None

    return read


def _converter(data_type: DataType, path: str) -> Convert:
    """Return the function that converts what the JSON parser gives for ``path``; null stays null."""
    convert = _present(data_type, path)
    return lambda value: None if value is None else convert(value)


def _present(data_type: DataType, path: str) -> Convert:
    name = data_type.simpleString()
    bits = _INTEGERS.get(type(data_type))
    if isinstance(data_type, StructType):
        return _struct(data_type, path)
    if isinstance(data_type, ArrayType):
        return _array(data_type, path)
    if isinstance(data_type, MapType):
        return _map(data_type, path)
    if bits is not None:
        return _checked(path, name, lambda value: _integer(value, bits))
    if isinstance(data_type, DecimalType):
        return _checked(path, name, lambda value: _decimal(value, data_type))
    return _checked(path, name, _LEAVES[type(data_type)])


def _checked(path: str, name: str, convert: Convert) -> Convert:
    """Return ``convert`` with errors that name the field, its type and the value."""

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, ArithmeticError):
            raise ValueError(f"{path or 'the value'} is no {name}: {_shown(value)}") from None

    return checked


def _shown(value: object) -> str:
    text = value if isinstance(value, _Number) else _text_of(value)
    return text if len(text) <= 40 else text[:40] + "…"


def _struct(data_type: StructType, path: str) -> Convert:
    fields = {f.name: _converter(f.dataType, f"{path}.{f.name}" if path else f.name) for f in data_type}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{path or 'the value'} is no object: {_shown(value)}")
        return {name: field(value.get(name)) for name, field in fields.items()}

    return convert


def _array(data_type: ArrayType, path: str) -> Convert:
    element = _converter(data_type.elementType, f"{path}[]")

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{path or 'the value'} is no array: {_shown(value)}")
        return [element(item) for item in value]

    return convert


def _map(data_type: MapType, path: str) -> Convert:
    element = _converter(data_type.valueType, f"{path}{{}}")

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{path or 'the value'} is no object: {_shown(value)}")
        return [(_string(key), element(item)) for key, item in value.items()]

    return convert


def _integer(value: Any, bits: int) -> int:
    return _within(_whole(value), bits)


def _within(number: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError
    return number


def _whole(value: Any) -> int:
    if not isinstance(value, _Number) or len(value) > 20:
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return float(_NO_NUMBERS[value])
    if not isinstance(value, _Number):
        raise ValueError
    return float(value)


def _decimal(value: Any, data_type: DecimalType) -> decimal.Decimal:
    if not isinstance(value, str) or not _DECIMAL_TEXT.fullmatch(value):
        raise ValueError
    with decimal.localcontext(decimal.Context(prec=data_type.precision)):
        return decimal.Decimal(value).quantize(
            decimal.Decimal(1).scaleb(-data_type.scale), rounding=decimal.ROUND_HALF_UP
        )


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _string(value: Any) -> str:
    text = value if isinstance(value, str) else _text_of(value)
    if not text.isascii():
        text.encode()  # half a surrogate pair is no text
    return str(text)


def _text_of(value: object) -> str:
    """Return ``value`` as compact JSON, with numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text_of(key)}:{_text_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _binary(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise ValueError
    return value


def _days(year: str, month: str | None, day: str | None) -> int:
    """Return the days since the epoch."""
    # Python has no year 0, and the calendar is the same 400 years later.
    number = datetime.date(int(year) or 400, int(month or 1), int(day or 1)).toordinal() - _EPOCH_DAY
    return number if int(year) else number - _DAYS_OF_400_YEARS


def _date(value: Any) -> int:
    found = _DATE_TEXT.fullmatch(_text(value).strip())
    if found is None:
        raise ValueError
    return _days(found[1], found[2], found[3])


def _moment(value: Any) -> tuple[int, str]:
    """Return the local time in microseconds, and the zone."""
    found = _TIME_TEXT.fullmatch(_text(value).strip())
    if found is None:
        raise ValueError
    hour, minute, second = (int(part or 0) for part in found.groups()[3:6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError
    seconds = ((_days(found[1], found[2], found[3]) * 24 + hour) * 60 + minute) * 60 + second
    return seconds * _MICROSECONDS + int((found[7] or "")[:6].ljust(6, "0")), found[8] or ""


def _timestamp(value: Any) -> int:
    """Return microseconds: of a text in UTC if it names no zone, of a number in seconds."""
    if isinstance(value, _Number):
        return _within(_whole(value) * _MICROSECONDS, 64)
    local, zone = _moment(value)
    return local - _offset_s(zone, local) * _MICROSECONDS


def _timestamp_ntz(value: Any) -> int:
    local, zone = _moment(value)
    if zone:
        raise ValueError
    return local


def _offset_s(zone: str, local: int) -> int:
    """Return the seconds by which ``zone`` is ahead of UTC at a local time."""
    if zone in ("", "Z", "UTC", "GMT", "UT"):
        return 0
    found = _ZONE_OFFSET.fullmatch(zone)
    if found is None:
        return _offset_of_region_s(zone, local)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    offset = (hours * 60 + minutes) * 60 + seconds
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    return -offset if found[1] == "-" else offset


def _offset_of_region_s(zone: str, local: int) -> int:
    try:
        region = zoneinfo.ZoneInfo(zone)
    except (OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError from None
    epoch = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # local times, whose offset is looked for
    offset = (epoch + datetime.timedelta(microseconds=local)).replace(tzinfo=region).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


_LEAVES: Mapping[type[DataType], Convert] = {
    types.BooleanType: _boolean,
    types.FloatType: _float,
    types.DoubleType: _float,
    types.StringType: _string,
    types.BinaryType: _binary,
    types.DateType: _date,
    types.TimestampType: _timestamp,
    types.TimestampNTZType: _timestamp_ntz,
}
"""The conversions of types without parameters."""
