"""Reports of a child process to its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.reports import VARIABLE, parse_report

PROGRAM = """
import os, sys
from minikafka.base.reports import VARIABLE, report
report("compiling", done=5, of=17)
report("failed", message="x" * 100_000)
report("warning", message="\u00fc" * 2_000)
assert VARIABLE not in os.environ
"""


@pytest.mark.process
def test_reports_are_lines_of_json_on_the_pipe_that_was_passed() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as lines:
        environment = {**os.environ, VARIABLE: str(writing), "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, pass_fds=(writing,), check=True)
        os.close(writing)
        first, second, third = (parse_report(line) for line in lines)
    assert first == {"type": "compiling", "done": 5, "of": 17}
    assert second == {"type": "failed", "message": "x" * 2000}
    assert third == {"type": "warning", "message": "\u00fc" * 500}


@pytest.mark.process
@pytest.mark.parametrize("given", ["", "99", "nonsense", "file"])
def test_without_a_pipe_nothing_is_written(tmp_path: Path, given: str) -> None:
    with open(tmp_path / "file", "wb") as file:
        number = str(file.fileno()) if given == "file" else given
        environment = {**os.environ, VARIABLE: number, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, pass_fds=(file.fileno(),), check=True
        )
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize(
    "line", [b"", b"ready", b"[]", b"{}", b'{"type": 3}', b"\xff", json.dumps("a").encode()]
)
def test_anything_else_is_no_report(line: bytes) -> None:
    assert parse_report(line) is None
