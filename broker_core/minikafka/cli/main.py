"""The console script ``minikafka``: a process that ends with a status and never with a traceback.

Ctrl-C may come at any moment, also while the commands are imported, so its handler is installed before any
import. Status 130 means that it ended a command.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process."""
    if sys.platform == "win32":
        print("minikafka: runs on Linux and macOS; on Windows, run it inside WSL", file=sys.stderr)
        sys.exit(2)
    if os.getpid() == 1:
        from minikafka.cli.init_process import run_in_child

        run_in_child()
    # A shell's background job ignores Ctrl-C, and must continue to do so.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if ours:
            signal.signal(signal.SIGINT, _leave)
        from minikafka.cli.commands import run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    # The status is final. Signals that this command handled are ignored from here on: at its end the
    # interpreter restores the system's handlers, which kill the process. Python reports a signal that arrives
    # during the change: this thread blocks it, and the report of another thread's is suppressed.
    sys.unraisablehook = _unless_a_late_signal
    taken = {number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))}
    signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    for number in taken:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def _unless_a_late_signal(unraisable: sys.UnraisableHookArgs) -> None:
    if "ignored due to race condition" not in str(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)


def _leave(number: int, frame: FrameType | None) -> None:
    # Exit at once: nothing was started, and an exception inside an import may be printed.
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
