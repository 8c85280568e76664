"""Find what a test run left behind: processes with ``MINIKAFKA_TEST_RUN=<argument>`` in their environment.

They get ten seconds to end, as embedded brokers watch their owners and need a moment. What is then still
there is named, killed, and makes the status 1.
"""

from __future__ import annotations

import os
import sys
import time

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


def main(run: str) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while (left := marked(run)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        try:
            age_s = time.time() - process.create_time()
            print(f"left behind: {process.pid} {' '.join(process.cmdline())[:200]}")
            print(f"    {process.status()}, {age_s:.0f} s old, of {process.ppid()}")
            process.kill()
        except psutil.Error:
            continue
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
