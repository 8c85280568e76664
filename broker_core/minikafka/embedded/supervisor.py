"""The process between a parent and its child, which ends the child when the parent ends. Run as a script.

    python -I -S supervisor.py OPTIONS COMMAND…     OPTIONS is JSON, see ``process.ChildProcess``

Reasons for a separate process: Linux can signal a child when its parent dies (``PR_SET_PDEATHSIG``), but
"parent" is the *thread* that forked, and threads of a notebook or of a Spark worker end early; setting it
needs code between fork and exec, which is not safe with threads; and macOS does not have it. The alternative,
a pipe that ends with the parent, must be watched, which neither Java nor a blocked broker would do. This
process has one lasting main thread, forks before it starts another, and costs about 10 MB and 20 ms. So:

- when the parent dies: the parent holds the write end of a pipe, and reading it ends with the parent (also on
  macOS). On Linux the supervisor also requests a signal, in case a forked copy of the parent still holds the
  pipe, and checks that its parent has really changed;
- when the supervisor dies: on Linux the child gets SIGKILL when the supervisor's main thread dies.

On SIGTERM or the parent's death, the child gets SIGTERM, and its process group SIGKILL after ``grace_s`` or
``orphan_grace_s``. On SIGUSR1 it gets SIGKILL at once. The child's output goes to a log file with rotation,
and is not read. A second pipe gets two JSON lines of the supervisor:

    {"type": "started", "pid": N}
    {"type": "exited", "code": N}       -N for signal N

The child inherits a third pipe, for its own reports (``base.reports``).

Only the standard library, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1
LIFELINE_ENDED = signal.SIGUSR2
PARENT_THREAD_DIED = signal.SIGHUP
HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, LIFELINE_ENDED, PARENT_THREAD_DIED)


class RotatingLog:
    """A log file that is rotated at ``max_bytes`` into ``path.1`` to ``path.KEEP``."""

    def __init__(self, path: str, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor = self._open()

    def write(self, data: bytes) -> None:
        """Append. Output that does not fit on the disk is lost: the child must not block on its log."""
        try:
            status = os.fstat(self._descriptor)
            if status.st_nlink == 0:
                self._reopen()
            size = status.st_size if status.st_nlink else 0
            if size and size + len(data) > self._max_bytes:
                self._rotate()
            os.write(self._descriptor, data)
        except OSError:
            return

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _reopen(self) -> None:
        """Create the file again after it was deleted, and its directory, but not the directory above that."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(self._path), 0o700)
        descriptor = self._open()
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _rotate(self) -> None:
        if os.path.exists(self._path):
            for number in range(self._keep - 1, 0, -1):
                if os.path.exists(f"{self._path}.{number}"):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
        descriptor = self._open()
        os.close(self._descriptor)
        self._descriptor = descriptor


def pump(source: int, log: RotatingLog) -> None:
    """Copy the child's output to the log until it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    while data := os.read(source, 65536):
        log.write(data)


def write_status(status: int, kind: str, **fields: int) -> None:
    """Write one JSON line to the status pipe, whose reader may have ended."""
    with contextlib.suppress(OSError):
        os.write(status, json.dumps({"type": kind, **fields}).encode("ascii") + b"\n")


def watch_lifeline(lifeline: int, main_thread: int) -> None:
    """Wait for the end of the parent's pipe, then let the main thread stop the child."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    while os.read(lifeline, 1):
        pass
    signal.pthread_kill(main_thread, LIFELINE_ENDED)


def end_with_parent(number: int) -> None:
    """On Linux, request signal ``number`` for the death of the thread that forked this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def spawn(command: list[str], output: int) -> int:
    """Fork and exec ``command`` in its own process group, with its output to ``output``; return its pid."""
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # parent and child both do it, to avoid a race
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        end_with_parent(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)  # the supervisor died before the signal was requested
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python and inherited through exec
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def handle_signals(child: int, parent: int, grace_s: float, orphan_grace_s: float) -> None:
    """Install the signal handlers, which stop the child. The signals stay blocked."""

    def stop_child(within_s: float) -> None:
        remaining_s, _ = signal.getitimer(signal.ITIMER_REAL)
        if not 0 < remaining_s < within_s:
            signal.setitimer(signal.ITIMER_REAL, max(within_s, 0.001))
        os.kill(child, signal.SIGTERM)

    def on_signal(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            if number in (signal.SIGUSR1, signal.SIGALRM):
                os.killpg(child, signal.SIGKILL)
            elif number == signal.SIGTERM:
                stop_child(grace_s)
            elif number == LIFELINE_ENDED or os.getppid() != parent:
                stop_child(orphan_grace_s)

    for number in HANDLED:
        signal.signal(number, on_signal)


def main() -> None:
    """Run the child until it ends."""
    options = json.loads(sys.argv[1])
    lifeline, status, parent = options["lifeline"], options["status"], options["parent"]
    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    log = RotatingLog(options["log"], options["log_max_bytes"], options["log_keep"])
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    source, output = os.pipe()
    os.environ["MINIKAFKA_REPORTS_FD"] = str(options["reports"])
    child = spawn(sys.argv[2:], output)
    os.close(output)
    os.close(options["reports"])  # so that the pipe ends with the child
    handle_signals(child, parent, options["grace_s"], options["orphan_grace_s"])
    write_status(status, "started", pid=child)

    pumping = threading.Thread(target=pump, args=(source, log), daemon=True)
    pumping.start()
    main_thread = threading.get_ident()
    threading.Thread(target=watch_lifeline, args=(lifeline, main_thread), daemon=True).start()
    end_with_parent(PARENT_THREAD_DIED)
    if os.getppid() != parent:
        os.kill(os.getpid(), PARENT_THREAD_DIED)  # the parent died before the request
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    _, outcome = os.waitpid(child, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    pumping.join(1.0)  # a process that the child started may still hold its output
    write_status(status, "exited", code=os.waitstatus_to_exitcode(outcome))
    os._exit(0)


if __name__ == "__main__":
    main()
