"""Where compiled kernels are kept, and the one child process that compiles them.

The first of these directories that can be written is used: ``__pycache__`` beside this file, the user's
cache, a private directory of this user in the temporary directory. Below it lies one directory per state of
the sources, of numba, of Python and of the processor, so a changed kernel or another machine on a shared disk
never meets old code.

A directory is complete when it holds ``complete``. Compiling takes about ten seconds and 200 MB, so it is
done in a child that ends afterwards, under a lock in the directory: of many processes that start at once, one
compiles and the others wait. When the child fails, or no directory can be written, each process compiles for
itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

_COMPLETE = "complete"
_STATES_KEPT = 4
_CHILD_SECONDS_MAX = 300
_CHILD_FLAG = "MINIKAFKA_COMPILING_KERNELS"


def candidates() -> list[Path]:
    """Directories to try, best first."""
    found = [Path(__file__).parent / "__pycache__"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        found.append(Path(home) / "minikafka" / "kernels")
    private = _private()
    return found if private is None else [*found, private / "kernels"]


def _private() -> Path | None:
    """This user's directory among the temporary ones; None where there is no place for temporary files."""
    try:
        return Path(tempfile.gettempdir()) / f"minikafka-{os.getuid()}"
    except FileNotFoundError:
        return None


def choose() -> Path | None:
    """The directory for the present state, made where absent; None when none can be written."""
    state = _state()
    for place in candidates():
        directory = place / f"kernels-{state}"
        if _usable(place, directory):
            return directory
    return None


def _usable(place: Path, directory: Path) -> bool:
    try:
        if place.parent == _private():
            place.parent.mkdir(mode=0o700, exist_ok=True)
            about = place.parent.lstat()
            # Anyone may make that name first in a shared directory, and we run what lies there.
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
                return False
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _state() -> str:
    """A name for everything that the compiled code depends on."""
    import llvmlite.binding  # type: ignore[import-untyped]
    import numba

    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in [*sorted(here.glob("*.py")), here.parent / "stops.py"]:
        # numba itself goes by the path and the time, and knows nothing of helpers in other files.
        digest.update(f"{source}\0{source.stat().st_mtime_ns}\0".encode() + source.read_bytes())
    parts = (numba.__version__, sys.version, platform.machine(), llvmlite.binding.get_host_cpu_name())
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def prepare() -> Path | None:
    """The directory to load kernels from, filled. Called once per process, by its first kernel."""
    directory = choose()
    if directory is None or os.environ.get(_CHILD_FLAG) or (directory / _COMPLETE).exists():
        return directory
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / _COMPLETE).exists():
            _compile_in_child(directory)
    finally:
        os.close(lock)
    return directory


def _compile_in_child(directory: Path) -> None:
    _say(f"compiling its kernels, once for this machine (about 10 s), into {directory}")
    environment = dict(os.environ)
    environment[_CHILD_FLAG] = "1"
    # The package may have been found through a path that only this process knows.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    code = "from minikafka.records.kernels import warm_up; warm_up()"
    failed = True
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable or "python3", "-c", code],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
            timeout=_CHILD_SECONDS_MAX,
        )
        failed = done.returncode != 0
    if failed:
        _say("its kernels could not be compiled in a process of their own, so this one compiles for itself")
        return
    (directory / _COMPLETE).touch()
    _remove_old_states(directory)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"minikafka: {text}\n")
        sys.stderr.flush()


def _remove_old_states(directory: Path) -> None:
    states = [path for path in directory.parent.glob("kernels-*") if path.is_dir() and path != directory]
    states.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in states[_STATES_KEPT - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
