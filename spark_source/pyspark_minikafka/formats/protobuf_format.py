"""The format ``protobuf``: messages of one type, as Spark's ``from_protobuf`` and ``to_protobuf`` have them.

With a registry a value has, behind the schema's id, the numbers that lead to its message in the schema: as
zig-zag varints, their count first; a single 0 is the first message. The message's fields are read as the
query's type has them, whatever the version of the schema: protobuf's numbers are made for that. The schema of
each value only tells whether it is a message of that type at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from minikafka.clients.schema_registry.client import (
    PROTOBUF,
    RegisteredSchema,
    Schema,
    SchemaNotFound,
    SchemaReference,
)
from minikafka.records.protobuf import (
    FIRST_MESSAGE,
    INDEXES_MAX,
    Field,
    Message,
    Messages,
    ProtobufError,
    decode_messages,
    encode_messages,
    fields_of_columns,
    files_of,
    files_of_texts,
    message_indexes,
    read_indexes,
    schema_text,
)
from pyspark_minikafka.formats.schema_registry import (
    HEADER_BYTES,
    NO_HEADER,
    NO_HEADER_REASON,
    RegistryAccess,
    WrongSchemaType,
    contents,
    header,
    merged_bad,
    of_type,
    schema_ids,
)
from pyspark_minikafka.formats.value_format import ColumnType, Decoded, with_prefix

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_WINDOW = 8
"""The bytes of message indexes that are compared in bulk."""
_LONG = 5 * (INDEXES_MAX + 1)
_BAD_INDEXES = "the message indexes behind the schema's id are cut off or invalid"
_SPARK = {
    "double": DoubleType(),
    "float": FloatType(),
    "bool": BooleanType(),
    "string": StringType(),
    "enum": StringType(),
    "bytes": BinaryType(),
}
_WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)


class SeveralMessages(ProtobufError):
    """A schema with several messages, of which none is named."""


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """A file as it is registered. imports: the names of those that it imports, without protobuf's own."""

    name: str
    text: str
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """Messages of one type.

    files: the file that a write registers, behind all that it imports; none if it takes the newest schema of
    its subject, which has the message. path: the numbers of the message in that file. prefix: before each
    message that is written.
    """

    message: Message
    registry: RegistryAccess | None = None
    files: tuple[RegisteredFile, ...] = ()
    path: tuple[int, ...] = FIRST_MESSAGE
    prefix: bytes = b""

    def data_type(self) -> DataType:
        """Return the type that ``from_protobuf`` gives."""
        return spark_type(self.message)

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``."""
        data, starts, ends = contents(values)
        bad: list[tuple[NDArray[np.int64], tuple[str, ...]]] = []
        if self.registry is None:
            starts = np.where(values.is_valid().to_numpy(zero_copy_only=False), starts, -1)
        else:
            found = _Headers(data, starts, ends, schema_ids(values))
            refused = found.check(self.registry, self.message.name)
            starts = np.where(found.sizes > 0, starts + found.sizes, -1)
            bad.append((np.array(list(refused), dtype=np.int64), tuple(refused.values())))
        decoded = decode_messages(data, starts, ends, self.message)
        bad.append((decoded.bad, decoded.reasons))
        return Decoded(decoded.column, *merged_bad(bad))

    def for_column(self, data_type: DataType) -> ProtobufFormat:
        """Return this format, if the type's fields are the message's."""
        if not isinstance(data_type, StructType) and not self.message.is_well_known:
            raise ColumnType(f"a struct with fields of {self.message.name}")
        problem = _mismatch(self.message, data_type, self.message.name)
        if problem:
            raise ColumnType(f"a struct with fields of {self.message.name} ({problem})")
        return self

    def for_topic(self, topic: str, data_type: DataType) -> ProtobufFormat:
        """Return the format with the id of the topic's schema, if there is a registry."""
        return self._written(topic)

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the messages of a column."""
        return with_prefix(self._written(topic).prefix, encode_messages(self.message, column))

    def _written(self, topic: str) -> ProtobufFormat:
        """Return the format that a topic's values are written in. Raise ProtobufError if the newest schema
        does not have the message.
        """
        if self.registry is None:
            return self
        registry, name = self.registry, self.message.name
        if not self.files or registry.use_latest:
            latest = registry.latest(topic, name, PROTOBUF)
            schema_id, path = latest.id, _path_of(latest, name)
        else:
            schema_id, path = self._registered_id(registry, topic), self.path
        return ProtobufFormat(self.message, prefix=header(schema_id) + _index_bytes(path))

    def _registered_id(self, registry: RegistryAccess, topic: str) -> int:
        """Return the id of the schema that is the file."""
        references: dict[str, SchemaReference] = {}
        for file in self.files[:-1]:
            references[file.name] = registry.reference(file.name, _schema(file, references))
        return registry.written_id(topic, self.message.name, _schema(self.files[-1], references))


def protobuf_format(
    content: bytes | None,
    name: str | None,
    registry: RegistryAccess | None,
    *,
    sink: bool,
    column: DataType | None = None,
) -> ProtobufFormat:
    """Return the format of the message ``name``; None: the first one, or the only one of a descriptor set.

    content: a descriptor set, or the text of a .proto file; None: the newest schema of the query's subject,
    among those of the type ``column`` if Spark has fixed it.
    Raise ProtobufError for a message that is not clear, or that no column can have.
    """
    if content is None:
        assert registry is not None, "the options give a descriptor or a registry"
        option = "schema.file" if name else "message"
        made_of = partial(_of_registered, name=name, registry=registry)
        return registry.newest_format(PROTOBUF, name, option, made_of, column, fresh=not sink)
    messages = Messages(files_of(content))
    names = messages.names()
    if name is None and len(names) > 1:
        raise SeveralMessages(f"has several messages ({', '.join(names[:20])}): name one of them")
    name = name or names[0]
    message = messages.message(name)
    file = messages.file_of(name)
    path = next(path for path, found in message_indexes(file).items() if found == name)
    files_below = messages.with_imports(file) if registry is not None and sink else []
    registered = tuple(
        RegisteredFile(found.name, schema_text(found), tuple(messages.imports(found)))
        for found in files_below
    )
    return ProtobufFormat(message, registry, registered, path)


def _of_registered(schema: RegisteredSchema, *, name: str | None, registry: RegistryAccess) -> ProtobufFormat:
    """Return the format of a message in a schema of the registry; ``name`` None: its first one."""
    if name is not None:
        _path_of(schema, name)
    elif FIRST_MESSAGE not in _message_names(schema):
        raise ProtobufError(f"schema {schema.id} has no message")
    found = name or _message_names(schema)[FIRST_MESSAGE]
    return ProtobufFormat(Messages(_files(schema)).message(found), registry)


def spark_type(message: Message) -> DataType:
    """Return the type of a message's column."""
    if message.is_well_known:
        return TimestampType() if message.name.endswith("Timestamp") else DayTimeIntervalType()
    return StructType(
        [StructField(field.name, _field_type(field), not field.is_required) for field in message.columns]
    )


def _field_type(field: Field) -> DataType:
    if field.is_map:
        key, value = field.entry
        return MapType(_value_type(key), _value_type(value), valueContainsNull=False)
    return ArrayType(_value_type(field), containsNull=False) if field.is_repeated else _value_type(field)


def _value_type(field: Field) -> DataType:
    if field.message is not None:
        return spark_type(field.message)
    if field.kind in _SPARK:
        return _SPARK[field.kind]
    return LongType() if field.value_type == pa.int64() else IntegerType()


def _mismatch(message: Message, data_type: DataType, name: str) -> str:
    """Return why a struct cannot be written as ``message``; empty if it can. ``name``: for the reason."""
    if not isinstance(data_type, StructType):
        return f"{name} is a message, not {data_type.simpleString()}"
    fields = fields_of_columns(message, data_type.fieldNames())
    for found, column in zip(fields, data_type.fields, strict=True):
        if found is None:
            return f"{name} has no field {column.name}"
        problem = _field_mismatch(found, column.dataType, f"{name}.{found.name}")
        if problem:
            return problem
    if len({found.number for found in fields if found is not None}) < len(fields):
        return f"two columns are for one field of {name}"
    missing = [found.name for found in message.fields if found.is_required and found not in fields]
    return f"{name} requires the field {missing[0]}" if missing else ""


def _field_mismatch(field: Field, data_type: DataType, name: str) -> str:
    if field.is_map:
        if not isinstance(data_type, MapType):
            return f"{name} is a map, not {data_type.simpleString()}"
        key, value = field.entry
        return _value_mismatch(key, data_type.keyType, f"{name}.key") or _value_mismatch(
            value, data_type.valueType, f"{name}.value"
        )
    if field.is_repeated:
        if not isinstance(data_type, ArrayType):
            return f"{name} is repeated, not {data_type.simpleString()}"
        data_type = data_type.elementType
    return _value_mismatch(field, data_type, name)


def _value_mismatch(field: Field, data_type: DataType, name: str) -> str:
    if field.message is not None and not field.message.is_well_known:
        return _mismatch(field.message, data_type, name)
    wanted = _value_type(field)
    allowed: tuple[type[DataType], ...] = (type(wanted),)
    if isinstance(wanted, TimestampType):
        allowed = (TimestampType, TimestampNTZType)
    elif isinstance(wanted, DoubleType):
        allowed = (DoubleType, FloatType)
    elif isinstance(wanted, IntegerType | LongType):
        allowed = _WHOLE_NUMBERS[: 3 if isinstance(wanted, IntegerType) else 4]
    elif field.enum is not None:
        allowed = (StringType, *_WHOLE_NUMBERS)
    if isinstance(data_type, allowed):
        return ""
    return f"{name} is {wanted.simpleString()}, not {data_type.simpleString()}"


def _schema(file: RegisteredFile, references: Mapping[str, SchemaReference]) -> Schema:
    return Schema(PROTOBUF, file.text, tuple(references[name] for name in file.imports))


def _index_bytes(path: tuple[int, ...]) -> bytes:
    """Return message indexes as they are behind the schema's id."""
    if path == FIRST_MESSAGE:
        return b"\0"
    written = bytearray()
    for number in (len(path), *path):
        left = number << 1
        while left >= 128:
            written.append(left & 127 | 128)
            left >>= 7
        written.append(left)
    return bytes(written)


def _files(schema: RegisteredSchema) -> list[FileDescriptorProto]:
    references = [(found.name, found.text) for found in schema.references]
    return files_of_texts(f"schema-{schema.id}.proto", schema.text, references)


@lru_cache(maxsize=1_000)
def _message_names(schema: RegisteredSchema) -> Mapping[tuple[int, ...], str]:
    return message_indexes(_files(of_type(schema, PROTOBUF))[-1])


def _path_of(schema: RegisteredSchema, name: str) -> tuple[int, ...]:
    """Return the numbers of a message in a schema of the registry. Raise ProtobufError if it has none."""
    names = _message_names(schema)
    for path, found in names.items():
        if found == name:
            return path
    raise ProtobufError(f"schema {schema.id} has no message {name}; it has {', '.join(names.values())}")


class _Headers:
    """The headers of values: schema ids and message indexes. sizes: their bytes; 0: null or bad."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        ids: NDArray[np.int64],
    ) -> None:
        self.ids = ids
        self.sizes = np.zeros(len(ids), dtype=np.int64)
        self._kinds = np.full(len(ids), -1, dtype=np.int64)
        self._paths: dict[tuple[int, ...], int] = {(): 0, FIRST_MESSAGE: 1}
        rows = np.flatnonzero(ids >= 0)
        self._kinds[rows] = 0
        rows = rows[ends[rows] - starts[rows] > HEADER_BYTES]
        is_first = data[starts[rows] + HEADER_BYTES] == 0
        first, others = rows[is_first], rows[~is_first]
        self._kinds[first], self.sizes[first] = 1, HEADER_BYTES + 1
        if len(others):
            self._read_longer(data, starts[others] + HEADER_BYTES, ends[others], others)

    def _read_longer(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        """Read indexes of more than one byte: equal ones once, unless they are long."""
        places = np.arange(_WINDOW)
        at = starts[:, None] + places
        window = np.where(at < ends[:, None], data[np.minimum(at, len(data) - 1)], 0).astype(np.uint8)
        count = window[:, :1].astype(np.int64) >> 1
        is_index = places <= count
        is_short = (count[:, 0] < _WINDOW) & ~np.any((window >= 128) & is_index, axis=1)
        window[~is_index] = 0  # that is the message
        found, inverse = np.unique(window[is_short].view(np.uint64).reshape(-1), return_inverse=True)
        read = np.array([self._read(key.tobytes()) for key in found], dtype=np.int64).reshape(-1, 2)
        kinds, sizes = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        kinds[is_short], sizes[is_short] = read[inverse, 0], read[inverse, 1]
        for row in np.flatnonzero(~is_short):
            kinds[row], sizes[row] = self._read(
                data[starts[row] : min(ends[row], starts[row] + _LONG)].tobytes()
            )
        is_good = (kinds > 0) & (sizes <= ends - starts)
        self._kinds[rows] = np.where(is_good, kinds, 0)
        self.sizes[rows] = np.where(is_good, HEADER_BYTES + sizes, 0)

    def _read(self, content: bytes) -> tuple[int, int]:
        """Return the number of indexes among the known paths, 0 for invalid ones, and their bytes."""
        path, size = read_indexes(content)
        if not size:
            return 0, 0
        return self._paths.setdefault(path, len(self._paths)), size

    def check(self, registry: RegistryAccess, name: str) -> dict[int, str]:
        """Return the values that are no messages of the type ``name``, and why; their sizes become 0."""
        refused = dict.fromkeys(np.flatnonzero(self.ids == NO_HEADER).tolist(), NO_HEADER_REASON)
        refused |= dict.fromkeys(np.flatnonzero(self._kinds == 0).tolist(), _BAD_INDEXES)
        rows, paths = np.flatnonzero(self._kinds > 0), list(self._paths)
        pairs = self.ids[rows] * len(paths) + self._kinds[rows]
        found, inverse = np.unique(pairs, return_inverse=True)
        for number, pair in enumerate(found.tolist()):
            schema_id, kind = divmod(pair, len(paths))
            reason = _refusal(registry, schema_id, paths[kind], name)
            if reason:
                refused |= dict.fromkeys(rows[inverse == number].tolist(), reason)
        self.sizes[list(refused)] = 0
        return dict(sorted(refused.items()))


def _refusal(registry: RegistryAccess, schema_id: int, path: tuple[int, ...], name: str) -> str:
    """Return why a value is no message ``name``; empty if it is one."""
    try:
        names = _message_names(registry.client.schema(schema_id))
    except (ProtobufError, SchemaNotFound, WrongSchemaType) as problem:
        return f"schema {schema_id}: {problem}"
    if path not in names:
        return f"schema {schema_id} has no message with the indexes {','.join(map(str, path))}"
    return "" if names[path] == name else f"it is a message {names[path]}, not {name}"
