"""Child processes: output, stopping, and their end with the parent, however that ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import DirectoryLocked
from minikafka.embedded import lock
from minikafka.embedded.owners import process_info
from minikafka.embedded.process import ChildProcess, ProcessFailed, wait_until

PATIENCE_S = 20.0
READY = "from minikafka.base.reports import report; report('ready', {}); "
"""A child that reports itself, with the fields in the braces."""
FOREVER = READY.format("") + "import time; time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + FOREVER

Start = Callable[..., ChildProcess]

Orphan = Callable[..., tuple[subprocess.Popen[bytes], int]]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="this way to notice a death is Linux' own")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def runs(pid: int) -> bool:
    return process_info(pid) is not None


def ends(pid: int) -> bool:
    """Return True if the process ends soon."""
    return wait_until(lambda: not runs(pid), PATIENCE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts children, and ends those that a test leaves."""
    started: list[ChildProcess] = []

    def make(command: list[str], **options: object) -> ChildProcess:
        options = {"name": "child", "log": str(tmp_path / "logs" / "child.log"), **options}
        child = ChildProcess(command, **options)  # type: ignore[arg-type]
        started.append(child)
        return child

    yield make
    for child in started:
        child.kill()


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[Orphan]:
    """Start another process with a child; return it and the child's pid."""
    parents: list[subprocess.Popen[bytes]] = []

    def make(before_end: str, child: str = FOREVER) -> tuple[subprocess.Popen[bytes], int]:
        code = f"""
import os, sys, threading, time, signal
from minikafka.embedded.process import ChildProcess
def start():
    global child
    child = ChildProcess([sys.executable, "-c", {child!r}], name="child", log={str(tmp_path / "child.log")!r},
                         orphan_grace_s=0.3)
    child.wait_for_report("ready", 20)
{before_end}
"""
        parent = subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        parents.append(parent)
        assert parent.stdout is not None
        return parent, int(parent.stdout.readline())

    yield make
    for parent in parents:
        parent.kill()
        parent.communicate()


# Output


def test_output_goes_to_the_log(start: Start, tmp_path: Path) -> None:
    child = start(python("import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr)"))
    assert child.wait(PATIENCE_S) == 0
    assert (tmp_path / "logs" / "child.log").read_text() == "to stdout\nto stderr\n"


def test_the_log_is_appended_to(start: Start, tmp_path: Path) -> None:
    for word in ("first", "second"):
        start(python(f"print('{word}')")).wait(PATIENCE_S)
    assert (tmp_path / "logs" / "child.log").read_text() == "first\nsecond\n"


def test_the_log_is_rotated_by_size(start: Start, tmp_path: Path) -> None:
    start(python("for n in range(6000): print(f'{n:099d}')"), log_max_bytes=100_000, log_keep=2).wait(
        PATIENCE_S
    )
    files = {path.name: path.read_bytes() for path in (tmp_path / "logs").iterdir()}
    assert set(files) == {"child.log", "child.log.1", "child.log.2"}
    assert all(0 < len(text) <= 100_000 for text in files.values())
    assert b"".join(files[name] for name in sorted(files, reverse=True)).endswith(b"%099d\n" % 5999)


@pytest.mark.parametrize("removed", ["logs", "logs/child.log"])
def test_a_log_that_was_removed_is_begun_again(start: Start, tmp_path: Path, removed: str) -> None:
    path = str(tmp_path / removed)
    remove = f"(shutil.rmtree if os.path.isdir({path!r}) else os.remove)({path!r})"
    start(python(f"import os, shutil; {remove}; print('after')")).wait(PATIENCE_S)
    assert (tmp_path / "logs" / "child.log").read_text() == "after\n"
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0


def test_log_does_not_recreate_a_removed_data_directory(start: Start, tmp_path: Path) -> None:
    remove = f"shutil.rmtree({str(tmp_path / 'data')!r})"
    child = start(
        python(f"import shutil; {remove}; print('after')"), log=str(tmp_path / "data" / "logs" / "child.log")
    )
    assert child.wait(PATIENCE_S) == 0
    assert not (tmp_path / "data").exists()


def test_report_is_returned_also_after_the_end(start: Start) -> None:
    child = start(python(READY.format("address='h:1'") + "report('phase', phase='serving')"))
    assert child.wait_for_report("ready", PATIENCE_S) == {"type": "ready", "address": "h:1"}
    child.wait(PATIENCE_S)
    assert child.last_report("ready") == {"type": "ready", "address": "h:1"}
    assert child.report == {"type": "phase", "phase": "serving"}


def test_report_in_pieces_is_put_together(start: Start) -> None:
    code = (
        "import os, time; pipe = int(os.environ['MINIKAFKA_REPORTS_FD'])\n"
        """for c in b'{"type": "ready"}\\n': os.write(pipe, bytes([c])); time.sleep(0.001)"""
    )
    assert start(python(code)).wait_for_report("ready", PATIENCE_S) == {"type": "ready"}


def test_last_report_of_an_ended_child_is_known(start: Start) -> None:
    child = start(python(READY.format("") + "report('failed', message='why'); raise SystemExit(1)"))
    assert child.wait(PATIENCE_S) == 1
    assert child.last_report("failed") == {"type": "failed", "message": "why"}


def test_ready_line_in_the_output_is_no_report(start: Start) -> None:
    child = start(python("print('ready h:1 cluster x')"))
    with pytest.raises(ProcessFailed, match="child ended with exit code 0"):
        child.wait_for_report("ready", PATIENCE_S)


def test_child_that_ends_early_is_an_error_with_its_log_tail(start: Start) -> None:
    child = start(python("import sys; sys.exit('no such thing')"))
    with pytest.raises(ProcessFailed, match=r"child ended with exit code 1.*child\.log:\nno such thing"):
        child.wait_for_report("ready", PATIENCE_S)


def test_last_words_leave_out_the_frames_of_java(start: Start) -> None:
    frames = "\\n".join(f"\\tat Some.method(Some.java:{number})" for number in range(50))
    child = start(python(f"print('the cause\\n{frames}\\nthe end')"))
    with pytest.raises(ProcessFailed, match=r"child\.log:\nthe cause\nthe end$"):
        child.wait_for_report("ready", PATIENCE_S)


def test_a_line_that_does_not_come_in_time_is_an_error(start: Start) -> None:
    child = start(python("import time; time.sleep(600)"))
    with pytest.raises(ProcessFailed, match=r"'ready' within 0\.05 s and wrote nothing"):
        child.wait_for_report("ready", 0.05)
    assert child.exit_code is None


def test_a_child_reads_nothing(start: Start) -> None:
    assert start(python("import sys; sys.exit(len(sys.stdin.read()))")).wait(PATIENCE_S) == 0


# Ending


@pytest.mark.parametrize("code", [0, 1, 2, 143])
def test_the_exit_code_is_the_childs(start: Start, code: int) -> None:
    assert start(python(f"import sys; sys.exit({code})")).wait(PATIENCE_S) == code


def test_exit_code_names_the_signal(start: Start) -> None:
    child = start(python(FOREVER))
    child.wait_for_report("ready", PATIENCE_S)
    os.kill(child.pid, signal.SIGSEGV)
    assert child.wait(PATIENCE_S) == -signal.SIGSEGV


def test_a_command_that_does_not_exist_is_an_error(start: Start) -> None:
    child = start(["/nonexistent/program"])
    with pytest.raises(
        ProcessFailed, match=r"exit code 127.*\ncannot run /nonexistent/program: No such file"
    ):
        child.wait_for_report("ready", PATIENCE_S)


def test_stop_lets_a_child_end_by_itself(start: Start) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); " + FOREVER
    child = start(python(code))
    child.wait_for_report("ready", PATIENCE_S)
    assert child.stop() == 7


def test_stop_kills_a_child_that_does_not_end(start: Start) -> None:
    child = start(python(STUBBORN), grace_s=0.1)
    child.wait_for_report("ready", PATIENCE_S)
    assert child.stop() == -signal.SIGKILL


def test_stop_works_right_after_the_start(start: Start) -> None:
    assert start(python(FOREVER)).stop() == -signal.SIGTERM


def test_stop_of_an_ended_child_returns_its_exit_code(start: Start) -> None:
    child = start(python("raise SystemExit(5)"))
    child.wait(PATIENCE_S)
    assert child.stop() == 5
    assert child.kill() == 5


def test_kill_does_not_wait(start: Start) -> None:
    child = start(python(STUBBORN))
    child.wait_for_report("ready", PATIENCE_S)
    assert child.kill() == -signal.SIGKILL


def test_kill_ends_the_childs_process_group(start: Start) -> None:
    code = (
        "import subprocess, sys, time\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        + READY.format("pid=below.pid")
        + "time.sleep(600)"
    )
    child = start(python(code))
    below = child.wait_for_report("ready", PATIENCE_S)["pid"]
    assert isinstance(below, int)
    child.kill()
    assert ends(below)


def test_the_end_is_reported_once(start: Start) -> None:
    codes: list[int] = []
    reported = threading.Event()

    def on_exit(code: int) -> None:
        codes.append(code)
        reported.set()

    child = start(python("raise SystemExit(3)"), on_exit=on_exit)
    assert reported.wait(PATIENCE_S)
    child.stop()
    assert codes == [3]


def test_no_zombie_is_left_without_a_wait(start: Start) -> None:
    child = start(python("pass"))
    supervisor = child._supervisor.pid
    assert child.wait(PATIENCE_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(supervisor, 0)


def test_no_descriptor_is_left(start: Start) -> None:
    start(python("pass")).wait(PATIENCE_S)
    gc.collect()  # what tests before this one left would go in between
    before = os.listdir("/dev/fd")
    for _ in range(3):
        child = start(python("pass"))
        child.wait(PATIENCE_S)
        child._thread.join()
    assert len(os.listdir("/dev/fd")) == len(before)


def test_a_child_has_the_usual_signals(start: Start, tmp_path: Path) -> None:
    # Python ignores SIGPIPE, and a shell pipeline below a child must not inherit that.
    child = start(["/bin/sh", "-c", "kill -PIPE $$; exit 9"])
    assert child.wait(PATIENCE_S) == -signal.SIGPIPE


def test_ctrl_c_does_not_reach_a_child(start: Start) -> None:
    child = start(python(FOREVER))
    child.wait_for_report("ready", PATIENCE_S)
    assert os.getsid(child.pid) != os.getsid(0)


def test_a_child_gets_environment_and_directory(start: Start, tmp_path: Path) -> None:
    code = "import os; " + READY.format(
        "directory=os.getcwd(), a=os.environ['A'], home=os.environ.get('HOME')"
    )
    child = start(python(code), environment={"A": "1"}, directory=str(tmp_path))
    expected = {"type": "ready", "directory": str(tmp_path), "a": "1", "home": None}
    assert child.wait_for_report("ready", PATIENCE_S) == expected


# The death of the parent


def test_child_does_not_report_to_the_systemd_of_its_parent(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    child = start(python("import os; print('NOTIFY_SOCKET' in os.environ)"))
    assert child.wait(PATIENCE_S) == 0
    assert (tmp_path / "logs" / "child.log").read_text() == "False\n"


def test_child_ends_with_a_killed_parent(orphan: Orphan) -> None:
    parent, child = orphan("start(); print(child.pid, flush=True); time.sleep(600)")
    assert runs(child)
    parent.kill()
    assert ends(child)


def test_stubborn_child_ends_with_a_killed_parent(orphan: Orphan) -> None:
    parent, child = orphan("start(); print(child.pid, flush=True); time.sleep(600)", STUBBORN)
    parent.kill()
    assert ends(child)


def test_child_ends_with_its_parent(orphan: Orphan) -> None:
    parent, child = orphan("start(); print(child.pid, flush=True)")
    assert parent.wait(PATIENCE_S) == 0
    assert ends(child)


def test_a_child_outlives_the_thread_that_started_it(orphan: Orphan) -> None:
    parent, child = orphan(
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        "print(child.pid, flush=True); sys.stdin.readline()\n"
        "print(child.wait(1.0), flush=True); time.sleep(600)"
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == b"None\n"
    assert runs(child)
    parent.kill()
    assert ends(child)


@linux_only
def test_a_forked_copy_of_the_parent_keeps_no_child_alive(orphan: Orphan) -> None:
    parent, child = orphan(
        "start()\n"
        "if os.fork() == 0:\n"
        "    os.close(1); time.sleep(5); os._exit(0)\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    parent.kill()
    assert wait_until(lambda: not runs(child), 4)


@linux_only
def test_child_ends_with_a_killed_supervisor(start: Start) -> None:
    child = start(python(FOREVER))
    child.wait_for_report("ready", PATIENCE_S)
    pid = child.pid
    child._supervisor.kill()
    assert ends(pid)
    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_lock_given_to_a_child_is_free_when_the_child_has_ended(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = lock.hold(path)
    child = start(python(FOREVER), keep_open=(held,))
    child.wait_for_report("ready", PATIENCE_S)
    os.close(held)
    with pytest.raises(DirectoryLocked):
        lock.hold(path)
    child.stop()
    os.close(lock.hold(path))
