"""Find processes that a test run left behind, by ``MINIKAFKA_TEST_RUN=<argument>`` in their environment.

They get ten seconds to end, as embedded brokers watch their owners and need a moment. Each that is then still
alive is named, with its Python stack and connections, and killed; the status is 1.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

PATIENCE_S = 10.0


def marked(run: str) -> list[psutil.Process]:
    """Processes of the run, without this one and those above it."""
    above = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in above and process.environ().get("MINIKAFKA_TEST_RUN") == run:
                found.append(process)
        except psutil.Error:  # ended meanwhile, or somebody else's
            continue
    return found


def describe(process: psutil.Process) -> str:
    """Return what is needed to find out why the process is still alive."""
    lines = [f"left behind: {process.pid} {' '.join(process.cmdline())[:200]}"]
    age_s = time.time() - process.create_time()
    lines.append(f"    {process.status()}, {age_s:.0f} s old, of {process.ppid()}")
    lines += [f"    {end.laddr} {end.raddr} {end.status}" for end in process.net_connections(kind="inet")]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        dump = [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(process.pid)]
        done = subprocess.run(dump, capture_output=True, text=True, timeout=20, check=False)
        lines += [f"    {line}" for line in done.stdout.splitlines()]
    return "\n".join(lines)


def main(run: str) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while (left := marked(run)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        try:
            print(describe(process))
            process.kill()
        except psutil.Error:
            continue
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
