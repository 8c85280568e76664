"""Definitions of settings (Kafka's ``ConfigDef``): each setting's name, type, default and meaning, once.

A class of settings is a frozen dataclass on ``AbstractConfig`` whose fields are made by ``setting``:

    @dataclass(frozen=True, slots=True)
    class CleanerConfig(AbstractConfig):
        enabled: bool = setting("log.cleaner.enable", BOOLEAN, True, "Whether logs are compacted.")

It can be created with its fields or ``from_properties``, with the same rules: a value may be text or a Python
object, None counts as not given, and every fault is in one ConfigErrors. A name that is not defined is a
warning, as in every release of Kafka, with the name that was probably meant, or the reason why minikafka does
not support it. Beside faults it is named in their error instead, see ``Faults``. The generated reference
pages are written from the same definitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from minikafka.base.config.types import Type, as_text
from minikafka.base.config.unknown_names import unknown_names, warn_of_unknown
from minikafka.base.errors import ConfigError, ConfigErrors, without_frames

Config = TypeVar("Config", bound="AbstractConfig")
T = TypeVar("T")
Default = TypeVar("Default")

REQUIRED: Final = object()
"""Marks a setting without a default."""
_KEY = "config key"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A setting of the broker that gives a topic's setting its default.

    factor: by which its number is multiplied: one ``log.roll.hours`` is 3,600,000 ms. type and doc: None if
    they are those of the topic's setting.
    """

    name: str
    factor: int = 1
    type: Type | None = None
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting.

    field: the attribute that has its value. alias: another name for it. derive: makes the default from the
    values of the other settings, by their fields. group: the section of the reference page. synonyms: by
    falling precedence.
    """

    name: str
    type: Type
    default: Any
    doc: str
    field: str = ""
    alias: str | None = None
    derive: Callable[[Mapping[str, Any]], Any] | None = None
    group: str = ""
    synonyms: tuple[Synonym, ...] = ()

    @property
    def initial(self) -> Any:
        """The value if the setting is not given; None if it is required or derives from others."""
        return None if self.default is None or self.default is REQUIRED else self.type.convert(self.default)

    @property
    def default_text(self) -> str | None:
        """The default as Kafka writes it; None if there is none."""
        return None if self.default is None or self.default is REQUIRED else as_text(self.default)


class Faults:
    """The faults of one source of settings, such as a file or the options of a query.

    Every reader of settings collects them here, so that one error names all of them, in the order given.
    """

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    def __iter__(self) -> Iterator[ConfigError]:
        return iter(self._found)

    def add(self, faults: Iterable[ConfigError]) -> None:
        """Collect ``faults``."""
        self._found.extend(faults)

    def take(self, result: tuple[T, Iterable[ConfigError]]) -> T:
        """Collect the faults of a result, and return the rest."""
        value, faults = result
        self.add(faults)
        return value

    def attempt(self, make: Callable[[], T], default: Default) -> T | Default:
        """Return what ``make`` returns, or ``default`` if it raises ConfigError, and collect its faults."""
        try:
            return make()
        except ConfigError as error:
            self.add(map(without_frames, error.faults))  # their frames hold this object, which holds them
            return default

    def check(self, given: Iterable[str] = (), unknown: Iterable[ConfigError] = ()) -> None:
        """Raise ConfigErrors if there are faults: with them, and with the names that are ``unknown``.

        They are in the order of the names in ``given``, which may be in lower case; settings that are missing
        come first. Of several faults of one name the last counts.
        """
        if self._found:
            place = {name.lower(): number for number, name in enumerate(given)}
            last = {fault.name: fault for fault in (*unknown, *self._found)}.values()
            raise ConfigErrors(sorted(last, key=lambda fault: place.get(fault.name.lower(), -1)))


class ConfigDef:
    """The settings of one class, by name."""

    def __init__(
        self,
        keys: Iterable[ConfigKey],
        unsupported: Mapping[str, str] | None = None,
        passed_on: Collection[str] = (),
        checked: Mapping[str, Type] | None = None,
    ) -> None:
        self.keys: Mapping[str, ConfigKey] = {key.name: key for key in keys}
        self._names = {key.alias: key for key in self.keys.values() if key.alias} | dict(self.keys)
        self._initial = {key.field: key.initial for key in self.keys.values()}
        self._derived = [(key.field, key.derive) for key in self.keys.values() if key.derive is not None]
        self._unsupported = unsupported or {}
        self._passed_on = passed_on
        self._checked = checked or {}

    @property
    def known(self) -> frozenset[str]:
        """All names of which something is known: also of settings that other classes read, or that are not
        supported.
        """
        names = (*self._names, *self._passed_on, *self._checked, *self._unsupported)
        return frozenset(name for name in names if not name.endswith("."))

    def fields(self, properties: Mapping[str, object]) -> tuple[dict[str, object], list[ConfigError]]:
        """Return the values given under Kafka's names, by field, and the faults in those names.

        Fields of required settings are there in any case.
        """
        found: dict[str, object] = {key.field: None for key in self.keys.values() if key.default is REQUIRED}
        faults = Faults()
        for name, checked in self._checked.items():
            if properties.get(name) is not None:
                faults.attempt(partial(checked.parse, name, properties[name]), None)
        for name, key in self._names.items():
            value = properties.get(name)
            if value is None:
                continue
            other = found.get(key.field)
            if other is not None and as_text(other) != as_text(value):
                allowed = f"is an alias of {key.name}: must be equal to it, or unset"
                faults.add([ConfigError(str(key.alias), other, allowed)])
            found[key.field] = value
        return found, list(faults)

    def parse(self, given: Mapping[str, object]) -> tuple[dict[str, Any], list[ConfigError]]:
        """Return the values of all settings, by field, and the faults.

        ``given`` has fields with text or values. A setting at fault has its default.
        """
        values, faults = dict(self._initial), []
        for key in self.keys.values():
            value = given.get(key.field)
            if value is not None:
                try:
                    values[key.field] = key.type.parse(key.name, value)
                except ConfigError as fault:
                    faults.append(fault)
            elif key.default is REQUIRED:
                faults.append(ConfigError(key.name, None, f"must be given: {key.type.allowed}"))
        for field, derive in self._derived:
            if values[field] is None:
                values[field] = derive(values)
        return values, faults

    def read(self, properties: Mapping[str, object]) -> tuple[dict[str, Any], list[ConfigError]]:
        """Return the values of all settings, by field, and the faults. Other properties are passed over."""
        fields, faults = self.fields(properties)
        values, more = self.parse(fields)
        return values, faults + more

    def unknown(self, properties: Mapping[str, object]) -> list[ConfigError]:
        """Return each given name that is not defined; see ``unknown_names.unknown_names``."""
        prefixes = tuple(name for name in self._passed_on if name.endswith("."))
        given = [name for name, value in properties.items() if value is not None]
        given = [name for name in given if not name.startswith(prefixes)]
        return unknown_names(given, {*self._names, *self._passed_on, *self._checked}, self._unsupported)


def setting(
    name: str,
    value_type: Type,
    default: Any,
    doc: str,
    group: str = "",
    *,
    alias: str | None = None,
    derive: Callable[[Mapping[str, Any]], Any] | None = None,
    synonyms: tuple[Synonym, ...] = (),
) -> Any:
    """Return the field of a dataclass for the setting ``name``; for the arguments see ``ConfigKey``."""
    key = ConfigKey(name, value_type, default, doc, "", alias, derive, group, synonyms)
    if default is REQUIRED:
        return dataclasses.field(metadata={_KEY: key})
    if key.initial.__hash__ is None:
        return dataclasses.field(default_factory=lambda: key.initial, metadata={_KEY: key})
    return dataclasses.field(default=key.initial, metadata={_KEY: key})


_definitions: dict[type, ConfigDef] = {}


def definition_of(config: type) -> ConfigDef:
    """Return the definitions of the settings of a dataclass, in order."""
    if config not in _definitions:
        keys = [
            dataclasses.replace(field.metadata[_KEY], field=field.name)
            for field in dataclasses.fields(config)
            if _KEY in field.metadata
        ]
        unsupported, passed_on = getattr(config, "UNSUPPORTED", {}), getattr(config, "PASSED_ON", ())
        _definitions[config] = ConfigDef(keys, unsupported, passed_on, getattr(config, "CHECKED", {}))
    return _definitions[config]


class AbstractConfig:
    """The base of a dataclass whose fields are settings. Raises ConfigErrors, which has every fault.

    The constructor parses what it is given, values too: a type returns a value of its own unchanged.
    """

    __slots__ = ()

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {}
    """Kafka's settings that minikafka does not have: name, or prefix that ends with a dot, and reason."""
    PASSED_ON: ClassVar[Collection[str]] = ()
    """Settings that only other classes read: names, and prefixes that end with a dot."""
    CHECKED: ClassVar[Mapping[str, Type]] = {}
    """Settings whose value is checked, and has no field."""

    def __post_init__(self) -> None:
        definition = definition_of(type(self))
        given = {key.field: getattr(self, key.field) for key in definition.keys.values()}
        values, faults = definition.parse(given)
        for field, value in values.items():
            object.__setattr__(self, field, value)
        # A setting at fault has its default here, which was not given: it conflicts with nothing.
        wrong = {fault.name for fault in faults}
        faults += [found for other, found in self._conflicts() if wrong.isdisjoint({other, found.name})]
        if faults:
            raise ConfigErrors(faults)

    @classmethod
    def from_properties(cls: type[Config], properties: Mapping[str, object]) -> Config:
        """Return the settings of a mapping of Kafka's names; a name that is not defined logs a warning.

        Raises TypeError if ``properties`` is not a mapping.
        """
        if not isinstance(properties, Mapping):
            # Not the value, which may have a password.
            raise TypeError(
                "expected a mapping of properties, such as {'group.id': 'billing', …}, "
                f"got {type(properties).__name__}"
            )
        definition, faults = definition_of(cls), Faults()
        fields = faults.take(definition.fields(properties))
        others = cls._other_fields(properties, faults)
        made = faults.attempt(lambda: cls(**fields, **others), None)
        unknown = definition.unknown(properties)
        faults.check(properties, unknown)
        assert made is not None, "there is no fault"
        warn_of_unknown(unknown)
        return made

    @classmethod
    def _other_fields(cls, properties: Mapping[str, object], faults: Faults) -> Mapping[str, object]:
        """Return the fields that are no settings, of ``from_properties``, and collect the faults in them."""
        return {}

    def _conflicts(self) -> Iterable[tuple[str, ConfigError]]:
        """Return the faults between two settings that are valid alone: the name of one, the error of the
        other.
        """
        return ()
