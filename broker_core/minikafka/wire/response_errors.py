"""The error codes in a response, of any API.

They are the fields named ``error_code``, or that end so, wherever they are in the message. A function that
looks them up is generated for each class of messages (see ``codegen``), as every response passes it. This is
that of Produce, without the arrays that have none::

    def error_codes(message):
        found = []
        for message1 in message.topics or ():
            for message2 in message1.partitions or ():
                if message2.error_code:
                    found.append(message2.error_code)
        return found
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from minikafka.wire.codegen import FunctionBuilder
from minikafka.wire.fields import ArrayOf
from minikafka.wire.schema import Struct, fields_of

_SUFFIX = "error_code"


def error_codes(response: Any) -> list[int]:
    """Return the error codes in a response, without 0, in their order and with repetitions."""
    cls: Any = type(response)
    return _function(cls)(response)


@cache
def _function(cls: Any) -> Callable[[Any], list[int]]:
    code = FunctionBuilder()
    with code.block("def error_codes(message):"):
        code.line("found = []")
        _append(code, cls, "message")
        code.line("return found")
    return code.function("error_codes", f"error codes of {cls.__name__}")


def _append(code: FunctionBuilder, cls: Any, name: str) -> None:
    """Append code that finds the errors of the message that a variable holds."""
    for field in dict.fromkeys(row.name for row in fields_of(cls) if row.name.endswith(_SUFFIX)):
        with code.block(f"if {name}.{field}:"):
            code.line(f"found.append({name}.{field})")
    for field, inner, is_array in _structs(cls):
        if not _has_errors(inner):
            continue
        variable = f"message{code.fresh()}"
        if is_array:
            with code.block(f"for {variable} in {name}.{field} or ():"):
                _append(code, inner, variable)
        else:
            code.line(f"{variable} = {name}.{field}")
            with code.block(f"if {variable} is not None:"):
                _append(code, inner, variable)


def _structs(cls: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield each field that holds messages, their class, and True if it is an array."""
    for row in fields_of(cls):
        type_ = row.type.element if isinstance(row.type, ArrayOf) else row.type
        if isinstance(type_, Struct):
            yield row.name, type_.cls, isinstance(row.type, ArrayOf)


def _has_errors(cls: Any) -> bool:
    own = any(row.name.endswith(_SUFFIX) for row in fields_of(cls))
    return own or any(_has_errors(inner) for _, inner, _ in _structs(cls))
