"""The error codes in a response, of any API.

They are the fields named ``error_code``, or that end so, wherever they are in the message. The look-up for a
class of messages is put together once, from its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minikafka.wire.fields import ArrayOf
from minikafka.wire.schema import Struct, fields_of

_SUFFIX = "error_code"
_Collect = Callable[[Any, list[int]], None]


def error_codes(response: Any) -> list[int]:
    """Return the error codes in a response, without 0, in their order and with repetitions."""
    found: list[int] = []
    cls: Any = type(response)
    collect = _collector(cls)
    if collect is not None:
        collect(response, found)
    return found


@cache
def _collector(cls: Any) -> _Collect | None:
    """Return what appends the error codes of a message to a list; None if the message cannot have any."""
    codes: dict[str, None] = {}
    inner: dict[str, _Collect] = {}
    for row in fields_of(cls):
        if row.name.endswith(_SUFFIX):
            codes[row.name] = None
            continue
        is_array = isinstance(row.type, ArrayOf)
        type_ = row.type.element if isinstance(row.type, ArrayOf) else row.type
        inner_cls: Any = type_.cls if isinstance(type_, Struct) else None
        collect = None if inner_cls is None else _collector(inner_cls)
        if collect is not None:
            inner[row.name] = _of_each(collect) if is_array else collect
    if not codes and not inner:
        return None
    return _together(tuple(codes), tuple(inner.items()))


def _of_each(collect: _Collect) -> _Collect:
    def collect_each(messages: Any, found: list[int]) -> None:
        for message in messages:
            collect(message, found)

    return collect_each


def _together(codes: tuple[str, ...], inner: tuple[tuple[str, _Collect], ...]) -> _Collect:
    def collect(message: Any, found: list[int]) -> None:
        for name in codes:
            code = getattr(message, name)
            if code:
                found.append(code)
        for name, collect_inner in inner:
            value = getattr(message, name)
            if value:
                collect_inner(value, found)

    return collect
