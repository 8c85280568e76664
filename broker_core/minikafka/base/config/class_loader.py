"""Classes that settings name: encoders, partitioners, handlers. A setting is a class, an object, or the
dotted name of one: Python's, or that of a class of the release that has its like here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from minikafka.base.config.property_reader import PropertyReader

_RELEASE = ("kafka.", "org.apache.kafka.")


def load_plugin(
    read: PropertyReader,
    name: str,
    value: object | None,
    default: Any,
    *,
    methods: Collection[str],
    known: Mapping[str, Any],
) -> Any:
    """What the setting ``name`` stands for; ``default`` where it is not given, or, with a fault, where it
    stands for nothing that has all of ``methods``. ``known`` has the release's names.
    """
    if value is None:
        return default
    found: Any = value
    if isinstance(value, str):
        text = value.strip()
        try:
            found = known[text] if text in known else import_name(text)
        except (ImportError, AttributeError, ValueError) as error:
            read.refuse(name, value, f"a class, an object, or a dotted name of one: {error}")
            return default
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if missing:
        read.refuse(name, value, f"a class or an object with {', '.join(methods)}: it has no {missing[0]}")
        return default
    return found


def import_name(name: str) -> Any:
    """What ``package.module.Class`` stands for; ImportError or AttributeError for nothing."""
    module, _, attribute = name.rpartition(".")
    if name.startswith(_RELEASE):
        # Not to be looked for in a package of Python's that happens to have that name.
        raise ImportError(f"the release's class {name} has no like here")
    if not module:
        raise ImportError(f"{name!r} names no module")
    return getattr(importlib.import_module(module), attribute)


def create_instance(found: Any, properties: Mapping[str, Any]) -> Any:
    """An object of a class, which gets ``properties`` if it takes an argument, as the release's do; an object
    as it is.
    """
    if not isinstance(found, type):
        return found
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = inspect.signature(found).parameters.values()
    return found(properties) if any(one.kind in positional for one in taken) else found()
