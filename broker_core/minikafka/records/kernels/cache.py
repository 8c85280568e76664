"""The cache of the kernels' machine code, and the child processes that compile it.

The first of these directories with the code is used: the user's cache, which all environments of this machine
share, ``__pycache__`` beside this file, and the private ones of ``base.cache_dirs``. If none has it, the
ready-made code of a wheel is used (``targets``), if it was made of these sources and this machine executes
it. Else the code is compiled into the first writable directory.

Each directory has one subdirectory per state of the sources and of the processor, so a changed kernel, or
another machine on a shared disk, never uses old code. The code is copied to the first two if it was found
elsewhere. ``python -m minikafka.records.kernels`` fills the one beside this file, for an image whose users
cannot write there.

    kernels-STATE/code.json    every kernel as a ``native.Code``, the object file in base64, and a checksum
    kernels-STATE/lock         while it is held, the progress (compiled kernels, all kernels) as JSON
    TARGET.json                beside this file, in a wheel: the same as code.json, for a target

Compiling takes about a minute and 200 MB, so it is done in children that end afterwards, under a
lock in the directory: of many processes that start at once, one compiles and the others wait. On a busy
machine it may take minutes, so a child is killed only when it makes no progress; every process that compiles
or waits reports the progress (``base.reports``). When a child fails, or no directory is writable, each
process compiles for itself. In the latter case a message says so, because every start then takes as long.
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
from minikafka.records.kernels.targets import COMPILES_FOR, NATIVE, Target, for_this_machine

_CODE = "code.json"
_STATES_KEPT = 4
_KEPT_SECONDS = 24 * 3600
_STEP_SECONDS_MAX = 300
"""The time limit for one kernel, which takes a second on an idle machine."""
_SAY_SECONDS = 10
_LOOK_SECONDS = 0.1
_SHARES = (
    ("read", "write", "batches", "protobuf"),
    ("keys", "compact", "hashing", "avro_read", "avro_write", "json_read"),
)
"""The modules that each child compiles, with about the same work for each child."""


def candidates() -> list[Path]:
    """Return the directories to try, best first."""
    own = cache_dirs.candidates("kernels")
    shared = 1 if len(own) > len(cache_dirs.private_directories()) else 0  # there may be no home
    return [*own[:shared], beside_sources(), *own[shared:]]


def beside_sources() -> Path:
    """Return the directory for machine code in the installation."""
    return Path(__file__).parent / "__pycache__"


def machine_code() -> dict[str, Code] | None:
    """Return the machine code of every kernel, and compile it if necessary; None if this process must compile
    for itself.
    """
    if os.environ.get(COMPILES_FOR):
        return None
    name = f"kernels-{_state(*_this_machine())}"
    for place in candidates():
        found = kept(place / name) if cache_dirs.is_trusted(place) else None
        if found is not None:
            _share(name, found)
            return found
    target = for_this_machine()
    made = None if target is None else ready_made(target)
    if made is not None:
        return made
    for place in candidates():
        if cache_dirs.is_writable(place, place / name):
            found = _compiled_once(place / name)
            if found is not None:
                _share(name, found)
            return found
    _say(
        "compiling kernels, which takes a minute in every process because none of these directories is "
        f"writable: {', '.join(map(str, candidates()))}. To compile them once, in the installation, run: "
        "python -m minikafka.records.kernels"
    )
    return None


def _share(name: str, codes: Mapping[str, Code]) -> None:
    """Store the code in the user's cache and beside the sources, if these are writable.

    So other environments of this user find it, and other users of this installation.
    """
    for place in candidates():
        if place.parent not in cache_dirs.private_directories() and not (place / name / _CODE).exists():
            with contextlib.suppress(OSError):
                if cache_dirs.is_writable(place, place / name):
                    keep(place / name, codes)


def compile_ahead(place: Path) -> Path | None:
    """Compile the machine code into ``place`` if it is not there, and return its file; None on failure."""
    directory = place / f"kernels-{_state(*_this_machine())}"
    if not cache_dirs.is_writable(place, directory):
        _say(f"cannot write to {directory}")
        return None
    return directory / _CODE if kept(directory) or _compiled_once(directory) else None


def ready_made(target: Target) -> dict[str, Code] | None:
    """Return the code that the installation brings for a target; None if it has none of these sources."""
    try:
        # The installation may be in an archive. Whoever can write to it can change the sources as well.
        text = resources.files("minikafka.records.kernels").joinpath(target.file_name).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return _unpacked(_target_state(target), text)


def make_ready(directory: Path, target: Target) -> Path:
    """Compile the kernels for a target, and return the file to put beside the kernels' sources.

    Raises OSError or SubprocessError on failure.
    """
    file = directory / target.file_name
    with tempfile.TemporaryDirectory(dir=directory) as parts:
        lock = cache_dirs.open_lock(Path(parts) / "lock")
        try:
            codes = _compiled_in_children(Path(parts), _Progress(lock), target)
        finally:
            os.close(lock)
    file.write_text(_packed(_target_state(target), codes))
    return file


def _this_machine() -> tuple[str, ...]:
    """Return what the code that is compiled for exactly this machine depends on, beside the sources."""
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    return (llvmlite.__version__, binding.get_process_triple(), *processor)


def _target_state(target: Target) -> str:
    return _state(target.triple, target.cpu, *target.extra_features)


def _state(*parts: str) -> str:
    """Return a name for the sources and ``parts``: all that machine code depends on."""
    digest = hashlib.sha256()
    for name, text in _sources():
        digest.update(f"{name}\0".encode() + text)
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def _sources() -> list[tuple[str, bytes]]:
    """Return name and text of every module that the machine code depends on."""
    kernels = resources.files("minikafka.records.kernels")
    found = sorted(
        (path for path in kernels.iterdir() if path.name.endswith(".py")), key=lambda path: path.name
    )
    return [(path.name, path.read_bytes()) for path in found]


def keep(directory: Path, codes: Mapping[str, Code]) -> None:
    """Write machine code for ``kept`` to read: all of it or, after a crash, nothing."""
    text = _packed(directory.name, codes)
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
    """Return the code that ``keep`` wrote; None if it is missing or damaged.

    The file's content is executed, so it must belong to this user or root, and no other user may be able to
    write it.
    """
    try:
        with cache_dirs.open_own(directory / _CODE) as file:
            text = file.read().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return _unpacked(directory.name, text)


def _packed(state: str, codes: Mapping[str, Code]) -> str:
    """Return the text of a file with machine code."""
    entries = {name: (code.symbol, base64.b64encode(code.data).decode()) for name, code in codes.items()}
    return json.dumps({"sum": _sum(state, entries), "codes": entries})


def _unpacked(state: str, text: str) -> dict[str, Code] | None:
    """Return the machine code that ``_packed`` wrote; None if it is damaged, or of another state."""
    try:
        content = json.loads(text)
        entries = content["codes"]
        if content["sum"] != _sum(state, entries):
            return None
        return {name: Code(symbol, base64.b64decode(data)) for name, (symbol, data) in entries.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _sum(state: str, entries: object) -> str:
    """Return a checksum of the code and its state, so that code of another state is not used."""
    return hashlib.sha256(json.dumps([state, entries]).encode()).hexdigest()


def _compiled_once(directory: Path) -> dict[str, Code] | None:
    """Compile the kernels into ``directory``, or wait for the process that does. None on failure."""
    try:
        lock = cache_dirs.open_lock(directory / "lock")
    except OSError:
        return None
    try:
        waited = _wait_for(lock)
        # Do not retry after waiting for a failed compilation: a hundred processes would do so in turn.
        if not waited and kept(directory) is None:
            _compile_in_children(directory, lock)
        return kept(directory)
    except OSError:
        return None
    finally:
        os.close(lock)


def _wait_for(lock: int) -> bool:
    """Take the lock. Return True if another process had it; meanwhile its progress is reported."""
    waited, reported = False, b""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
        else:
            return waited
        progress = os.pread(lock, 100, 0)
        if progress != reported:
            reported = progress
            with contextlib.suppress(ValueError, TypeError):
                report("compiling", **json.loads(progress))
        time.sleep(_LOOK_SECONDS)


class _Progress:
    """The number of compiled kernels, reported to processes that wait for the lock, to the parent process,
    and on stderr.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._of = sum(text.count(b"\n@kernel(") for _, text in _sources())
        self._done = -1
        self._say_at = time.monotonic() + _SAY_SECONDS

    def advance(self) -> None:
        """Count one more kernel; the first call reports 0."""
        self._done += 1
        progress = {"done": self._done, "of": self._of}
        report("compiling", **progress)
        text = json.dumps(progress).encode()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text, 0)
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_SECONDS
            _say(f"compiling kernels: {self._done} of {self._of}")


def _compile_in_children(directory: Path, lock: int) -> None:
    _say(f"compiling kernels, once for this machine (about a minute), into {directory}")
    try:
        with tempfile.TemporaryDirectory(dir=directory) as parts:
            codes = _compiled_in_children(Path(parts), _Progress(lock), None)
        keep(directory, codes)
    except (OSError, subprocess.SubprocessError):
        _say("failed to compile kernels in child processes; compiling them in this process")
        return
    _remove_old_states(directory)


def _compiled_in_children(parts: Path, progress: _Progress, target: Target | None) -> dict[str, Code]:
    """Return the code of all modules, for a target or (None) exactly this machine.

    Raises OSError or SubprocessError if a child fails or makes no progress.
    """
    # The user's settings of numba (above all, not to compile) are meant for other code.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment[COMPILES_FOR] = NATIVE if target is None else target.name
    if target is not None:
        environment["NUMBA_CPU_NAME"] = target.cpu
        environment["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in target.extra_features)
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
    """Count the reports of the children until they end. TimeoutExpired if they make no progress."""
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
            found = parse_report(line)
            if found is not None and found["type"] == "compiled":
                progress.advance()


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"minikafka: {printable(text)}\n")
        sys.stderr.flush()


def _remove_old_states(directory: Path) -> None:
    """Remove all but the newest states. Those of the last day are kept too: machines with different
    processors may share the directory.
    """
    found = []
    for path in directory.parent.glob("kernels-*"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    newest = sorted(found, reverse=True)
    for modified, path in newest[_STATES_KEPT:]:
        if modified < newest[0][0] - _KEPT_SECONDS and path != directory:
            shutil.rmtree(path, ignore_errors=True)
