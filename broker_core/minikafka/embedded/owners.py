"""Who an embedded broker runs for: processes told apart for good, and the JVM that a Spark worker belongs to.

A process id comes back after a while, so an owner is a process id with the time when that process started.
Linux is asked through ``/proc``, other systems through ``ps``.

Spark runs planners and streaming runners in Python workers, which it ends when they are idle; what lasts as
long as the session is the JVM above them. It is the *nearest* JVM up the parent chain: further up there may
be an editor or a cluster manager that is a JVM too and outlives every session.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from dataclasses import dataclass

_LINUX = platform.system() == "Linux"

_CHAIN_MAX = 64
"""Most ancestors that are looked at; a chain that is longer is none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One process of this host."""

    pid: int
    started: str
    """When it started, in the system's own words: only equality has a meaning."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What the system says of a process."""

    parent: int
    started: str
    name: str
    """Of the program, without its directory."""


def process_info(pid: int) -> ProcessInfo | None:
    """What is known of a process; None when there is none, or only a zombie that waits for its parent."""
    return _from_proc(pid) if _LINUX else from_ps(pid)


def has_open(pid: int, name: str, about: os.stat_result) -> bool | None:
    """Whether a process has the very file open that ``about`` tells of, and whose name is ``name``; None
    where nobody tells.
    """
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
    """The process as an owner; None when it does not run."""
    info = process_info(pid)
    return None if info is None else Owner(pid, info.started)


def is_alive(owner: Owner) -> bool:
    """Whether that very process still runs."""
    return owner_of(owner.pid) == owner


def find_owner(pid: int | None = None) -> Owner:
    """The nearest JVM up the parent chain of ``pid`` (default: of this process), itself included.

    Without a JVM there, the process itself.
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
    """Whether ``ancestor`` is a process up the parent chain of ``pid``, or the process itself."""
    for _ in range(_CHAIN_MAX):
        if pid == ancestor:
            return True
        info = process_info(pid)
        if info is None:
            return False
        pid = info.parent
    return False


def is_jvm(pid: int, info: ProcessInfo) -> bool:
    """Whether a process is a Java virtual machine, whatever its program is called."""
    if info.name == "java":
        return True
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return b"/libjvm.so" in maps.read()
    except OSError:  # another user's process, or another system
        return False


def working_directory(pid: int) -> str | None:
    """The working directory of a process; None when the system does not say."""
    if _LINUX:
        try:
            return os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
    return directory_from_lsof(pid)


def host_boot_id() -> str:
    """One text for this host's network from one start of its kernel to the next.

    Who has the same one reaches the same 127.0.0.1: containers of one host, which share its kernel, differ.
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
    # The name stands in parentheses and may hold any character. Fields after it: state, parent, …, start
    # (22nd of all).
    name, _, rest = text.partition("(")[2].rpartition(") ")
    fields = rest.split()
    return None if fields[0] in "ZX" else ProcessInfo(int(fields[1]), fields[19], name)


def from_ps(pid: int) -> ProcessInfo | None:
    """The same from ``ps``, as macOS and Linux have it."""
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


def directory_from_lsof(pid: int) -> str | None:
    """The working directory from ``lsof``, as macOS has it."""
    command = ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-F", "n"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return next((line[1:] for line in asked.stdout.splitlines() if line.startswith("n/")), None)
