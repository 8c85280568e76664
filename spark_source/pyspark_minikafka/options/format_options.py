"""Options of the formats of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from minikafka.base.config.config_def import ConfigDef, ConfigKey, Faults
from minikafka.base.config.types import TEXT, choice, one_of
from minikafka.base.errors import ConfigError, ConfigErrors
from pyspark_minikafka.formats import bad_values
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.query_formats import SIDES, QueryFormats
from pyspark_minikafka.formats.value_format import ValueFormat
from pyspark_minikafka.options import registry_options
from pyspark_minikafka.strategy import topic_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from pyspark_minikafka.formats.schema_registry import RegistryAccess

_WITH_SCHEMA = ("json", "avro", "protobuf")
"""The formats that have schemas, which a registry can have too."""
_SCHEMA_BYTES_MAX = 10_000_000
_PROTOBUF = "a descriptor set of protoc --include_imports --descriptor_set_out, or a .proto file"


def _any_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


@dataclass(frozen=True, slots=True)
class SideOptions:
    """The options of the keys, or of the values. side: ``key`` or ``value``.

    schema: its text. schema_file: the absolute path of a file with it. message: the name of protobuf's
    message. registry: None if no option names one. column: the type that Spark has fixed for the column of a
    read; None before it has.
    """

    side: str
    format: str
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    registry: RegistryAccess | None = None
    column: DataType | None = None

    def name(self, option: str) -> str:
        """Return the full name of an option of this side."""
        return f"minikafka.{self.side}.{option}"

    def schema_bytes(self, expected: str) -> bytes | None:
        """Return the schema, of whichever option has it; None if none is given. Raise ConfigError for both,
        or for a file that cannot be read. ``expected`` describes the file.
        """
        if self.schema_file is None:
            return None if self.schema is None else self.schema.encode()
        name = self.name("schema.file")
        if self.schema is not None:
            raise ConfigError(name, self.schema_file, f"set either it or {self.name('schema')}, not both")
        try:
            with open(self.schema_file, "rb") as file:
                found = file.read(_SCHEMA_BYTES_MAX + 1)
        except OSError as problem:
            allowed = f"must be a file with {expected}: {problem.strerror or problem}"
            raise ConfigError(name, self.schema_file, allowed) from None
        if len(found) > _SCHEMA_BYTES_MAX:
            raise ConfigError(name, self.schema_file, f"has more than {_SCHEMA_BYTES_MAX:,} bytes")
        return found

    def schema_text(self, expected: str) -> str | None:
        """Return the schema as text. Raise as ``schema_bytes``, and ConfigError for one that is no text."""
        content = self.schema_bytes(expected)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise self.bad_schema(f"must be {expected}: it is not text in UTF-8") from None

    def bad_schema(self, reason: str) -> ConfigError:
        """Return the error of a schema that cannot be used."""
        if self.schema_file is not None:
            return ConfigError(self.name("schema.file"), self.schema_file, reason)
        return ConfigError(self.name("schema"), self.schema, reason)

    def unusable_schema(self, problem: Exception) -> ConfigError:
        """Return the error of a registry's schema that cannot be used."""
        return self.bad_schema(f"must be given, as that of the registry cannot be used: {problem}")

    def refuse_schema(self) -> None:
        """Raise ConfigError if a schema is given for a format that has none."""
        if self.schema is not None or self.schema_file is not None:
            reason = f"{self._no_meaning}; set the format of the schema: {_any_of(_WITH_SCHEMA)}"
            raise self.bad_schema(reason)

    def refuse_message(self) -> None:
        """Raise ConfigError if a message is named for a format that is not protobuf."""
        if self.message is not None:
            raise ConfigError(self.name("message"), self.message, self._no_meaning)

    @property
    def _no_meaning(self) -> str:
        return f"has no meaning with {self.name('format')}={self.format}"


_Make = Callable[[SideOptions, bool], "ValueFormat | None"]
"""Makes a format of its options, for a read or (True) a write. Raises ConfigError for options at fault."""


def _binary(options: SideOptions, sink: bool) -> ValueFormat | None:
    options.refuse_schema()
    return None


def _string(options: SideOptions, sink: bool) -> ValueFormat:
    from pyspark_minikafka.formats.string_format import StringFormat

    options.refuse_schema()
    return StringFormat()


def _json(options: SideOptions, sink: bool) -> ValueFormat:
    from pyspark_minikafka.formats.json_format import JsonFormat
    from pyspark_minikafka.formats.spark_schema import EXPECTED, BadSchema, parse_schema

    text, found = options.schema_text(EXPECTED), None
    if text is not None:
        try:
            found = JsonFormat(parse_schema(text))
        except BadSchema as problem:
            raise options.bad_schema(f"must be {EXPECTED}: {problem}") from None
    if options.registry is not None:
        from pyspark_minikafka.formats.registered_json import registered_json

        try:
            return registered_json(found, options.registry, sink=sink, column=options.column)
        except BadSchema as problem:
            raise options.unusable_schema(problem) from None
    if found is None and not sink:
        raise options.bad_schema(f"must be given with {options.name('format')}=json: {EXPECTED}")
    return found or JsonFormat(None)


def _protobuf(options: SideOptions, sink: bool) -> ValueFormat:
    from minikafka.records.protobuf import ProtobufError, check_installed
    from pyspark_minikafka.formats.protobuf_format import SeveralMessages, protobuf_format

    check_installed()
    content = options.schema_bytes(_PROTOBUF)
    if content is None and options.registry is None:
        allowed = (
            f"must be given with {options.name('format')}=protobuf, or {registry_options.URL}: {_PROTOBUF}"
        )
        raise ConfigError(options.name("schema.file"), None, allowed)
    try:
        return protobuf_format(content, options.message, options.registry, sink=sink, column=options.column)
    except SeveralMessages as problem:
        raise options.bad_schema(f"{problem} with {options.name('message')}") from None
    except ProtobufError as problem:
        if options.message is None and content is not None:
            raise options.bad_schema(str(problem)) from None
        raise ConfigError(options.name("message"), options.message, str(problem)) from None


def _avro(options: SideOptions, sink: bool) -> ValueFormat:
    from minikafka.records.avro import AvroError
    from pyspark_minikafka.formats.avro_format import EXPECTED, AvroFormat, AvroSchema

    text, found = options.schema_text(EXPECTED), None
    if text is not None:
        try:
            found = AvroSchema.parsed(text)
        except AvroError as problem:
            raise options.bad_schema(f"must be {EXPECTED}: {problem}") from None
    if options.registry is not None:
        from pyspark_minikafka.formats.registered_avro import registered_avro

        try:
            return registered_avro(found, options.registry, sink=sink, column=options.column)
        except AvroError as problem:
            raise options.unusable_schema(problem) from None
    if found is None and not sink:
        raise options.bad_schema(f"must be given with {options.name('format')}=avro: {EXPECTED}")
    return AvroFormat(found)


_FORMATS: Mapping[str, _Make] = {
    "binary": _binary,
    "string": _string,
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}
"""The formats by name."""


def _definition(side: str) -> ConfigDef:
    return ConfigDef(
        [
            ConfigKey(
                f"minikafka.{side}.format",
                one_of(*_FORMATS),
                "binary",
                f"The format of {side}s: `binary`, bytes as they are, `string`, text in UTF-8, `json`, "
                "`avro` or `protobuf`.",
                "format",
            ),
            ConfigKey(
                f"minikafka.{side}.schema",
                TEXT,
                None,
                f"The schema of {side}s: of JSON in Spark's DDL, such as `id BIGINT, tags ARRAY<STRING>`, or "
                "in Spark's JSON; of Avro its JSON; of protobuf the text of a .proto file. A write of JSON "
                "or Avro needs none.",
                "schema",
            ),
            ConfigKey(
                f"minikafka.{side}.schema.file",
                TEXT,
                None,
                "A file on the driver with the schema; for protobuf also a descriptor set (`protoc "
                "--include_imports --descriptor_set_out`).",
                "schema_file",
            ),
            ConfigKey(
                f"minikafka.{side}.message",
                TEXT,
                None,
                "The full name of the protobuf message; by default the first one of the registry's schema, "
                "or the only one of the descriptors.",
                "message",
            ),
        ]
    )


_DEFINITIONS = {side: _definition(side) for side in SIDES}
OPTIONS = (*(key for side in SIDES for key in _DEFINITIONS[side].keys.values()), *registry_options.OPTIONS)
"""Options of reads and writes."""
_BAD_VALUES = ConfigKey(
    bad_values.OPTION,
    choice({way.value: way for way in BadValues}),
    "failfast",
    "What becomes of a key or value that is read and is not in its format: `failfast` ends the query; "
    "`permissive` reads null, with the bytes and the reason in the column `key_error` or `value_error`; "
    "`dead-letter` leaves the row out and sends the record to another topic.",
)
_DEAD_LETTER_TOPIC = ConfigKey(
    bad_values.DEAD_LETTER_TOPIC,
    TEXT,
    None,
    "The topic of records whose key or value is not in its format, for `minikafka.bad.values=dead-letter`.",
)
READ_OPTIONS = (_BAD_VALUES, _DEAD_LETTER_TOPIC)
"""Options of reads."""


def format_options(
    options: Mapping[str, str],
    absolute: Callable[[str, str], str],
    *,
    sink: bool = False,
    schema: StructType | None = None,
) -> QueryFormats:
    """Return the formats of a query, by its options, whose keys are in lower case. Raise ConfigErrors.

    absolute: returns the absolute path for the path in an option, by the option's name. schema: the columns
    of a read that Spark has fixed; None for a write, and before ``load()`` has returned.
    """
    faults = Faults()
    columns = {} if schema is None else {field.name: field.dataType for field in schema.fields}
    made = {
        side: faults.attempt(partial(_side, options, side, absolute, sink, columns.get(side)), None)
        for side in SIDES
    }
    formats = {options.get(f"minikafka.{side}.format", "").strip().lower() for side in SIDES}
    if registry_options.is_given(options) and not formats.intersection(_WITH_SCHEMA):
        allowed = f"has a meaning only with minikafka.value.format={_any_of(_WITH_SCHEMA)}"
        others = (name for name in options if name.startswith(registry_options.NAMESPACE))
        named = registry_options.URL if registry_options.URL in options else next(others)
        faults.add([ConfigError(named, None, allowed)])
    if sink and not registry_options.is_given(options):
        writes = registry_options.WRITES
        faults.attempt(partial(registry_options.refuse_without_registry, options, writes), None)
    given = options.get(_BAD_VALUES.name, _BAD_VALUES.default)
    bad = faults.attempt(partial(_BAD_VALUES.type.parse, _BAD_VALUES.name, given), BadValues.FAILFAST)
    topic = faults.attempt(partial(_dead_letter_topic, options, bad), None)
    if not sink and bad is not BadValues.FAILFAST and formats <= {"", "binary"}:
        allowed = "has no meaning without minikafka.value.format or minikafka.key.format: bytes are never bad"
        faults.add([ConfigError(_BAD_VALUES.name, given, allowed)])
    faults.check(options)
    return QueryFormats(made["key"], made["value"], bad, topic)


def _dead_letter_topic(options: Mapping[str, str], bad: BadValues) -> str | None:
    name, wanted = _DEAD_LETTER_TOPIC.name, f"{_BAD_VALUES.name}={BadValues.DEAD_LETTER.value}"
    topic = options.get(name)
    if bad is not BadValues.DEAD_LETTER:
        if topic is not None:
            raise ConfigError(name, topic, f"has no meaning without {wanted}")
        return None
    if topic is None:
        raise ConfigError(name, None, f"must be given with {wanted}: the topic of bad records")
    return topic_name(name, topic, topic.strip())


def _side(
    options: Mapping[str, str],
    side: str,
    absolute: Callable[[str, str], str],
    sink: bool,
    column: DataType | None,
) -> ValueFormat | None:
    values, faults = _DEFINITIONS[side].read(options)
    if faults:
        raise ConfigErrors(faults)
    found = SideOptions(side, **values, column=column)
    if found.schema_file is not None:
        found = replace(found, schema_file=absolute(found.name("schema.file"), found.schema_file))
    if found.format != "protobuf":
        found.refuse_message()
    if found.format in _WITH_SCHEMA and registry_options.is_given(options):
        found = replace(found, registry=registry_options.registry_access(options, side, sink=sink))
    else:
        registry_options.refuse_without_registry(options, [registry_options.STRATEGY[side]])
    return _FORMATS[found.format](found, sink)
