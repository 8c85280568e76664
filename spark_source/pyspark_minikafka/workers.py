"""Reduces the overhead of Spark's Python workers per task, and finds the directory where Spark was started.

Before each task and each step of planning, a worker calls ``importlib.invalidate_caches()``. Before Python
3.13, every importer of a zip archive then reads the archive's directory again. PySpark is such an archive,
with thousands of entries and one importer for each of its packages, and Spark puts its own ``spark-core`` jar
on Python's path, with even more entries: 0.3 to 0.6 s a task, more than most tasks need.

After each task, a worker collects garbage, and the next task waits for it: 40 ms, nearly all of it spent on
the imported modules, none of which is ever freed.

A task comes from the JVM in two parts, and the second waits until the first is acknowledged (Nagle's
algorithm). A socket that has just sent something delays that acknowledgement by 40 ms, to send it along with
an answer. TCP_QUICKACK lasts until the worker sends again, so it is set between tasks, when garbage is
collected.

If the session has files of its own (always in ``spark-sql``, and in a Spark Connect server), workers run in a
temporary directory, ``userFiles-…/UUID``, that is deleted with the session.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import zipimport
from collections.abc import Iterator, Mapping
from pathlib import PurePath

_HIDE = "SPARK_HIDE_TRACEBACK"
_hidden = False
"""This module has set ``_HIDE``."""
_modules_frozen = 0
_jvm: list[tuple[int, int]] | None = None
"""Descriptors and inodes of this process's connections at its first task."""


@contextlib.contextmanager
def task() -> Iterator[None]:
    """Wrap the work that Spark asks of a worker, to make the worker's own work until the next task cheap."""
    freeze_modules()
    if _jvm is None:
        acknowledge_at_once()
    try:
        yield
    finally:
        forget_importers()


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Wrap a call by Spark so that an error of minikafka reaches the user as one line, in which properties
    have the names of options.

    Spark puts the traceback before the text of an error, and logs it in several places. It omits the
    traceback if ``SPARK_HIDE_TRACEBACK`` is set in the worker that raises; so this sets it, in workers only,
    for errors whose text suffices. ``MINIKAFKA_TRACEBACK=1`` keeps tracebacks.
    """
    global _hidden
    if _hidden:
        _hidden = False
        os.environ.pop(_HIDE, None)
    try:
        yield
    except Exception as problem:
        if _is_ours(problem):
            from pyspark_minikafka.options.kafka_options import name_options  # imports minikafka

            name_options(problem)
        if _hides_traceback(problem, os.environ):
            _hidden = True
            os.environ[_HIDE] = "1"
        raise


def _is_ours(problem: Exception) -> bool:
    return type(problem).__module__.partition(".")[0] in ("minikafka", __package__)


def _hides_traceback(problem: Exception, environment: Mapping[str, str]) -> bool:
    worker = any(name.startswith("PYTHON_WORKER_FACTORY_") for name in environment)
    return (
        _is_ours(problem)
        and worker
        and _HIDE not in environment
        and not environment.get("MINIKAFKA_TRACEBACK")
    )


def freeze_modules() -> None:
    """Exclude all present objects from garbage collection, if modules were imported since the last call.

    At the start of a task this keeps no garbage: Spark has just collected it.
    """
    global _modules_frozen
    if len(sys.modules) != _modules_frozen:
        _modules_frozen = len(sys.modules)
        gc.freeze()


def acknowledge_at_once() -> None:
    """Set TCP_QUICKACK on the present connections after each full garbage collection, so that their next data
    is acknowledged at once.

    On Linux; elsewhere nothing is done.
    """
    global _jvm
    _jvm = list(_connections()) if hasattr(socket, "TCP_QUICKACK") else []
    if _jvm and _after_collection not in gc.callbacks:
        gc.callbacks.append(_after_collection)


def _after_collection(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        for descriptor, inode in _jvm or ():
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == inode:
                    with _borrowed(descriptor) as connection:
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _connections() -> Iterator[tuple[int, int]]:
    """Yield the descriptor and the inode of each TCP connection of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as found:
            found.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
            found.getpeername()
            yield int(name), os.fstat(int(name)).st_ino


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yield the socket of a descriptor, without duplicating it: its owner can still close the connection at
    any time. Raise OSError if it is not a socket.
    """
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()


_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"


def commits_streams() -> bool:
    """Return True in the workers in which Spark commits and aborts the micro-batches of its streams."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _COMMITS in sys.modules or (main is not None and main.name == _COMMITS)


def forget_importers() -> None:
    """Drop the importers of Spark's own archives, which do not change while a worker lives.

    Imported modules stay. For others, Python creates the importer again, from the directory that it has read.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter) and _is_sparks(PurePath(importer.archive).name):
            sys.path_importer_cache.pop(path, None)


def _is_sparks(name: str) -> bool:
    return (
        name == "pyspark.zip"
        or (name.startswith("py4j-") and name.endswith("-src.zip"))
        or (name.startswith("spark-core_") and name.endswith(".jar"))
    )


def directory(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the directory where Spark was started, the base of a user's relative paths. Driver only.

    None in a session's temporary directory if the JVM's working directory is unknown.
    """
    here = os.getcwd()
    session = environment.get("SPARK_JOB_ARTIFACT_UUID")
    if not session or PurePath(here).name != session:
        return here
    from minikafka.embedded import owners

    return owners.working_directory(owners.find_owner().pid)
