"""Where the machine code of kernels is kept, and the child processes that compile it.

The first of these directories that has it is used, else the first that can be written: the user's cache,
which all environments of this machine share, ``__pycache__`` beside this file, and the private ones of
``base.cache_dirs``. Below it lies one directory per state of the sources and of the processor, so a changed
kernel or another machine on a shared disk never meets old code. The first two get a copy from wherever it was
found. ``python -m minikafka.records.kernels`` fills
the one beside this file, for an image whose users cannot write.

    kernels-STATE/code.json    every kernel as a ``native.Code``, the object file in base64, and a checksum
    kernels-STATE/lock         while it is held, how many kernels of how many are done, as JSON

Compiling takes about fifteen seconds and 200 MB, so it is done in children that end afterwards, under a
lock in the directory: of many processes that start at once, one has it done and the others wait. On a busy
machine it may take minutes, so a child is given up only when it gets no further; every process that compiles
or waits reports how far it is (``base.reports``). When a child fails, or no directory can be written, each
process compiles for itself; the latter is told, as every start takes as long then.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import llvmlite  # type: ignore[import-untyped]
from llvmlite import binding

from minikafka.base import cache_dirs
from minikafka.base.printable import printable
from minikafka.base.reports import VARIABLE, parse_report, report
from minikafka.records.kernels.native import Code

_CODE = "code.json"
_STATES_KEPT = 4
_KEPT_SECONDS = 24 * 3600
_STEP_SECONDS_MAX = 300
"""How long one kernel may take: a second on an idle machine."""
_SAY_SECONDS = 10
_LOOK_SECONDS = 0.1
_CHILD_FLAG = "MINIKAFKA_COMPILING_KERNELS"
_SHARES = (("read", "write", "batches"), ("keys", "compact", "hashing"))
"""The modules that each child compiles: about as much work."""


def candidates() -> list[Path]:
    """Directories to try, best first."""
    own = cache_dirs.candidates("kernels")
    shared = 1 if len(own) > len(cache_dirs.private_directories()) else 0  # there may be no home
    return [*own[:shared], beside_sources(), *own[shared:]]


def beside_sources() -> Path:
    """The directory for machine code that lies in the installation."""
    return Path(__file__).parent / "__pycache__"


def machine_code() -> dict[str, Code] | None:
    """Every kernel's, compiled now when it never was; None when this process is to compile for itself."""
    if os.environ.get(_CHILD_FLAG):
        return None
    name = f"kernels-{_state()}"
    for place in candidates():
        found = kept(place / name) if cache_dirs.is_trusted(place) else None
        if found is not None:
            _share(name, found)
            return found
    for place in candidates():
        if cache_dirs.is_writable(place, place / name):
            found = _compiled_once(place / name)
            if found is not None:
                _share(name, found)
            return found
    _say(
        "compiling its kernels, which takes every process half a minute, as none of these directories can be "
        f"written: {', '.join(map(str, candidates()))}. Have them compiled where it is installed: "
        "python -m minikafka.records.kernels"
    )
    return None


def _share(name: str, codes: Mapping[str, Code]) -> None:
    """Keep it in the user's cache and beside the sources, as far as they can be written.

    So another environment of this user finds it, and another user of this installation.
    """
    for place in candidates():
        if place.parent not in cache_dirs.private_directories() and not (place / name / _CODE).exists():
            with contextlib.suppress(OSError):
                if cache_dirs.is_writable(place, place / name):
                    keep(place / name, codes)


def compile_ahead(place: Path) -> Path | None:
    """Have the machine code of this state in ``place``, and return its file; None when that cannot be."""
    directory = place / f"kernels-{_state()}"
    if not cache_dirs.is_writable(place, directory):
        _say(f"{directory} cannot be written")
        return None
    return directory / _CODE if kept(directory) or _compiled_once(directory) else None


def _state() -> str:
    """A name for everything that the machine code depends on. The sources may lie in an archive."""
    digest = hashlib.sha256()
    for name, text in _sources():
        digest.update(f"{name}\0".encode() + text)
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    parts = (llvmlite.__version__, binding.get_process_triple(), *processor)
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def _sources() -> list[tuple[str, bytes]]:
    """Name and text of every module that the machine code depends on."""
    kernels = resources.files("minikafka.records.kernels")
    found = sorted(
        (path for path in kernels.iterdir() if path.name.endswith(".py")), key=lambda path: path.name
    )
    return [(path.name, path.read_bytes()) for path in found]


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
        with cache_dirs.open_own(directory / _CODE) as file:
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
        lock = cache_dirs.open_lock(directory / "lock")
    except OSError:
        return None
    try:
        waited = _wait_for(lock)
        # Who waited in vain does not try the same: a hundred would do so, one after the other.
        if not waited and kept(directory) is None:
            _compile_in_children(directory, lock)
        return kept(directory)
    except OSError:
        return None
    finally:
        os.close(lock)


def _wait_for(lock: int) -> bool:
    """Take the lock; whether another process had it. What that one has done is reported meanwhile."""
    waited, told = False, b""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
        else:
            return waited
        now = os.pread(lock, 100, 0)
        if now != told:
            told = now
            with contextlib.suppress(ValueError, TypeError):
                report("compiling", **json.loads(now))
        time.sleep(_LOOK_SECONDS)


class _Progress:
    """How many kernels are compiled, for who waits for the lock, for who started us, and for people."""

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._of = sum(text.count(b"\n@kernel(") for _, text in _sources())
        self._done = -1
        self._say_at = time.monotonic() + _SAY_SECONDS

    def advance(self) -> None:
        """One more; at first none."""
        self._done += 1
        told = {"done": self._done, "of": self._of}
        report("compiling", **told)
        text = json.dumps(told).encode()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text, 0)
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_SECONDS
            _say(f"compiling its kernels: {self._done} of {self._of}")


def _compile_in_children(directory: Path, lock: int) -> None:
    _say(f"compiling its kernels, once for this machine (about half a minute), into {directory}")
    try:
        with tempfile.TemporaryDirectory(dir=directory) as parts:
            codes = _compiled_in_children(Path(parts), _Progress(lock))
        keep(directory, codes)
    except (OSError, subprocess.SubprocessError):
        _say("its kernels could not be compiled in processes of their own, so this one compiles for itself")
        return
    _remove_old_states(directory)


def _compiled_in_children(parts: Path, progress: _Progress) -> dict[str, Code]:
    """The code of all modules. OSError or SubprocessError when a child fails, or gets no further."""
    # What somebody tells numba for other code (not to compile, above all) is not meant for this.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment[_CHILD_FLAG] = "1"
    # The package may have been found through a path that only this process knows.
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    program = "import sys; from minikafka.records import kernels; kernels.compile_into(*sys.argv[1:])"
    codes: dict[str, Code] = {}
    with contextlib.ExitStack() as running:
        children = []
        reading, writing = os.pipe()
        running.callback(os.close, reading)
        ours = running.enter_context(open(writing, "wb"))
        environment[VARIABLE] = str(writing)
        for share in _SHARES:
            part = parts / share[0]
            part.mkdir()
            command = [sys.executable or "python3", "-c", program, str(part), *share]
            # The child looks for modules, and numba for settings, in its working directory first.
            child = subprocess.Popen(
                command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(writing,),
            )
            running.callback(child.wait)
            running.callback(child.kill)
            children.append((child, part))
        ours.close()
        _follow(reading, progress)
        for child, part in children:
            status = child.wait(_STEP_SECONDS_MAX)
            found = kept(part)
            if status or found is None:
                raise subprocess.CalledProcessError(status, child.args)
            codes |= found
    return codes


def _follow(reports: int, progress: _Progress) -> None:
    """Count what the children report, until they have ended. TimeoutExpired when they get no further."""
    progress.advance()
    rest = b""
    while True:
        if not select.select([reports], [], [], _STEP_SECONDS_MAX)[0]:
            raise subprocess.TimeoutExpired("compiling kernels", _STEP_SECONDS_MAX)
        data = os.read(reports, 4096)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            told = parse_report(line)
            if told is not None and told["type"] == "compiled":
                progress.advance()


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
