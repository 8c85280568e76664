"""Classes that settings name: encoders, partitioners, handlers.

The value of such a setting is a class, an object, or a dotted name: of a Python class or object, or of a Java
or Scala class of Kafka's that has a counterpart here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from minikafka.base.config.types import Type

_RELEASE = ("kafka.", "org.apache.kafka.")


def plugin(known: Mapping[str, Any], *methods: str) -> Type:
    """Return the type of a setting that names a class or object with all of ``methods``.

    ``known`` maps the names of Kafka's classes to their counterparts.
    """

    def convert(given: object) -> Any:
        found = given
        if isinstance(given, str):
            text = given.strip()
            try:
                found = known[text] if text in known else import_name(text)
            except (ImportError, AttributeError, ValueError) as error:
                raise ValueError(f"must be a class, an object, or a dotted name of one: {error}") from None
        missing = [method for method in methods if not callable(getattr(found, method, None))]
        if missing:
            raise ValueError(
                f"must be a class or an object with {', '.join(methods)}: it has no {missing[0]}"
            )
        return found

    return Type(f"a class or an object with {', '.join(methods)}", convert)


def import_name(name: str) -> Any:
    """Import ``package.module.Class``. Raises ImportError or AttributeError if there is none."""
    module, _, attribute = name.rpartition(".")
    if name.startswith(_RELEASE):
        # Do not search a Python package that happens to have that name.
        raise ImportError(f"Kafka's class {name} has no counterpart in minikafka")
    if not module:
        raise ImportError(f"{name!r} is not a dotted name: expected package.module.Class")
    return getattr(importlib.import_module(module), attribute)


def create_instance(found: Any, properties: Mapping[str, Any]) -> Any:
    """Instantiate a class, with ``properties`` if it takes an argument, as Kafka does; return an object as it
    is.
    """
    if not isinstance(found, type):
        return found
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(found).parameters.values()
    return found(properties) if any(parameter.kind in positional for parameter in parameters) else found()
