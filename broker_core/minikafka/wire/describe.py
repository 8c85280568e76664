"""The table of APIs, versions and fields as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from minikafka.wire.api import Api
from minikafka.wire.api_table import APIS
from minikafka.wire.schema import ArrayOf, Field, Struct, Type


def describe(apis: Iterable[Api[Any, Any]] | None = None) -> str:
    """Every field of every version of ``apis`` (all of them by default), in the order of the wire."""
    chosen = APIS.values() if apis is None else apis
    return "\n\n".join("\n".join(_api_lines(api)) for api in chosen)


def _api_lines(api: Api[Any, Any]) -> Iterator[str]:
    versions = f"version {api.min_version}"
    if api.max_version > api.min_version:
        versions = f"versions {api.min_version} to {api.max_version}"
    yield f"{api.name} (key {int(api.key)}), {versions}"
    for title, message in (("request", api.request), ("response", api.response)):
        yield f"  {title}" if message.fields else f"  {title}: nothing"
        yield from _struct_lines(message, "    ")


def _struct_lines(message: Struct[Any], indent: str) -> Iterator[str]:
    for row in message.fields:
        note = f"  # {row.note}" if row.note else ""
        yield f"{indent}{row.name}: {_type_name(row.type)}{_versions(row)}{note}"
        inner = row.type.element if isinstance(row.type, ArrayOf) else row.type
        if isinstance(inner, Struct):
            yield from _struct_lines(inner, indent + "  ")


def _type_name(type_: Type) -> str:
    if isinstance(type_, ArrayOf) and isinstance(type_.element, Struct):
        return "array of"
    return type_.name


def _versions(row: Field) -> str:
    if row.since and row.until is not None:
        return f", versions {row.since} to {row.until}"
    if row.since:
        return f", since version {row.since}"
    return "" if row.until is None else f", until version {row.until}"
