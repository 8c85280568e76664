"""The tables of docs/reference/cli-for-kafka-users.md: each command of ours exists, with its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from minikafka.cli.commands import app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli-for-kafka-users.md"
COMMANDS = re.findall(r"`minikafka ([^`]+)`", PAGE.read_text(encoding="utf-8").partition("## An hour")[0])


def parsed(words: list[str]) -> Any:
    """Parse a command line as typer does, without running it; raises for one that it would refuse."""
    command, context = typer.main.get_command(app), None
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return command.make_context("minikafka", words, parent=context)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_can_be_typed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "0.log").touch()
    with parsed(shlex.split(line)):
        pass


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 50
