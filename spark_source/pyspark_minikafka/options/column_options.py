"""Options of the columns of a read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from minikafka.base.config.config_def import ConfigKey
from minikafka.base.config.types import BOOLEAN, TEXT, text_type
from minikafka.base.config.unknown_names import closest_match, did_you_mean
from pyspark_minikafka.formats import bad_values
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.query_formats import SIDES, QueryFormats
from pyspark_minikafka.schema import COLUMNS as COLUMNS_NAME
from pyspark_minikafka.schema import SCHEMA_WITH_HEADERS, SOURCE_SCHEMA

HEADERS = ConfigKey("includeHeaders", BOOLEAN, False, "Whether the column `headers` is there.")
COLUMNS = ConfigKey(
    COLUMNS_NAME,
    TEXT,
    None,
    "The columns of the read, in this order, such as `value,offset`; others are neither decoded nor sent to "
    "Spark. By default all of them, and `headers` with `includeHeaders`.",
)


def has_headers(options: Mapping[str, str]) -> bool:
    """Return the value of ``includeHeaders``. Raise ConfigError."""
    found: bool = HEADERS.type.parse(HEADERS.name, options.get(HEADERS.name.lower(), HEADERS.default))
    return found


def all_columns(formats: QueryFormats, *, headers: bool) -> tuple[str, ...]:
    """Return the columns of a read that selects none."""
    return tuple(formats.schema(SCHEMA_WITH_HEADERS if headers else SOURCE_SCHEMA).names)


def selected_columns(text: str, formats: QueryFormats) -> tuple[str, ...]:
    """Return the columns that the option names, in its order and with the names that they have.

    Raise ValueError if it names none, one that does not exist, or one twice. Names may be in any case, as in
    Spark's SQL.
    """
    known = {name.lower(): name for name in all_columns(formats, headers=True)}
    expected = f"expected some of {', '.join(known.values())}"
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"must name columns, separated by commas; {expected}")
    for name in names:
        if name.lower() not in known:
            side = name.lower().removesuffix("_error")
            if side in SIDES:
                with_options = f"minikafka.{side}.format and {bad_values.OPTION}={BadValues.PERMISSIVE.value}"
                raise ValueError(f"{side}_error is there only with {with_options}")
            meant = closest_match(name.lower(), known, 0.6)
            raise ValueError(f"unknown column {name}{did_you_mean(meant and known[meant])}; {expected}")
    found = tuple(known[name.lower()] for name in names)
    for name in found:
        if found.count(name) > 1:
            raise ValueError(f"column {name} appears twice; name each column once")
    return found


def read_columns(options: Mapping[str, str], formats: QueryFormats) -> tuple[str, ...]:
    """Return the columns of a read, in order. Raise ConfigError. Keys of ``options`` are in lower case."""
    headers = has_headers(options)
    if COLUMNS.name not in options:
        return all_columns(formats, headers=headers)
    selection = text_type("columns", partial(selected_columns, formats=formats))
    found: tuple[str, ...] = selection.parse(COLUMNS.name, options[COLUMNS.name])
    return found


def column_warnings(options: Mapping[str, str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if ``includeHeaders`` and the selected columns disagree."""
    if COLUMNS.name not in options or HEADERS.name.lower() not in options:
        return ()
    named = "headers" in columns
    if has_headers(options) == named:
        return ()
    verb = "names" if named else "does not name"
    return (f"{HEADERS.name} has no effect: {COLUMNS.name} {verb} headers",)
