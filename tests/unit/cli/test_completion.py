"""Completion of commands, options and names in shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import typer.main

from minikafka.cli import completion
from minikafka.cli.commands import app
from minikafka.cli.completion import candidates
from tests.support.command_line import CommandLine


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with two topics and two groups."""
    monkeypatch.setattr(completion, "_topics", lambda typed: ["orders", "payments"])
    monkeypatch.setattr(completion, "_groups", lambda typed: ["billing", "$(rm -rf x)"])


def words(line: str) -> list[str]:
    """The words that complete a line, in which the last word may be empty."""
    return [word for word, _ in candidates(typer.main.get_command(app), line.split(" "))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("to", ["topic"]),
        ("topic tr", ["trim"]),
        ("topic describe o", ["orders"]),
        ("topic describe ", ["orders", "payments"]),
        ("consume orders p", ["payments"]),
        ("consume -g b", ["billing"]),
        ("consume --group ", ["billing"]),
        ("consume orders --is", ["--isolation-level"]),
        ("consume --isolation-level read_c", ["read_committed"]),
        ("produce orders -z z", ["zstd"]),
        ("topic list --format j", ["json"]),
        ("topic list --format=y", ["yaml"]),
        ("--profile x topic list --format c", ["csv"]),
        ("group reset b", ["billing"]),
        ("group delete --topic pay", ["payments"]),
        ("produce orders ", []),
        ("up --data-dir ", []),
        ("nosuch ", []),
        ("completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_what_may_follow_is_offered(names: None, line: str, found: list[str]) -> None:
    assert words(line) == found


def test_a_cluster_that_is_away_and_a_wrong_line_are_no_errors(cli: CommandLine) -> None:
    assert cli.run("complete", "--", "topic", "describe", "--bootstrap", "127.0.0.1:1", "") == 0
    assert (cli.out, cli.err) == ("", "")
    assert cli.run("complete", "--", "topic", "describe", "--profile", "nosuch", "") == 0
    assert (cli.out, cli.err) == ("", "")
    assert cli.run("complete", "--", "consu") == 0
    assert cli.out == "consume\tPrint the messages of topics.\n"


def test_a_shell_that_is_unknown_is_told(cli: CommandLine) -> None:
    assert cli.run("completion", "tcsh") == 2
    assert "must be one of bash, zsh, fish" in cli.err
    for shell in ("zsh", "fish"):
        assert cli.run("completion", shell) == 0
        assert "minikafka complete -- " in cli.out


def bash_completes(line: str, folder: Path) -> Iterable[str]:
    """The words that bash completes at the end of ``line``, by its own script."""
    script = (
        f"source <({sys.executable} -m minikafka completion bash)\n"
        f'minikafka() {{ {sys.executable} -m minikafka "$@"; }}\n'
        'COMP_LINE="$1" COMP_POINT=${#1}\n'
        "_minikafka\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", line], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.split()


ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; autoload -U compinit; compinit -u -D; minikafka() { $PYTHON -m minikafka \\"\\$@\\" }"
zpty -w shell "source <(minikafka completion zsh)"
zpty -w shell "show() { print -r -- \\"<\\$BUFFER>\\" }; zle -N show; bindkey -e; bindkey '^X' show"
zpty -w shell "print READ''Y"
zpty -r shell found '*READY*'
for typed; do
    zpty -w -n shell $'\\x15'"$typed"$'\\t\\x18'
    zpty -r shell found '*<*>*'
    print -r -- "${${found##*<}%%>*}"
done
zpty -d shell
"""
"""Types lines in an interactive zsh, each with a tab behind it, and prints the lines that come of it."""
FISH = """\
function minikafka; $PYTHON -m minikafka $argv; end
minikafka completion fish | source
for typed in $argv
    complete -C $typed
end
"""
"""Prints the words that fish offers at the end of each line."""


def shell_output(command: list[str], folder: Path) -> list[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    (folder / "some-folder").mkdir()
    environment = {**os.environ, "PYTHON": sys.executable, "HOME": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, timeout=120, env=environment
    )
    return done.stdout.splitlines()


@pytest.mark.process
def test_zsh_completes_by_the_script(tmp_path: Path) -> None:
    typed = ["topic --bootstrap 127.0.0.1:1 des", "topic list --format=y", "up --data-dir=some"]
    lines = [f"minikafka {line}" for line in typed]
    assert shell_output(["zsh", "-f", "-c", ZSH, "zsh", *lines], tmp_path) == [
        "minikafka topic --bootstrap 127.0.0.1:1 describe ",
        "minikafka topic list --format=yaml ",
        "minikafka up --data-dir=some-folder/",
    ]


@pytest.mark.process
def test_fish_completes_by_the_script(tmp_path: Path) -> None:
    typed = ["topic tr", "topic list --format=y", "up --data-dir=some", "up --data-dir some"]
    lines = [f"minikafka {line}" for line in typed]
    found = shell_output(["fish", "--no-config", "-c", FISH, *lines], tmp_path)
    assert [word.partition("\t")[0] for word in found] == [
        "trim",
        "--format=yaml",
        "--data-dir=some-folder/",
        "some-folder/",
    ]


@pytest.mark.process
def test_bash_completes_by_the_script(tmp_path: Path) -> None:
    assert bash_completes("minikafka topic --bootstrap 127.0.0.1:1 des", tmp_path) == ["describe"]
