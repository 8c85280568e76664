"""Child processes of tests: started in a group of their own, and surely gone at the end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from tests.spark.conftest import child_environment

PATIENCE_S = 150


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_family(pid: int) -> None:
    """SIGKILL to a process and all its descendants: Python, the JVM, Python workers."""
    family = family_of(pid)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, 30)


def spark_workers(pid: int) -> list[psutil.Process]:
    """The processes of Spark's Python workers below a program, those of the driver included."""
    found = []
    for process in family_of(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("pyspark" in word for word in process.cmdline()) and "java" not in process.name():
                found.append(process)
    return found


@contextlib.contextmanager
def python(arguments: Sequence[str], cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python interpreter with ``arguments``; killed with all its descendants at the end."""
    output = (cwd / "output.txt").open("a+")
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**child_environment(), **environment},
        stdout=output,
        stderr=output,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        kill_family(process.pid)
        process.wait(30)
        output.close()


def run_to_end(command: Sequence[str], cwd: Path, timeout_s: float, **environment: str) -> str:
    """Return the output of a program, which must end with 0; at the end it is killed with its descendants."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**child_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        finally:
            kill_family(process.pid)
    assert process.returncode == 0, output[-4_000:] + errors[-6_000:]
    return output


def output_of(cwd: Path) -> str:
    """What the interpreters in ``cwd`` have said."""
    return (cwd / "output.txt").read_text()


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until ``condition`` holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_s} s"
        time.sleep(0.1)
