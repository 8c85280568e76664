"""The first process of a container (process 1): passes signals on, and reaps orphans.

The kernel gives process 1 two duties that a program does not expect. A signal without a handler is dropped,
so SIGTERM would not end a command that has not installed one yet. And processes whose parent has ended become
its children, and stay as zombies until it waits for them. So it does these two things alone, and runs the
command as a child, with its exit status; that of a command that a signal has ended is 128 + N, as in a shell.
"""

from __future__ import annotations

import contextlib
import os
import signal

_PASSED_ON = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGCONT,
    }
)


def run_in_child() -> None:
    """Fork. The child returns; this process stays behind, and ends with the child's status."""
    handled = _PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    child = os.fork()
    if child == 0:
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(handled)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        elif (status := _reap(child)) is not None:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _reap(child: int) -> int | None:
    """Wait for all processes that have ended. Return the status of ``child`` if it is one of them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found


def _take_terminal() -> None:
    """Become the foreground group of the terminal, if there is one: it sends Ctrl-C to this process alone."""
    os.setpgid(0, 0)
    if os.isatty(0):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # the caller restores the mask
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
