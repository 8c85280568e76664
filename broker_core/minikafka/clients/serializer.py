"""Encoders and decoders between an application's keys and values and their bytes: ``serializer.class`` of the
producer, and the decoders of a stream.

An ``Encoder`` or ``Decoder`` is any object with the one method; streams also take a function of the bytes. A
class that is created by name, from properties, gets them as its one argument, as in the release, and works
without them, too. Null is not a value: neither is called for it.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from minikafka.base.errors import ConfigError

ENCODING = "serializer.encoding"
"""The property with the character set of ``StringEncoder`` and ``StringDecoder``."""

_LONG = struct.Struct(">q")
_INTEGER = struct.Struct(">i")

Properties = Mapping[str, Any]
Value_contra = TypeVar("Value_contra", contravariant=True)
Value_co = TypeVar("Value_co", covariant=True)


class Encoder(Protocol[Value_contra]):
    """Encodes a value to bytes (``kafka.serializer.Encoder``)."""

    def to_bytes(self, value: Value_contra) -> bytes | None:
        """Return the bytes to send; None sends null."""


@runtime_checkable
class Decoder(Protocol[Value_co]):
    """Decodes bytes to a value (``kafka.serializer.Decoder``)."""

    def from_bytes(self, data: bytes) -> Value_co:
        """Return the value of received bytes."""


T = TypeVar("T")
AnyDecoder = Decoder[T] | Callable[[bytes], T]
"""A decoder, or a plain function of the bytes."""


class FunctionDecoder(Generic[T]):
    """Decodes bytes with a function, such as ``json.loads``."""

    def __init__(self, function: Callable[[bytes], T]) -> None:
        self.function = function

    def from_bytes(self, data: bytes) -> T:
        """Return the function's result."""
        return self.function(data)


def as_decoder(decoder: AnyDecoder[T]) -> Decoder[T]:
    """Return an object with ``from_bytes`` as it is, and a decoder for a function."""
    return decoder if isinstance(decoder, Decoder) else FunctionDecoder(decoder)


def decoder_name(decoder: Decoder[Any]) -> str:
    """Return the name of a decoder, or of its function, for messages."""
    named = decoder.function if isinstance(decoder, FunctionDecoder) else type(decoder)
    return getattr(named, "__name__", repr(named))


class DefaultEncoder:
    """Leaves bytes unchanged (``kafka.serializer.DefaultEncoder``): the producer's default."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: bytes) -> bytes:
        """Return the same object."""
        return value


class DefaultDecoder:
    """Leaves bytes unchanged (``kafka.serializer.DefaultDecoder``): the streams' default."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> bytes:
        """Return the same object."""
        return data


class NullEncoder:
    """Sends null for any value (``kafka.serializer.NullEncoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: object) -> None:
        """Return None."""
        return


class StringEncoder:
    """Encodes text (``kafka.serializer.StringEncoder``) in the character set ``serializer.encoding``, else
    UTF-8.

    Characters outside the set become ``?``, as in Java. Raises ConfigError for a set that Python does not
    know.
    """

    def __init__(self, properties: Properties | None = None) -> None:
        self.encoding = _encoding(properties)
        # Java writes big-endian behind a mark where Python writes the machine's order.
        marked = self.encoding == "utf-16"
        self._mark, self._codec = (b"\xfe\xff", "utf-16-be") if marked else (b"", self.encoding)

    def to_bytes(self, value: str) -> bytes:
        """Return the encoded text. Raises TypeError for a value that is not text."""
        if not isinstance(value, str):
            raise TypeError(
                f"StringEncoder: expected str, got {type(value).__name__} {value!r:.100}: send text, or set "
                "another serializer.class or key.serializer.class: kafka.serializer's DefaultEncoder encodes "
                "bytes, LongEncoder and IntegerEncoder encode numbers"
            )
        encoded = value.encode(self._codec, "replace")
        return self._mark + encoded if encoded else encoded


class StringDecoder:
    """Decodes text (``kafka.serializer.StringDecoder``); invalid bytes become U+FFFD."""

    def __init__(self, properties: Properties | None = None) -> None:
        self.encoding = _encoding(properties)

    def from_bytes(self, data: bytes) -> str:
        """Return the text."""
        if self.encoding == "utf-16" and data[:2] not in {b"\xfe\xff", b"\xff\xfe"}:
            return data.decode("utf-16-be", "replace")
        return data.decode(self.encoding, "replace")


class LongEncoder:
    """Encodes 64 bits, big-endian (``kafka.serializer.LongEncoder``, in releases since 0.11)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: int) -> bytes:
        """Return eight bytes. Raises ``struct.error`` for a number that does not fit, TypeError for other
        types.
        """
        return _packed(_LONG, value, 64)


class LongDecoder:
    """Decodes 64 bits, big-endian (``kafka.serializer.LongDecoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> int:
        """Return the number. Raises ``struct.error`` unless there are eight bytes."""
        number: int = _LONG.unpack(data)[0]
        return number


class IntegerEncoder:
    """Encodes 32 bits, big-endian (``kafka.serializer.IntegerEncoder``, in releases since 0.11)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: int) -> bytes:
        """Return four bytes. Raises ``struct.error`` for a number that does not fit, TypeError for other
        types.
        """
        return _packed(_INTEGER, value, 32)


class IntegerDecoder:
    """Decodes 32 bits, big-endian (``kafka.serializer.IntegerDecoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> int:
        """Return the number. Raises ``struct.error`` unless there are four bytes."""
        number: int = _INTEGER.unpack(data)[0]
        return number


def _packed(form: struct.Struct, value: Any, bits: int) -> bytes:
    if not hasattr(value, "__index__"):
        raise TypeError(
            f"expected an int of {bits} bits, got {type(value).__name__} {value!r:.100}: send an int, or set "
            "another serializer.class or key.serializer.class"
        )
    try:
        return form.pack(value)
    except struct.error:
        raise struct.error(f"{value} does not fit into {bits} bits") from None


def _encoding(properties: Properties | None) -> str:
    """Return Python's name of the character set."""
    name = str((properties or {}).get(ENCODING, "UTF8"))
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ConfigError(ENCODING, name, "must be a character set, such as UTF-8 or ISO-8859-1") from None
