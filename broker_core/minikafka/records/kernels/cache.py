"""Where the machine code of kernels is kept, and the child processes that compile it.

The first of these directories that has it, or can be written, is used: ``__pycache__`` beside this file, then
those of ``base.places``. Below it lies one directory per state of the sources and of the processor, so a
changed kernel or another machine on a shared disk never meets old code.

    kernels-STATE/code.json    every kernel as a ``native.Code``, the object file in base64, and a checksum
    kernels-STATE/lock

Compiling takes about fifteen seconds and 200 MB, so it is done in children that end afterwards, under a
lock in the directory: of many processes that start at once, one has it done and the others wait. When a
child fails, or no directory can be written, each process compiles for itself; the latter is told, as every
start takes as long then.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import llvmlite  # type: ignore[import-untyped]
from llvmlite import binding

from minikafka.base import places
from minikafka.base.printable import printable
from minikafka.records.kernels.native import Code

_CODE = "code.json"
_STATES_KEPT = 4
_KEPT_SECONDS = 24 * 3600
_CHILD_SECONDS_MAX = 300
_CHILD_FLAG = "MINIKAFKA_COMPILING_KERNELS"
_SHARES = (("read", "write", "batches"), ("keys", "compact", "hashing"))
"""The modules that each child compiles: about as much work."""


def candidates() -> list[Path]:
    """Directories to try, best first."""
    return [Path(__file__).parent / "__pycache__", *places.candidates("kernels")]


def machine_code() -> dict[str, Code] | None:
    """Every kernel's, compiled now when it never was; None when this process is to compile for itself."""
    if os.environ.get(_CHILD_FLAG):
        return None
    state = _state()
    for place in candidates():
        directory = place / f"kernels-{state}"
        found = kept(directory)
        if found is not None:
            return found
        if places.writable(place, directory):
            return _compiled_once(directory)
    _say(
        "compiling its kernels, which takes every process half a minute, as none of these directories can be "
        f"written: {', '.join(map(str, candidates()))}. Have them compiled where it is installed: "
        'python -c "from minikafka.records import kernels; kernels.warm_up()"'
    )
    return None


def _state() -> str:
    """A name for everything that the machine code depends on. The sources may lie in an archive."""
    package = resources.files("minikafka.records")
    kernels = [one for one in package.joinpath("kernels").iterdir() if one.name.endswith(".py")]
    digest = hashlib.sha256()
    for source in [*sorted(kernels, key=lambda one: one.name), package.joinpath("stops.py")]:
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    parts = (llvmlite.__version__, binding.get_process_triple(), *processor)
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def keep(directory: Path, codes: Mapping[str, Code]) -> None:
    """Write machine code where ``kept`` finds it: all of it or, after a crash, nothing."""
    entries = {name: (code.symbol, base64.b64encode(code.data).decode()) for name, code in codes.items()}
    text = json.dumps({"sum": _sum(directory, entries), "codes": entries})
    handle, unfinished = tempfile.mkstemp(dir=directory)
    try:
        with open(handle, "w") as file:
            os.fchmod(handle, 0o644)  # whatever the umask: see ``kept``
            file.write(text)
        os.replace(unfinished, directory / _CODE)
    except BaseException:
        os.unlink(unfinished)
        raise


def kept(directory: Path) -> dict[str, Code] | None:
    """What ``keep`` wrote there; None where it did not, or where it is damaged.

    We run what lies in the file, so it must be ours or root's, and nobody else may write to it.
    """
    try:
        with open(directory / _CODE) as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (0, os.getuid()) or about.st_mode & 0o022:
                return None
            content = json.load(file)
        entries = content["codes"]
        if content["sum"] != _sum(directory, entries):
            return None
        return {name: Code(symbol, base64.b64decode(data)) for name, (symbol, data) in entries.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _sum(directory: Path, entries: object) -> str:
    """Of the code and its directory's name, so that code of another state is not taken for this one's."""
    return hashlib.sha256(json.dumps([directory.name, entries]).encode()).hexdigest()


def _compiled_once(directory: Path) -> dict[str, Code] | None:
    """Have the kernels compiled into ``directory``, or wait for who does. None when that fails."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        waited = False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Who waited in vain does not try the same: a hundred would do so, one after the other.
        if not waited and kept(directory) is None:
            _compile_in_children(directory)
        return kept(directory)
    except OSError:
        return None
    finally:
        os.close(lock)


def _compile_in_children(directory: Path) -> None:
    _say(f"compiling its kernels, once for this machine (about half a minute), into {directory}")
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
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    program = "import sys; from minikafka.records import kernels; kernels.compile_into(*sys.argv[1:])"
    codes: dict[str, Code] = {}
    with contextlib.ExitStack() as running:
        children = []
        for share in _SHARES:
            part = parts / share[0]
            part.mkdir()
            command = [sys.executable or "python3", "-c", program, str(part), *share]
            # The child looks for modules, and numba for settings, in its working directory first.
            child = subprocess.Popen(
                command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
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
        sys.stderr.write(f"minikafka: {printable(text)}\n")
        sys.stderr.flush()


def _remove_old_states(directory: Path) -> None:
    """Keep a few; and those of the last day, as machines of several kinds may share the place."""
    found = []
    for path in directory.parent.glob("kernels-*"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    newest = sorted(found, reverse=True)
    for modified, path in newest[_STATES_KEPT:]:
        if modified < newest[0][0] - _KEPT_SECONDS and path != directory:
            shutil.rmtree(path, ignore_errors=True)
