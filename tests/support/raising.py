"""A function that only raises, to stand in for one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def raising(error: BaseException | type[BaseException]) -> Callable[..., NoReturn]:
    """Return a function that raises ``error``, whatever it is given."""

    def fail(*_arguments: object, **_more: object) -> NoReturn:
        raise error

    return fail
