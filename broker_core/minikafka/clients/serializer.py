"""What stands between an application's keys and values and their bytes: ``serializer.class`` of the producer,
the decoders of a stream.

An ``Encoder`` or ``Decoder`` is any object with the one method. Those that are made by name, from properties,
take these as their one argument, as in the release, and work without it, too. Null is no value: neither is
asked about it.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from minikafka.base.errors import ConfigError

ENCODING = "serializer.encoding"
"""The property that names the character set of ``StringEncoder`` and ``StringDecoder``."""

_LONG = struct.Struct(">q")
_INTEGER = struct.Struct(">i")

Properties = Mapping[str, Any]
Value_contra = TypeVar("Value_contra", contravariant=True)
Value_co = TypeVar("Value_co", covariant=True)


class Encoder(Protocol[Value_contra]):
    """Makes bytes of a value (``kafka.serializer.Encoder``)."""

    def to_bytes(self, value: Value_contra) -> bytes | None:
        """The bytes to send; None sends null."""


class Decoder(Protocol[Value_co]):
    """Makes a value of bytes (``kafka.serializer.Decoder``)."""

    def from_bytes(self, data: bytes) -> Value_co:
        """The value of what was received."""


class DefaultEncoder:
    """Bytes stay as they are (``kafka.serializer.DefaultEncoder``): the producer's default."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: bytes) -> bytes:
        """The same object."""
        return value


class DefaultDecoder:
    """Bytes stay as they are (``kafka.serializer.DefaultDecoder``): the streams' default."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> bytes:
        """The same object."""
        return data


class NullEncoder:
    """Sends null whatever it is given (``kafka.serializer.NullEncoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: object) -> None:
        """None."""
        return


class StringEncoder:
    """Text (``kafka.serializer.StringEncoder``) in the character set ``serializer.encoding``, else UTF-8.

    Characters that the set does not have become ``?``, as with Java. ConfigError for a set that Python does
    not know.
    """

    def __init__(self, properties: Properties | None = None) -> None:
        self.encoding = _encoding(properties)
        # Java writes big-endian behind a mark where Python writes the machine's order.
        marked = self.encoding == "utf-16"
        self._mark, self._codec = (b"\xfe\xff", "utf-16-be") if marked else (b"", self.encoding)

    def to_bytes(self, value: str) -> bytes:
        """The encoded text. TypeError for what is none."""
        if not isinstance(value, str):
            raise TypeError(
                f"StringEncoder takes str, not {type(value).__name__} {value!r:.100}: give text, as "
                "str(…), or another serializer.class or key.serializer.class: kafka.serializer's "
                "DefaultEncoder takes bytes, LongEncoder and IntegerEncoder numbers"
            )
        encoded = value.encode(self._codec, "replace")
        return self._mark + encoded if encoded else encoded


class StringDecoder:
    """The other way (``kafka.serializer.StringDecoder``): what is no text becomes U+FFFD."""

    def __init__(self, properties: Properties | None = None) -> None:
        self.encoding = _encoding(properties)

    def from_bytes(self, data: bytes) -> str:
        """The text."""
        if self.encoding == "utf-16" and data[:2] not in {b"\xfe\xff", b"\xff\xfe"}:
            return data.decode("utf-16-be", "replace")
        return data.decode(self.encoding, "replace")


class LongEncoder:
    """64 bits, big-endian (``kafka.serializer.LongEncoder``, which releases have since 0.11)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: int) -> bytes:
        """Eight bytes. ``struct.error`` for a number that does not fit, TypeError for what is none."""
        return _packed(_LONG, value, 64)


class LongDecoder:
    """The other way (``kafka.serializer.LongDecoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> int:
        """The number. ``struct.error`` unless there are eight bytes."""
        number: int = _LONG.unpack(data)[0]
        return number


class IntegerEncoder:
    """32 bits, big-endian (``kafka.serializer.IntegerEncoder``, which releases have since 0.11)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def to_bytes(self, value: int) -> bytes:
        """Four bytes. ``struct.error`` for a number that does not fit, TypeError for what is none."""
        return _packed(_INTEGER, value, 32)


class IntegerDecoder:
    """The other way (``kafka.serializer.IntegerDecoder``)."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def from_bytes(self, data: bytes) -> int:
        """The number. ``struct.error`` unless there are four bytes."""
        number: int = _INTEGER.unpack(data)[0]
        return number


def _packed(form: struct.Struct, value: Any, bits: int) -> bytes:
    if not hasattr(value, "__index__"):
        raise TypeError(
            f"an integer of {bits} bits is wanted, not {type(value).__name__} {value!r:.100}: give an int, "
            "or another serializer.class or key.serializer.class"
        )
    try:
        return form.pack(value)
    except struct.error:
        raise struct.error(f"{value} does not fit into {bits} bits") from None


def _encoding(properties: Properties | None) -> str:
    """Python's name of the character set."""
    name = str((properties or {}).get(ENCODING, "UTF8"))
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ConfigError(ENCODING, name, "a character set, as UTF-8 or ISO-8859-1") from None
