"""The first process of a container: it passes signals on, and leaves no zombie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.embedded.process import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and adopts processes by prctl"),
]

PROGRAM = textwrap.dedent(
    """
    import ctypes, os, signal, sys, time
    from minikafka.cli.init_process import run_in_child
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: as process 1 it gets all orphans
    run_in_child()
    if os.fork() == 0:  # it leaves an orphan that ends
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.wait()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    print("up", os.getpid(), flush=True)
    while True:
        signal.pause()
    """
)


@pytest.fixture
def init() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def started(init: subprocess.Popen[str]) -> int:
    assert init.stdout is not None
    return int(init.stdout.readline().split()[1])


def test_orphans_are_reaped_and_sigterm_reaches_the_command(init: subprocess.Popen[str]) -> None:
    command = started(init)
    assert wait_until(lambda: children(init.pid) == [command], 10)
    init.send_signal(signal.SIGTERM)
    assert init.wait(10) == 7


def test_a_command_that_a_signal_ends_has_the_status_of_a_shell(init: subprocess.Popen[str]) -> None:
    os.kill(started(init), signal.SIGKILL)
    assert init.wait(10) == 128 + signal.SIGKILL
