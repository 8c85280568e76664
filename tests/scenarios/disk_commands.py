"""Commands of scenario scripts for disks: their files and faults (see ``commands``)."""

from __future__ import annotations

import errno

from tests.scenarios.commands import VOCABULARY
from tests.scenarios.script import ScriptError
from tests.scenarios.script_simulation import Lines, ScriptSimulation
from tests.support.simulation import DATA_DIR


def _path(path: str) -> str:
    return f"{DATA_DIR}/{path}".rstrip("/.")


def _shown(path: str) -> str:
    return path.removeprefix(DATA_DIR).lstrip("/") or "." * bool(path)


@VOCABULARY.command
def disk(simulation: ScriptSimulation, what: str, machine: int = 0) -> None:
    """``full``: no file can grow; ``free``: files can grow again."""
    files = simulation.machine_of(machine).files
    if what not in {"full", "free"}:
        raise ScriptError(f"disk: expected full or free, got {what!r}")
    files.capacity_bytes = files.used_bytes() if what == "full" else None


@VOCABULARY.command
def fail(
    simulation: ScriptSimulation,
    operation: str,
    path: str = "",
    *,
    error: str = "EIO",
    after: int = 0,
    machine: int = 0,
) -> None:
    """Let the next ``write`` (after ``after`` bytes), ``read``, ``sync``, ``truncate``, ``rename`` or
    ``open`` of a path that contains ``path`` fail.
    """
    files, number = simulation.machine_of(machine).files, getattr(errno, error, None)
    if number is None:
        raise ScriptError(f"fail: unknown error {error!r}")
    if operation == "write":
        files.fail_next_write(number, after, match=path)
    elif operation in {"read", "sync", "truncate", "rename", "open"}:
        getattr(files, f"fail_next_{operation}")(number, match=path)
    else:
        raise ScriptError(
            f"fail: unknown operation {operation!r}; expected write, read, sync, truncate, rename or open"
        )


@VOCABULARY.command
def files(simulation: ScriptSimulation, directory: str = "", *, machine: int = 0) -> Lines:
    """The files below the data directory, with their sizes in bytes."""
    disk = simulation.machine_of(machine).files

    def below(path: str) -> Lines:
        for name in disk.list_dir(path):
            child = f"{path}/{name}"
            if disk.is_dir(child):
                yield from below(child)
            else:
                yield f"{_shown(child)} {disk.open(child, read_only=True).size()}"

    return list(below(_path(directory))) if disk.is_dir(_path(directory)) else ["does not exist"]


@VOCABULARY.command
def remove(simulation: ScriptSimulation, path: str, *, machine: int = 0) -> None:
    """Remove a file or a directory; ``.`` is the data directory."""
    disk = simulation.machine_of(machine).files
    (disk.remove_tree if disk.is_dir(_path(path)) else disk.remove)(_path(path))


@VOCABULARY.command
def damage(simulation: ScriptSimulation, path: str, *, at: int, machine: int = 0) -> None:
    """Flip one bit of a file at position ``at``."""
    file = simulation.machine_of(machine).files.open(_path(path))
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
    file.close()


@VOCABULARY.command
def operations(simulation: ScriptSimulation, *, machine: int = 0) -> Lines:
    """The file operations of the last command, and the point at which its request was answered."""
    done = simulation.machine_of(machine).files.operations[simulation.operations_before.get(machine, 0) :]
    return [
        f"{operation.kind} {_shown(operation.path)} {operation.length or ''}".strip() for operation in done
    ] or ["nothing"]
