"""Values that are made by the million: frozen for who checks types, quick to make where they run.

``@dataclass(frozen=True)`` sets every field through ``object.__setattr__``, and takes six times as long to
make. ``@fast_value`` is the same to a type checker, which refuses every assignment to a field, and has slots,
equality and a hash; at run time nothing refuses one. For what every request makes; elsewhere the frozen
dataclass is the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[T], T]:
        """Python 3.10 has none, and only type checkers need it."""
        return lambda decorated: decorated


@dataclass_transform(frozen_default=True)
def fast_value(cls: type[T]) -> type[T]:
    """The class decorator."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
