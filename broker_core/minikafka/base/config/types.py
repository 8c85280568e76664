"""Types of settings: the values that a setting can have, and the text and objects that stand for them.

One rule for all settings of brokers, topics, clients and Spark options, as in Kafka's ``ConfigDef``: blanks
around a text are removed; ``true`` and ``false`` are read in any case, and nothing else is a truth value;
numbers are those of Java (``int`` of Python also takes ``1_000`` and digits of other scripts). Words are read
in any case, but for those of topics and brokers, which every broker of a cluster must understand. Any value
may also be given as the Python object that it stands for: a number, a bool, an enum member, a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import partial
from typing import Any

from minikafka.base.config.unknown_names import NOT_YET
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_RELEASE = re.compile(r"((?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8}))+)(?:-IV(0|[1-9][0-9]{0,8}))?")
_DIGITS_MAX = 19
"""The digits of 64 bits. ``int`` refuses thousands of them, with an error of its own."""
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class ConfigType(IntEnum):
    """Kafka's own types of settings, by their numbers in the protocol, which DescribeConfigs returns."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a setting. ``allowed`` describes its values, as in "must be …". ``kind`` is Kafka's type.

    ``convert`` takes what is given and returns the value. For another one it raises ValueError, with a text
    of its own if ``allowed`` says too little, or ConfigError, as parsers of a single value do.
    """

    allowed: str
    convert: Callable[[Any], Any]
    kind: ConfigType = ConfigType.STRING

    def parse(self, name: str, given: object) -> Any:
        """Return the value. Raises ConfigError with the property, what is given and what is allowed."""
        try:
            return self.convert(given)
        except ConfigError as error:
            raise ConfigError(name, given, error.allowed) from None
        except ValueError as error:
            raise ConfigError(name, given, str(error) or f"must be {self.allowed}") from None

    def then(self, change: Callable[[Any], Any]) -> Type:
        """Return the type with the same values given, each changed by ``change``."""
        return Type(self.allowed, lambda given: change(self.convert(given)), self.kind)

    def as_kind(self, kind: ConfigType) -> Type:
        """Return the type with the same values that is another one of Kafka's."""
        return replace(self, kind=kind)


def as_text(value: object) -> str:
    """Return what is given as text, without blanks around it: lists with commas, enum members by name."""
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(as_text, value))
    if isinstance(value, (set, frozenset)):
        return ",".join(sorted(map(as_text, value)))
    return str(value).strip()


def text_type(allowed: str, convert: Callable[[str], Any], kind: ConfigType = ConfigType.STRING) -> Type:
    """Return a type whose values are written as text. It refuses a Password, whose text is not its value."""

    def read(given: object) -> Any:
        if isinstance(given, Password):
            raise ValueError("must be text, not a Password")
        return convert(as_text(given))

    return Type(allowed, read, kind)


def whole_number(text: str) -> int | None:
    """Return the number in ``text``, which may have blanks around it; None for anything else, and for more
    than 19 digits.
    """
    stripped = text.strip()
    return int(stripped) if _WHOLE_NUMBER.fullmatch(stripped) else None


def digits(text: str, most: int = LONG_MAX) -> int | None:
    """Return the number that consists of the digits 0 to 9 alone, if it is at most ``most``; else None."""
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        return None
    value = int(text)
    return value if value <= most else None


def digit_list(text: str, separator: str = ",", most: int = INT_MAX) -> list[int] | None:
    """Return the numbers of a list, which may have blanks around them; None if one is no number."""
    found = [digits(word.strip(), most) for word in text.split(separator)]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def integer(low: int, high: int | None = None) -> Type:
    """Return the type of a whole number from ``low`` to ``high``, both included; None: no upper bound."""

    def convert(text: str) -> int:
        value = whole_number(text)
        if value is None or value < low or (high is not None and value > high):
            raise ValueError
        return value

    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    kind = ConfigType.LONG if high is None or high > INT_MAX else ConfigType.INT
    return text_type(f"a whole number {bounds}", convert, kind)


int32 = partial(integer, high=INT_MAX)
"""Kafka's INT of at least ``low``."""
int64 = partial(integer, high=LONG_MAX)
"""Kafka's LONG of at least ``low``."""


def seconds(type_: Type) -> Type:
    """Return the type of a number of seconds, whose value is in milliseconds."""
    return type_.then(lambda number: 1000 * number)


def capped_int64(low: int) -> Type:
    """Return the type of a LONG of at least ``low`` that counts as 2^31 - 1 above it: 24 days, or 2 GiB."""
    return int64(low).then(lambda value: min(value, INT_MAX))


def real_number(allowed: str, accepts: Callable[[float], bool]) -> Type:
    """Return the type of a number that ``accepts`` is True for."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError from None
        if "_" in text or not text.isascii() or not accepts(value):
            raise ValueError
        return value

    return text_type(allowed, convert, ConfigType.DOUBLE)


def choice(values: Mapping[str, Any], allowed: str | None = None, *, exact: bool = False) -> Type:
    """Return the type of one of the words in ``values``, whose value is given with it.

    exact: a word in other letters, such as capital ones, is refused.
    """
    known = values if exact else {word.lower(): value for word, value in values.items()}

    def convert(text: str) -> Any:
        try:
            return known[text if exact else text.lower()]
        except KeyError:
            raise ValueError from None

    return text_type(allowed or f"one of {', '.join(values)}", convert)


def one_of(*words: str, exact: bool = False) -> Type:
    """Return the type of one of ``words``."""
    return choice({word: word for word in words}, exact=exact)


def matching(pattern: re.Pattern[str], allowed: str) -> Type:
    """Return the type of a text that is a full match of ``pattern``."""

    def convert(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError
        return text

    return text_type(allowed, convert)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kafka, such as 0.10.1, or a step in the development of one, such as 2.1-IV2.

    numbers: two or more.
    step: the number behind ``-IV``; None for the release itself, which is later than all its steps.
    """

    numbers: tuple[int, ...]
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Release:
        """Raises ValueError for other text."""
        found = _RELEASE.fullmatch(text)
        if found is None:
            raise ValueError
        return cls(tuple(map(int, found[1].split("."))), None if found[2] is None else int(found[2]))

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) + ("" if self.step is None else f"-IV{self.step}")


def release_type(allowed: str, is_allowed: Callable[[Release], bool]) -> Type:
    """Return the type of a release of Kafka: of those that the setting allows."""

    def convert(text: str) -> Release:
        found = Release.parse(text)
        if not is_allowed(found):
            raise ValueError
        return found

    return text_type(allowed, convert)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def checked(allowed: str, check: Callable[[str], object]) -> Type:
    """Return the type of a text that ``check`` takes; it raises ConfigError or ValueError for others."""

    def convert(text: str) -> str:
        check(text)
        return text

    return text_type(allowed, convert)


BOOLEAN = choice({"true": True, "false": False}, "true or false").as_kind(ConfigType.BOOLEAN)
TEXT = text_type("text", _not_empty)
ANY_TEXT = text_type("text", str)
"""A text that may be empty."""
WORDS = text_type(
    "words, separated by commas",
    lambda text: tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip()))),
    ConfigType.LIST,
)
"""A list without repetitions; it may be empty."""
SECURITY_PROTOCOL = choice({"PLAINTEXT": "PLAINTEXT"}, f"PLAINTEXT: TLS and SASL are {NOT_YET}")
"""A protocol of connections. Another one is refused, because nothing would be encrypted or authenticated."""
PASSWORD = Type("text", Password.of, ConfigType.PASSWORD)
"""A secret: its text is ``***`` wherever it is shown."""
