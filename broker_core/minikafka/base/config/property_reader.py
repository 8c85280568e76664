"""Reader of settings under Kafka's property names that reports all faults together.

Values may be text, as in a property file, or Python objects; blanks around a text are removed. As in Kafka
0.10.1 (``VerifiableProperties``), booleans are ``true`` and ``false`` in small letters only, integers have 32
bits, and an unknown name is a warning, not a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.config.parsers import whole_number
from minikafka.base.config.unknown_names import warn_of_unknown
from minikafka.base.errors import ConfigError, ConfigErrors

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


class PropertyReader:
    """Reads one mapping of properties; a value of None counts as not given.

    A setting that cannot be read is recorded as a fault and has its default value until ``finish`` raises.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        self._given = {name: _text_of(value) for name, value in properties.items() if value is not None}
        self._known: set[str] = set()
        self._faults: list[ConfigError] = []

    def optional(self, name: str) -> str | None:
        """Return a text; None if it is not given."""
        self._known.add(name)
        return self._given.get(name)

    def text(self, name: str, default: str) -> str:
        """Return a text."""
        found = self.optional(name)
        return default if found is None else found

    def required(self, name: str, allowed: str) -> str | None:
        """Return a text that must be given; None, and a fault, if it is not. ``allowed`` describes the value
        that is expected.
        """
        found = self.optional(name)
        if found is None:
            self.refuse(name, None, f"must be given: {allowed}")
        return found

    def integer(self, name: str, default: int, least: int = INT32_MIN, most: int = INT32_MAX) -> int:
        """Return a whole number from ``least`` to ``most``, both included."""
        text = self.text(name, str(default))
        number = whole_number(text)
        if number is None or not least <= number <= most:
            self.refuse(name, text, f"must be a whole number from {least} to {most}")
            return default
        return number

    def boolean(self, name: str, default: bool) -> bool:
        """Return the truth value of ``true`` or ``false``."""
        text = self.text(name, "true" if default else "false")
        if text not in {"true", "false"}:
            self.refuse(name, text, "must be true or false")
            return default
        return text == "true"

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """Return a value that must be among ``choices``."""
        text, choices = self.text(name, default), tuple(choices)
        if text not in choices:
            self.refuse(name, text, f"must be one of {', '.join(choices)}")
            return default
        return text

    def refuse(self, name: str, value: object, allowed: str) -> None:
        """Record a fault."""
        self._faults.append(ConfigError(name, value, allowed))

    def finish(self) -> None:
        """Log a warning for each name that was not read, and raise ConfigErrors with all faults.

        Names that begin with ``external`` belong to other programs, as in 0.10.1. The fault of a missing
        setting suggests a given name that is similar to it.
        """
        meant = warn_of_unknown(self._given, self._known)
        if self._faults:
            raise ConfigErrors([_explained(fault, meant) for fault in self._faults])


def _explained(fault: ConfigError, meant: Mapping[str, str]) -> ConfigError:
    given = meant.get(fault.name) if fault.value is None else None
    if given is None:
        return fault
    return ConfigError(fault.name, None, f"{fault.allowed} (found {given}, did you mean {fault.name}?)")


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
