"""Descriptors of protobuf, read by its runtime, as message types.

They are in a descriptor set, which protoc makes, or in a schema of a registry: a file's descriptor in base64,
or its text. A file's imports are in the same set, among the schema's references, or protobuf's own.
"""

from __future__ import annotations

import importlib
import importlib.util
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import MinikafkaError
from minikafka.base.text import shorten
from minikafka.records.protobuf.proto_file import parse_proto
from minikafka.records.protobuf.types import EnumType, Field, Message, ProtobufError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

FIRST_MESSAGE = (0,)
INDEXES_MAX = 100
FIELDS_MAX = 10_000
"""The most fields of a message and all in it: types that are used twice on each level would have 2^depth."""
_OWN_IMPORTS = "google/protobuf/"
_ANNOTATIONS = frozenset({"confluent/meta.proto"})
"""Imports that define options alone. Confluent's registry has them built in."""
_KINDS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""The types of fields in descriptors. Groups have number 10."""


_NO_JSON = (TypeError, ValueError, AttributeError, LookupError, RecursionError)
"""The errors of protobuf's JSON, also for a schema that has other types by the names of protobuf's own."""


class MissingProtobuf(MinikafkaError):
    """The package protobuf is not installed."""


def check_installed() -> None:
    """Raise MissingProtobuf if the package is not there."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise MissingProtobuf(
            "protobuf needs the package protobuf: pip install 'minikafka[protobuf]', with Spark for the "
            "Python that it runs, on the driver and every executor"
        )


def files_of(content: bytes) -> list[FileDescriptorProto]:
    """Return the files of a descriptor set, or the one file whose text ``content`` is."""
    try:
        return files_of_set(content)
    except ProtobufError as no_set:
        try:
            file = parse_proto(content.decode())
        except UnicodeDecodeError:
            raise no_set from None
        file.name = "schema.proto"
        return [file]


def files_of_set(content: bytes) -> list[FileDescriptorProto]:
    """Return the files of a descriptor set. Raise ProtobufError for anything else."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError:
        files = []
    if not any(file.name and file.message_type for file in files):
        raise ProtobufError(
            "is no descriptor set with a message: make it with "
            "protoc --include_imports --descriptor_set_out=FILE"
        )
    return files


def files_of_texts(name: str, text: str, references: Iterable[tuple[str, str]]) -> list[FileDescriptorProto]:
    """Return the file of a registry's schema, which is the last one, and those of its references, each by its
    name and text.
    """
    return [_file(text, name) for name, text in (*references, (name, text))]


def _file(text: str, name: str) -> FileDescriptorProto:
    """Return a file whose descriptor is in base64, or whose text it is. Other files import it by ``name``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        file = parse_proto(text)
    try:
        file.name = name
    except ValueError:  # half a surrogate pair
        raise ProtobufError(f"the name of the file {shorten(ascii(name))} is not UTF-8") from None
    return file


def schema_text(file: FileDescriptorProto) -> str:
    """Return the text that registers a file: its descriptor in base64."""
    return b64encode(file.SerializeToString()).decode("ascii")


class Messages:
    """The message types of some files."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        """Raise ProtobufError for a file that is not valid, or whose imports are missing."""
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool = DescriptorPool()
        self._files = {file.name: file for file in files}
        self._added: dict[str, bool] = {}
        """Name -> whether the file is complete, and not one whose imports are being added."""
        for name in self._files:
            self._add(name)
        self.longest_name = max(map(_longest_name, self._files.values()), default=0)
        """The length of the longest name of a field or of an enum's value."""

    def _add(self, name: str) -> None:
        if name in self._added:
            if not self._added[name]:
                raise ProtobufError(f"the file {name} imports itself")
            return
        self._added[name] = False
        file = self._files.get(name) or _own_file(name)
        if file is None:
            raise ProtobufError(
                f"the imported file {name} is missing: make the descriptor set with protoc "
                "--include_imports, or register the schema with a reference of this name"
            )
        kept = [imported for imported in file.dependency if imported not in _ANNOTATIONS]
        if len(kept) < len(file.dependency):
            del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
            file.dependency.extend(kept)
        for imported in kept:
            self._add(imported)
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise ProtobufError(f"the file {name} is not valid: {shorten(str(error))}") from None
        self._added[name] = True

    def names(self) -> list[str]:
        """Return the full names of the files' messages, without those of map entries."""
        return [name for file in self._files.values() for name in _names(file)]

    def file_of(self, name: str) -> FileDescriptorProto:
        """Return the file of a message among ``names``."""
        return next(file for file in self._files.values() if name in _names(file))

    def message(self, name: str) -> Message:
        """Return a message type. Raise ProtobufError if there is none, or no column can have it."""
        try:
            descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = ", ".join(self.names()[:20])
            raise ProtobufError(f"there is no message {name}; the messages are {known}") from None
        return _Reader().message(descriptor, ())

    def json(self, name: str, data: bytes) -> str:
        """Return a message of the type ``name``, one of ``names``, in protobuf's own JSON.

        Raise ProtobufError for other bytes, and for what that JSON cannot have.
        """
        from google.protobuf.json_format import MessageToJson, SerializeToJsonError
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        made = GetMessageClass(self._pool.FindMessageTypeByName(name))
        try:
            text: str = MessageToJson(
                made.FromString(data),
                preserving_proto_field_name=True,
                indent=None,
                descriptor_pool=self._pool,
                ensure_ascii=False,
            )
        except DecodeError:
            raise ProtobufError(f"the bytes are no message {name}") from None
        except (*_NO_JSON, SerializeToJsonError) as error:
            raise ProtobufError(f"the message {name} has no JSON: {shorten(str(error))}") from None
        return text

    def imports(self, file: FileDescriptorProto) -> list[str]:
        """Return the names of the files that a file imports, without those of protobuf itself."""
        return [name for name in file.dependency if name in self._files and not name.startswith(_OWN_IMPORTS)]

    def with_imports(self, file: FileDescriptorProto) -> list[FileDescriptorProto]:
        """Return all files that a file needs, without those of protobuf itself, each before its users."""
        found: dict[str, FileDescriptorProto] = {}

        def add(user: FileDescriptorProto) -> None:
            for name in self.imports(user):
                if name not in found:
                    add(self._files[name])
            found[user.name] = user

        add(file)
        return list(found.values())


def _own_file(name: str) -> FileDescriptorProto | None:
    """Return one of the files that come with protobuf; None for any other name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not name.startswith(_OWN_IMPORTS) or not name.endswith(".proto"):
        return None
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        found = importlib.import_module(module)
    except ImportError:
        return None
    file: FileDescriptorProto = FileDescriptorProto.FromString(found.DESCRIPTOR.serialized_pb)
    return file


def _names(file: FileDescriptorProto) -> list[str]:
    return [name for name, _ in _paths(file.message_type, file.package, ())]


def _paths(
    messages: Iterable[Any], prefix: str, path: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name of each message, and the numbers by which Confluent's serializers name it in a file."""
    shown = (message for message in messages if not message.options.map_entry)
    for number, message in enumerate(shown):
        name = f"{prefix}.{message.name}" if prefix else message.name
        yield name, (*path, number)
        yield from _paths(message.nested_type, name, (*path, number))


def _longest_name(file: FileDescriptorProto) -> int:
    """Return the length of the longest name of a field, an extension with its scope, or an enum's value."""
    longest = 0
    parts: list[tuple[Any, int, Any]] = [(file, len(file.package), file.message_type)]
    while parts:
        part, scope, nested = parts.pop()
        names = [value.name for enum in part.enum_type for value in enum.value]
        names += [] if part is file else [field.name for field in part.field]
        longest = max(longest, *map(len, names), *(scope + 3 + len(ext.name) for ext in part.extension), 0)
        parts += [(below, scope + 1 + len(below.name), below.nested_type) for below in nested]
    return longest


def message_indexes(file: FileDescriptorProto) -> Mapping[tuple[int, ...], str]:
    """Return the names of a file's messages by the numbers that records have behind the schema's id."""
    return {path: name for name, path in _paths(file.message_type, file.package, ())}


def read_indexes(content: bytes) -> tuple[tuple[int, ...], int]:
    """Return the message indexes before a message, and how many bytes they have: 0 if they are invalid."""
    numbers: list[int] = []
    at = value = shift = 0
    while at < len(content) and shift < 35:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            numbers.append(value >> 1 if value & 1 == 0 else -1)
            value = shift = 0
            if min(numbers) < 0 or numbers[0] > INDEXES_MAX:
                break
            if len(numbers) == numbers[0] + 1:
                return tuple(numbers[1:]) or FIRST_MESSAGE, at
    return (), 0


@dataclass(slots=True)
class _Reader:
    """Reads the types of one message."""

    enums: dict[str, EnumType] = field(default_factory=dict)
    fields: int = 0

    def message(self, descriptor: Any, path: tuple[str, ...]) -> Message:
        name = descriptor.full_name
        if name in path:
            through = " -> ".join((*path[path.index(name) :], name))
            raise ProtobufError(
                f"the message {name} contains itself ({through}), which no column of Spark can: read the "
                "value as binary, and its parts with from_protobuf and recursive.fields.max.depth"
            )
        self.fields += len(descriptor.fields)
        if self.fields > FIELDS_MAX:
            raise ProtobufError(f"the message {path[0] if path else name} has more than {FIELDS_MAX} fields")
        fields = [self._field(found, (*path, name)) for found in descriptor.fields]
        names = tuple(found.name for found in fields)
        return Message(name, tuple(sorted(fields, key=lambda found: found.number)), names)

    def _field(self, found: Any, path: tuple[str, ...]) -> Field:
        if found.type not in _KINDS:
            raise ProtobufError(f"the field {found.full_name} is a group, which is not supported")
        kind = _KINDS[found.type]
        is_repeated, is_required = _labels(found)
        return Field(
            found.name,
            found.number,
            kind,
            is_repeated=is_repeated,
            is_map=kind == "message" and found.message_type.GetOptions().map_entry,
            is_packed=is_repeated and found.is_packed,
            is_required=is_required,
            has_presence=not is_repeated and found.has_presence,
            oneof=-1 if found.containing_oneof is None else found.containing_oneof.index,
            default=None if is_required else _default(found, kind),
            enum=self._enum(found.enum_type) if kind == "enum" else None,
            message=self.message(found.message_type, path) if kind == "message" else None,
        )

    def _enum(self, descriptor: Any) -> EnumType:
        if descriptor.full_name not in self.enums:
            first: dict[int, str] = {}
            for value in descriptor.values:
                first.setdefault(value.number, value.name)
            numbers = tuple(sorted(first))
            names = tuple(first[number] for number in numbers)
            aliases = tuple((value.name, value.number) for value in descriptor.values)
            self.enums[descriptor.full_name] = EnumType(
                descriptor.full_name, numbers, names, aliases, is_closed=descriptor.is_closed
            )
        return self.enums[descriptor.full_name]


def _labels(found: Any) -> tuple[bool, bool]:
    """Return whether a field is repeated, and whether it is required. Protobuf 6 replaced its labels."""
    if hasattr(found, "is_repeated"):
        return found.is_repeated, found.is_required
    return found.label == found.LABEL_REPEATED, found.label == found.LABEL_REQUIRED


def _default(found: Any, kind: str) -> Any:
    if not found.has_default_value:
        return None
    return (
        found.enum_type.values_by_number[found.default_value].name if kind == "enum" else found.default_value
    )
