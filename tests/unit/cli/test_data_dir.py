from __future__ import annotations

import os
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.options import check_data_dir, check_has_cluster
from tests.support.command_line import CommandLine

COMMANDS = [
    ["up"],
    ["produce", "t"],
    ["consume", "t"],
    ["topic", "create", "t"],
    ["topic", "list"],
    ["perf", "produce", "t"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("below", [".", "below"])
def test_a_file_in_its_place_is_told_in_a_sentence(
    tmp_path: Path, cli: CommandLine, command: list[str], below: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert cli.run(*command, "--data-dir", str(file / below)) == 2
    assert "is not a directory; choose another path" in cli.err
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize("command", [*([*words, "--data-dir"] for words in COMMANDS), ["stop"]], ids=" ".join)
@pytest.mark.parametrize("nothing", ["", " "])
def test_no_name_is_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, command: list[str], nothing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(*command, nothing) == 2
    option = "D" if command == ["stop"] else "--data-dir"
    assert cli.err == (f"minikafka: {option}={nothing!r}: must name a directory; use . for the current one\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["d", "d/new/one"])
def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "d")
    with pytest.raises(ConfigError, match="not writable for this user"):
        check_data_dir(tmp_path / name)


def test_a_new_directory_in_any_depth_can_be_used_and_is_not_made(tmp_path: Path) -> None:
    check_data_dir(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_has_a_cluster_once_a_broker_was_started_in_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no minikafka cluster"):
        check_has_cluster(tmp_path)
    (tmp_path / "broker-0.properties").touch()
    check_has_cluster(tmp_path)
