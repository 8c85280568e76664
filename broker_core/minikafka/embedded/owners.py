"""The owners of an embedded broker: unique process identities, and the JVM that a Spark worker belongs to.

Process ids are reused, so an owner is a process id with the start time of that process. They are read from
``/proc`` on Linux, and from ``ps`` on other systems.

Spark runs planners and streaming runners in Python workers, which it ends when they are idle; the JVM above
them lasts as long as the session. It is the *nearest* JVM up the parent chain: further up there may be an
editor or a cluster manager that is a JVM too and outlives every session.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from dataclasses import dataclass

_LINUX = platform.system() == "Linux"

_CHAIN_MAX = 64
"""The most ancestors that are checked; a longer chain is ignored."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of a process of this host."""

    pid: int
    started: str
    """The start time in the system's own format: only equality has a meaning."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """The system's information about a process."""

    parent: int
    started: str
    name: str
    """The program's name, without its directory."""


def process_info(pid: int) -> ProcessInfo | None:
    """Return information about a process; None if it does not run or is a zombie."""
    return _from_proc(pid) if _LINUX else from_ps(pid)


def has_open(pid: int, name: str, about: os.stat_result) -> bool | None:
    """Return True if a process has the file of this name and stat open; None if that is unknown."""
    descriptors = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(descriptors)
    except OSError:
        return None
    for number in numbers:
        with contextlib.suppress(OSError):  # closed meanwhile
            link = f"{descriptors}/{number}"
            if os.path.basename(os.readlink(link)) == name and os.path.samestat(os.stat(link), about):
                return True
    return False


def owner_of(pid: int) -> Owner | None:
    """Return the process as an owner; None if it does not run."""
    info = process_info(pid)
    return None if info is None else Owner(pid, info.started)


def is_alive(owner: Owner) -> bool:
    """Return True if this process still runs, and not another one with its id."""
    return owner_of(owner.pid) == owner


def find_owner(pid: int | None = None) -> Owner:
    """Return the nearest JVM up the parent chain of ``pid`` (default: this process), itself included.

    Without a JVM there, return the process itself.
    """
    first = os.getpid() if pid is None else pid
    current = first
    for _ in range(_CHAIN_MAX):
        info = process_info(current)
        if info is None:
            break
        if is_jvm(current, info):
            return Owner(current, info.started)
        current = info.parent
    itself = owner_of(first)
    if itself is None:
        raise ProcessLookupError(f"process {first} does not run")
    return itself


def is_below(pid: int, ancestor: int) -> bool:
    """Return True if ``ancestor`` is in the parent chain of ``pid``, or is the process itself."""
    for _ in range(_CHAIN_MAX):
        if pid == ancestor:
            return True
        info = process_info(pid)
        if info is None:
            return False
        pid = info.parent
    return False


def is_jvm(pid: int, info: ProcessInfo) -> bool:
    """Return True if a process is a Java virtual machine, whatever its program's name."""
    if info.name == "java":
        return True
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return b"/libjvm.so" in maps.read()
    except OSError:  # another user's process, or another system
        return False


def command_line(pid: int) -> list[str]:
    """Return the words of a process's command line; none if the system does not tell."""
    if _LINUX:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return os.fsdecode(file.read()).split("\0")[:-1]
        except OSError:
            return []
    return command_from_ps(pid)


def working_directory(pid: int) -> str | None:
    """Return the working directory of a process; None if the system does not tell."""
    if _LINUX:
        try:
            return os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
    return directory_from_lsof(pid)


def host_boot_id() -> str:
    """Return an id of this host's network that lasts until the next boot.

    Processes with the same id reach the same 127.0.0.1. Containers of one host share its kernel but differ.
    """
    if _LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    asked = subprocess.run(
        ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or platform.node()


def _from_proc(pid: int) -> ProcessInfo | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The name is in parentheses and may have any character. Fields after it: state, parent, …, start
    # (22nd of all).
    name, _, rest = text.partition("(")[2].rpartition(") ")
    fields = rest.split()
    return None if fields[0] in "ZX" else ProcessInfo(int(fields[1]), fields[19], name)


def from_ps(pid: int) -> ProcessInfo | None:
    """Return the information about a process from ``ps`` (macOS and Linux)."""
    asked = subprocess.run(
        ["ps", "-o", "ppid=,state=,lstart=,comm=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
    )
    fields = asked.stdout.split(None, 7)  # parent, state, the five words of a date, the program
    if len(fields) < 8 or fields[1].startswith("Z"):
        return None
    return ProcessInfo(int(fields[0]), " ".join(fields[2:7]), os.path.basename(fields[7].strip()))


def command_from_ps(pid: int) -> list[str]:
    """Return the command line from ``ps`` (macOS and Linux), which separates its words by spaces."""
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def directory_from_lsof(pid: int) -> str | None:
    """Return the working directory from ``lsof``, as macOS has it."""
    command = ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-F", "n"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return next((line[1:] for line in asked.stdout.splitlines() if line.startswith("n/")), None)
