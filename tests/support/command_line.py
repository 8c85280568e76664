"""Commands of ``minikafka``, run in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.cli.commands import run


class CommandLine:
    """Runs commands, and keeps what the last one has printed."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.out = self.err = ""
        self.options: tuple[str, ...] = ()
        """Options of every command."""

    def run(self, *words: str) -> int:
        """Run a command. Return its status."""
        self._capture.readouterr()
        status = run([*words, *self.options])
        self.out, self.err = self._capture.readouterr()
        return status

    @property
    def lines(self) -> list[str]:
        """The lines on stdout."""
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of JSON on stdout."""
        return [json.loads(line) for line in self.lines]
