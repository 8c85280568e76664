"""Ctrl-C at moments when no command is there to take it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""
AT_THE_END = "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
BACKGROUND_JOB = "signal.signal(signal.SIGINT, signal.SIG_IGN)"


def ended(*before: str) -> tuple[int, str]:
    """Status and stderr of ``minikafka --help`` with ``before`` in front."""
    # The tests themselves may be a background job.
    heeded = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = "\n".join(
        ["import atexit, os, signal, sys", heeded, *before, "from minikafka.cli.main import main; main()"]
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["minikafka.cli.commands", "typer", "minikafka.cli.perf"])
def test_ctrl_c_while_commands_are_imported_ends_quietly(module: str) -> None:
    assert ended(f"MODULE = {module!r}", WHILE_IMPORTING) == (128 + signal.SIGINT, "")


def test_the_package_is_the_command_where_no_script_is_on_the_path() -> None:
    done = subprocess.run([sys.executable, "-m", "minikafka", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("minikafka ")


def test_ctrl_c_at_the_very_end_changes_nothing() -> None:
    assert ended(AT_THE_END) == (0, "")


def test_a_background_job_goes_on_ignoring_it() -> None:
    assert ended(BACKGROUND_JOB, "MODULE = 'typer'", WHILE_IMPORTING, AT_THE_END) == (0, "")
