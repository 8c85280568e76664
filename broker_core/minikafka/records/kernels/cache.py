"""Where the machine code of kernels is kept, and the child processes that compile it.

The first of these directories that has it, or can be written, is used: ``__pycache__`` beside this file, the
user's cache, a private directory of this user in the temporary directory. Below it lies one directory per
state of the sources and of the processor, so a changed kernel or another machine on a shared disk never meets
old code.

    kernels-STATE/code.json    every kernel as a ``native.Code``, the object file in base64
    kernels-STATE/lock

Compiling takes about ten seconds and 200 MB, so it is done in children that end afterwards, under a lock in
the directory: of many processes that start at once, one has it done and the others wait. When a child fails,
or no directory can be written, each process compiles for itself.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from llvmlite import binding  # type: ignore[import-untyped]

from minikafka.records.kernels.native import Code

_CODE = "code.json"
_STATES_KEPT = 4
_CHILD_SECONDS_MAX = 300
_CHILD_FLAG = "MINIKAFKA_COMPILING_KERNELS"
_SHARES = (("batches",), ("read", "write", "hashing"))
"""The modules that each child compiles: about as much work."""


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
        if (directory / _CODE).is_file():
            return True
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _state() -> str:
    """A name for everything that the machine code depends on."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in [*sorted(here.glob("*.py")), here.parent / "stops.py"]:
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    parts = (sys.platform, platform.machine(), binding.get_host_cpu_name())
    digest.update("\0".join((*parts, binding.get_host_cpu_features().flatten())).encode())
    return digest.hexdigest()[:16]


def prepare() -> dict[str, Code] | None:
    """Every kernel's machine code, compiled now when it never was; None when this process is to compile."""
    if os.environ.get(_CHILD_FLAG):
        return None
    directory = choose()
    if directory is None:
        return None
    found = kept(directory)
    if found is None:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = kept(directory)
            if found is None:
                _compile_in_children(directory)
                found = kept(directory)
        finally:
            os.close(lock)
    return found


def keep(directory: Path, codes: Mapping[str, Code]) -> None:
    """Write machine code where ``kept`` finds it."""
    entries = {
        name: (code.symbol, code.externals, base64.b64encode(code.data).decode())
        for name, code in codes.items()
    }
    unfinished = directory / f"{_CODE}.new"
    unfinished.write_text(json.dumps(entries))
    unfinished.rename(directory / _CODE)


def kept(directory: Path) -> dict[str, Code] | None:
    """What ``keep`` wrote; None where it did not, or where a power cut left something else."""
    try:
        entries = json.loads((directory / _CODE).read_text())
        return {
            name: Code(symbol, tuple(externals), base64.b64decode(data, validate=True))
            for name, (symbol, externals, data) in entries.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _compile_in_children(directory: Path) -> None:
    _say(f"compiling its kernels, once for this machine (about 10 s), into {directory}")
    try:
        with tempfile.TemporaryDirectory(dir=directory) as parts:
            codes = _compiled_in_children(Path(parts))
        keep(directory, codes)
    except (OSError, subprocess.SubprocessError):
        _say("its kernels could not be compiled in processes of their own, so this one compiles for itself")
        return
    _remove_old_states(directory)


def _compiled_in_children(parts: Path) -> dict[str, Code]:
    """The code of all modules. OSError or SubprocessError when a child does not do its work in time."""
    # What somebody tells numba for other code (not to compile, above all) is not meant for this.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment[_CHILD_FLAG] = "1"
    # The package may have been found through a path that only this process knows.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    program = "import sys; from minikafka.records import kernels; kernels.compile_into(*sys.argv[1:])"
    codes: dict[str, Code] = {}
    with contextlib.ExitStack() as running:
        children = []
        for share in _SHARES:
            part = parts / share[0]
            part.mkdir()
            command = [sys.executable or "python3", "-c", program, str(part), *share]
            child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            running.callback(child.wait)
            running.callback(child.kill)
            children.append((child, part))
        for child, part in children:
            status = child.wait(_CHILD_SECONDS_MAX)
            found = kept(part)
            if status or found is None:
                raise subprocess.CalledProcessError(status, child.args)
            codes |= found
    return codes


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"minikafka: {text}\n")
        sys.stderr.flush()


def _remove_old_states(directory: Path) -> None:
    states = [path for path in directory.parent.glob("kernels-*") if path.is_dir() and path != directory]
    states.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in states[_STATES_KEPT - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
