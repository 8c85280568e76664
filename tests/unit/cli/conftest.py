from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import typer.main


@pytest.fixture(scope="session", autouse=True)
def command_tree() -> Iterator[None]:
    """Let typer build the tree of commands once: it reads the signatures of all, and does so at each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield
