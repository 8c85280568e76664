"""The text of a .proto file as a descriptor, for schemas of registries that keep no descriptors.

What decides on the form of messages is read: messages, enums, fields, oneofs, maps, and of the options
``packed``, ``default`` and ``allow_alias``. Services, extensions, other options and reserved names are passed
over. Names of types are left as they are: protobuf's runtime resolves them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.base.text import shorten
from minikafka.records.protobuf.types import ProtobufError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

DEPTH_MAX = 100
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<word>\.?[A-Za-z_][\w.]*)
    | (?P<number>[0-9.][\w.]*(?:(?<=[eE])[+-]\w+)?)
    | (?P<sign>[{}()\[\]<>;,=:+-])""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_OPTIONAL, _REPEATED, _MESSAGE = 1, 3, 11
_PAIRS = {"{": "}", "[": "]", "(": ")", "<": ">"}


def parse_proto(text: str) -> FileDescriptorProto:
    """Return the descriptor of a file. Raise ProtobufError, with the place, if it is no .proto file."""
    parser = _Parser(text)
    file = parser.file()
    if not file.message_type and not file.enum_type:
        raise parser.fault(0, "there is no message")
    return file


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    is_text: bool = False


class _Parser:
    """Reads one file from its first token to its last."""

    def __init__(self, text: str) -> None:
        from google.protobuf import descriptor_pb2

        self._pb: Any = descriptor_pb2
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._is_proto3 = False

    def _split(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.fault(at, f"unexpected {text[at]!r}")
            if found.lastgroup is not None:
                tokens.append(_Token(found[0], at, found.lastgroup == "text"))
            at = found.end()
        return [*tokens, _Token("", at)]

    def fault(self, at: int, problem: str) -> ProtobufError:
        """Return the error of a problem at a character of the text."""
        line = self._text.count("\n", 0, at) + 1
        return ProtobufError(f"it is neither a descriptor nor a .proto file: line {line}: {problem}")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        if not token.text:
            raise self.fault(token.at, "the file ends too early")
        self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._token.text != text or self._token.is_text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self.fault(self._token.at, f"expected {text!r}, found {shorten(self._token.text)!r}")

    def _string(self) -> str:
        token = self._take()
        if not token.is_text:
            raise self.fault(token.at, f"expected a text, found {shorten(token.text)!r}")
        parts = [token.text]
        while self._token.is_text:
            parts.append(self._take().text)
        try:
            text = "".join(ast.literal_eval(part) for part in parts)
            text.encode()  # ValueError for half a surrogate pair
        except (ValueError, SyntaxError):
            raise self.fault(token.at, f"invalid text {shorten(token.text)}") from None
        return text

    def _number(self) -> int:
        is_negative = self._accept("-")
        token = self._take()
        try:
            value = int(token.text, 8 if re.fullmatch("0[0-7]+", token.text) else 0)
        except ValueError:
            raise self.fault(token.at, f"expected a number, found {shorten(token.text)!r}") from None
        if value >= 1 << 31:  # of int32
            raise self.fault(token.at, f"the number {shorten(token.text)} is too large")
        return -value if is_negative else value

    def _skip(self) -> None:
        """Pass over the rest of a statement: to its semicolon, or the end of its block."""
        while not self._accept(";"):
            token = self._take()
            if token.text in _PAIRS and not token.is_text:
                self._skip_block(_PAIRS[token.text])
                if token.text == "{":
                    self._accept(";")
                    return

    def _skip_block(self, end: str) -> None:
        waiting = [end]
        while waiting:
            token = self._take()
            if token.is_text:
                continue
            if token.text == waiting[-1]:
                waiting.pop()
            elif token.text in _PAIRS:
                waiting.append(_PAIRS[token.text])

    def file(self) -> Any:
        """Read the file."""
        file = self._pb.FileDescriptorProto()
        while self._token.text:
            if self._accept(";"):
                continue
            word = self._take()
            if word.text == "syntax":
                self._expect("=")
                file.syntax = self._string()
                self._is_proto3 = file.syntax == "proto3"
                self._expect(";")
            elif word.text == "edition":
                raise self.fault(word.at, "editions are read only from descriptors")
            elif word.text == "package":
                file.package = self._take().text
                self._expect(";")
            elif word.text == "import":
                is_public = self._accept("public")
                self._accept("weak")
                if is_public:
                    file.public_dependency.append(len(file.dependency))
                file.dependency.append(self._string())
                self._expect(";")
            elif word.text == "message":
                self._message(file.message_type.add(), 0)
            elif word.text == "enum":
                self._enum(file.enum_type.add())
            elif word.text in ("option", "service", "extend"):
                self._skip()
            else:
                raise self.fault(word.at, f"unexpected {shorten(word.text)!r}")
        return file

    def _message(self, message: DescriptorProto, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self.fault(self._token.at, f"more than {DEPTH_MAX} messages inside each other")
        message.name = self._take().text
        self._expect("{")
        optional: list[Any] = []
        while not self._accept("}"):
            if self._accept(";"):
                continue
            word = self._token
            if self._is_statement("message"):
                self._next += 1
                self._message(message.nested_type.add(), depth + 1)
            elif self._is_statement("enum"):
                self._next += 1
                self._enum(message.enum_type.add())
            elif self._is_statement("oneof"):
                self._next += 1
                self._oneof(message)
            elif word.text in ("option", "extend", "reserved", "extensions"):
                self._skip()
            else:
                found = self._field(message)
                if found is not None and self._is_proto3 and word.text == "optional":
                    optional.append(found)
        for found in optional:  # each has a oneof of its own, behind the others
            found.proto3_optional = True
            found.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add().name = f"_{found.name}"

    def _is_statement(self, keyword: str) -> bool:
        """Return True if the next words are ``keyword NAME {``: a field may have a type of that name."""
        after_name = self._tokens[self._next + 2 : self._next + 3]
        return self._token.text == keyword and [token.text for token in after_name] == ["{"]

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add().name = self._take().text
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._token.text == "option":
                self._skip()
                continue
            found = self._field(message)
            if found is not None:
                found.oneof_index = index

    def _field(self, message: DescriptorProto) -> Any:
        """Read a field into ``message``, and return it."""
        label = _OPTIONAL
        if self._token.text in _LABELS and self._tokens[self._next + 1].text not in ("=", ""):
            label = _LABELS[self._take().text]
        kind = self._take()
        if kind.text == "group":
            raise self.fault(kind.at, "groups are not supported")
        if not re.fullmatch(r"\.?[A-Za-z_][\w.]*", kind.text) or kind.is_text:
            raise self.fault(kind.at, f"expected a field, found {shorten(kind.text)!r}")
        entry = None
        if kind.text == "map" and self._accept("<"):
            entry = self._take().text
            self._expect(",")
            kind = self._take()
            self._expect(">")
            label = _REPEATED
        found = message.field.add()
        found.name, found.label = self._take().text, label
        self._expect("=")
        found.number = self._number()
        if entry is None:
            self._type(found, kind.text)
        else:
            nested = message.nested_type.add(name=_entry_name(found.name))
            nested.options.map_entry = True
            for number, (name, part) in enumerate((("key", entry), ("value", kind.text)), 1):
                self._type(nested.field.add(name=name, number=number, label=_OPTIONAL), part)
            found.type, found.type_name = _MESSAGE, nested.name
        if self._accept("["):
            self._field_options(found)
        self._expect(";")
        return found

    def _type(self, found: Any, name: str) -> None:
        if name in _SCALARS:
            found.type = _SCALARS[name]
        else:
            found.type_name = name

    def _field_options(self, found: Any) -> None:
        def packed(value: _Token) -> None:
            found.options.packed = value.text == "true"

        def default(value: _Token) -> None:
            found.default_value = value.text

        self._options({"packed": packed, "default": default})

    def _options(self, known: dict[str, Callable[[_Token], None]]) -> None:
        """Read options up to the closing bracket."""
        while True:
            name = self._take().text
            if name == "(":
                self._skip_block(")")
                name = ""
            while self._token.text not in ("=", ""):
                self._next += 1  # the rest of a longer name
                name = ""
            self._expect("=")
            is_negative = self._accept("-")
            if self._token.is_text:
                at = self._token.at
                value = _Token(self._string(), at, True)
            else:
                value = self._take()
            if value.text in _PAIRS and not value.is_text:
                self._skip_block(_PAIRS[value.text])
            elif name in known:
                known[name](_Token(f"-{value.text}", value.at) if is_negative else value)
            if not self._accept(","):
                self._expect("]")
                return

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._take().text
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            name = self._take()
            if name.text == "option" and self._token.text != "=":
                if self._token.text == "allow_alias":
                    enum.options.allow_alias = True
                self._skip()
            elif name.text == "reserved" and self._token.text != "=":
                self._skip()
            else:
                self._expect("=")
                enum.value.add(name=name.text, number=self._number())
                if self._accept("["):
                    self._options({})
                self._expect(";")


def _entry_name(field: str) -> str:
    """Return the name of the message of a map's entries, as protoc makes it."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
