"""Options of the formats of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from minikafka.base.config.config_def import ConfigDef, ConfigKey, Faults
from minikafka.base.config.types import choice, one_of
from minikafka.base.errors import ConfigErrors
from pyspark_minikafka.formats import bad_values
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.formats.value_format import ValueFormat

SIDES = ("key", "value")


@dataclass(frozen=True, slots=True)
class SideOptions:
    """The options of the keys, or of the values. side: ``key`` or ``value``."""

    side: str
    format: str


def _binary(options: SideOptions) -> ValueFormat | None:
    return None


def _string(options: SideOptions) -> ValueFormat:
    from pyspark_minikafka.formats.string_format import StringFormat

    return StringFormat()


_FORMATS: Mapping[str, Callable[[SideOptions], ValueFormat | None]] = {"binary": _binary, "string": _string}
"""The formats by name, with the functions that make them. They raise ConfigError for options at fault."""


def _definition(side: str) -> ConfigDef:
    return ConfigDef(
        [
            ConfigKey(
                f"minikafka.{side}.format",
                one_of(*_FORMATS),
                "binary",
                f"The format of {side}s: `binary`, the bytes as they are, or `string`, text in UTF-8.",
                "format",
            )
        ]
    )


_DEFINITIONS = {side: _definition(side) for side in SIDES}
OPTIONS = tuple(key for side in SIDES for key in _DEFINITIONS[side].keys.values())
"""Options of reads and writes."""
BAD_VALUES = ConfigKey(
    bad_values.OPTION,
    choice({way.value: way for way in BadValues}),
    "failfast",
    "What becomes of a key or value that is read and is not in its format: `failfast` ends the query; "
    "`permissive` reads null, with the bytes and the reason in the column `key_error` or `value_error`.",
)
"""An option of reads."""


def format_options(options: Mapping[str, str]) -> QueryFormats:
    """Return the formats of a query, by its options, whose keys are in lower case. Raise ConfigErrors."""
    faults = Faults()
    made = {side: faults.attempt(partial(_side, options, side), None) for side in SIDES}
    given = options.get(BAD_VALUES.name, BAD_VALUES.default)
    bad = faults.attempt(partial(BAD_VALUES.type.parse, BAD_VALUES.name, given), BadValues.FAILFAST)
    faults.check(options)
    return QueryFormats(made["key"], made["value"], bad)


def _side(options: Mapping[str, str], side: str) -> ValueFormat | None:
    values, faults = _DEFINITIONS[side].read(options)
    if faults:
        raise ConfigErrors(faults)
    found = SideOptions(side, **values)
    return _FORMATS[found.format](found)
