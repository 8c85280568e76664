"""The scenario scripts of all folders, and the language of scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios import admin_commands, classic_commands, cluster_commands, disk_commands, group_commands  # noqa: F401 - add their commands
from tests.scenarios.commands import VOCABULARY
from tests.scenarios.script import REWRITE, Duration, ScriptError, Vocabulary, check, run
from tests.scenarios.script_simulation import ScriptSimulation

DIRECTORY = Path(__file__).parent
SCRIPTS = sorted(DIRECTORY.glob("*/*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(DIRECTORY).as_posix())
def test_script_gives_its_stated_output(path: Path) -> None:
    with ScriptSimulation() as simulation:
        check(path, VOCABULARY, simulation)
        assert simulation.unshown_exceptions() == [], "show them with `log` if they are right"


# --- the language -------------------------------------------------------------------------------------------

TOY = Vocabulary()


@TOY.command
def say(simulation: object, *words: str, times: int = 1, wait: Duration = 0) -> Iterable[str]:
    return [" ".join(words)] * times + [f"{wait} ms"] * bool(wait)


@TOY.command
def set_(simulation: object, name: str, value: str = "none", **more: str) -> Iterable[str]:
    return [f"{name} is {value}", *(f"{key} is {value}" for key, value in more.items())]


class ToyTarget:
    def perform(self, command: Callable[[], Any]) -> list[str]:
        return list(command())


def check_text(directory: Path, text: str) -> Path:
    path = directory / "toy.txt"
    path.write_text(text)
    check(path, TOY, ToyTarget())
    return path


@pytest.fixture(autouse=True)
def _no_rewriting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "path" not in request.fixturenames:
        monkeypatch.delenv(REWRITE, raising=False)


GOOD = """\
# It speaks.

say one two times=2
  one two
  one two
# Comments and empty lines are for readers.

set x 'y z' a.b=c
  x is y z
  a.b is c
say now wait=2s
  now
  2000 ms
"""


def test_arguments_options_and_outputs_are_read_as_documented(tmp_path: Path) -> None:
    check_text(tmp_path, GOOD)


def test_another_output_is_reported_with_file_line_and_difference(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as failure:
        check_text(tmp_path, GOOD.replace("  x is y z", "  x is y"))
    assert str(failure.value).splitlines() == [
        "toy.txt:9: the output differs (MINIKAFKA_REWRITE=1 updates the script)",
        "--- expected",
        "+++ actual",
        "@@ -5,9 +5,9 @@",
        "   one two",
        " # Comments and empty lines are for readers.",
        " ",
        " set x 'y z' a.b=c",
        "-  x is y",
        "+  x is y z",
        "   a.b is c",
        " say now wait=2s",
        "   now",
        "   2000 ms",
    ]


@pytest.mark.parametrize("line", ["  one two\n", "  2000 ms\n"])
def test_a_missing_line_of_output_is_a_difference(tmp_path: Path, line: str) -> None:
    with pytest.raises(AssertionError, match="the output differs"):
        check_text(tmp_path, GOOD.replace(line, "", 1))


def test_rewriting_updates_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REWRITE, "1")
    path = check_text(tmp_path, GOOD.replace("  x is y z", "  nonsense\n  and more").replace("  now\n", ""))
    assert path.read_text() == GOOD


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "toy.txt:1: the script is empty"),
        ("say a\n", "toy.txt:1: a script begins with a comment"),
        ("# x\n\nshout a\n", "toy.txt:3: unknown command 'shout'; there are say, set"),
        (
            "# x\nsay a loud=yes\n",
            "toy.txt:2: say: unknown option 'loud'; it takes [WORDS…] [times=1] [wait=0]",
        ),
        ("# x\nsay a times=2 times=3\n", "toy.txt:2: say: times is given twice"),
        ("# x\nsay a times=two\n", "toy.txt:2: say: times must be a whole number, not 'two'"),
        ("# x\nsay a wait=2\n", "toy.txt:2: say: wait must be a time like 500ms or 5s, not '2'"),
        ("# x\nset\n", "toy.txt:2: set: missing a required argument: 'name'; it takes NAME [VALUE=none]"),
        ("# x\nset a b c\n", "toy.txt:2: set: too many positional arguments"),
        ("# x\nsay 'a\n", "toy.txt:2: No closing quotation"),
        ("# x\n  a\n", "toy.txt:2: output without a command above it"),
        ("# x\nsay a\n\n  a\n", "toy.txt:4: output without a command above it"),
        ("# x\nsay a\n a\n", "toy.txt:3: output is indented by two spaces"),
        ("# x\nsay a \n", "toy.txt:2: a line must not end with spaces"),
    ],
)
def test_a_script_that_cannot_be_run_is_refused_with_file_and_line(script: str, message: str) -> None:
    with pytest.raises(ScriptError) as failure:
        run(script, "toy.txt", TOY, ToyTarget())
    assert str(failure.value).startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("create t partitons=2", "unknown option 'partitons'"),
        ("start num.partitons=2", "unknown properties num.partitons"),
        ("stop", "no broker runs on machine 0"),
        ("begin x log", "log is not a request"),
        ("answer x", "x has no request open"),
        ("produce t x codec=zip", "KeyError..ZIP"),
        ("remove t_0", "FileNotFoundError"),
        ("zookeeper disconnect", "no broker was started on machine-0"),
    ],
)
def test_invalid_command_fails_the_script(line: str, message: str) -> None:
    with ScriptSimulation() as simulation, pytest.raises(ScriptError, match=message) as failure:
        run(f"# x\n{line}\n", "s.txt", VOCABULARY, simulation)
    assert str(failure.value).startswith("s.txt:2: ")


def test_an_exception_in_the_brokers_log_is_not_overlooked() -> None:
    script = "# x\nstart log.flush.interval.ms=1000\ncreate t\nproduce t a\nfail sync t_0\nadvance 2s\n"
    with ScriptSimulation() as simulation:
        run(script, "s.txt", VOCABULARY, simulation)
        (line,) = simulation.unshown_exceptions()
    assert line.startswith("error failed to flush log /data/t_0")
