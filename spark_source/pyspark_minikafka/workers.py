"""The Python workers of Spark: what they do again for every task made cheap, and where they are.

Before each task and each step of planning, a worker calls ``importlib.invalidate_caches()``. Before Python
3.13, every importer of a zip archive then reads the archive's directory anew. PySpark lies in such an
archive, with thousands of entries and one importer for each of its packages, and Spark puts its own
``spark-core`` jar on Python's path, with more entries still: 0.3 to 0.6 s a task, more than most tasks need.

After each task, a worker collects garbage, and the next task waits for it: 40 ms, nearly all of them spent on
the modules that were imported, of which nothing ever goes.

A task comes from the JVM in two parts, of which the second waits until the first is acknowledged (Nagle's
algorithm); a socket that has just sent something takes 40 ms for that, in the hope of an answer that could
bring it along. What Linux is asked to do about it lasts until the worker sends again, so it is asked between
tasks, when garbage is collected.

Of a session that has files of its own (always in ``spark-sql``, and for a server of Spark Connect), they run
in a temporary directory, ``userFiles-…/UUID``, that goes with the session.
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
"""Whether we have set it."""
_modules_frozen = 0
_jvm: list[tuple[int, int]] | None = None
"""Descriptors and inodes of the connections that this process had at its first task."""


@contextlib.contextmanager
def task() -> Iterator[None]:
    """Around whatever Spark asks of a worker, so that what it does until the next task is cheap."""
    freeze_modules()
    if _jvm is None:
        acknowledge_at_once()
    try:
        yield
    finally:
        forget_importers()


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Around whatever Spark asks: an error of ours reaches the user as its one line.

    Spark sends the text of an error with its traceback in front, and logs it at several places. It leaves the
    traceback out where ``SPARK_HIDE_TRACEBACK`` is set in the worker that raises; so it is set for errors
    that say themselves what is wrong, in workers only. ``MINIKAFKA_TRACEBACK=1`` keeps tracebacks.
    """
    global _hidden
    if _hidden:
        _hidden = False
        os.environ.pop(_HIDE, None)
    try:
        yield
    except Exception as problem:
        if _is_told_whole(problem, os.environ):
            _hidden = True
            os.environ[_HIDE] = "1"
        raise


def _is_told_whole(problem: Exception, environment: Mapping[str, str]) -> bool:
    ours = type(problem).__module__.partition(".")[0] in ("minikafka", __package__)
    worker = any(name.startswith("PYTHON_WORKER_FACTORY_") for name in environment)
    return ours and worker and _HIDE not in environment and not environment.get("MINIKAFKA_TRACEBACK")


def freeze_modules() -> None:
    """Let the collector of garbage look no more at what there is, if modules came since the last time.

    At the beginning of a task no garbage is kept by this: Spark has just collected it.
    """
    global _modules_frozen
    if len(sys.modules) != _modules_frozen:
        _modules_frozen = len(sys.modules)
        gc.freeze()


def acknowledge_at_once() -> None:
    """Let what comes over today's connections be acknowledged without delay after each collection of garbage.

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
    """Descriptor and inode of each TCP connection of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as found:
            found.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
            found.getpeername()
            yield int(name), os.fstat(int(name)).st_ino


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """The socket of a descriptor, OSError if it is of something else. Whose it is may close it at any time:
    no duplicate keeps the connection open.
    """
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()


def forget_importers() -> None:
    """Forget the importers of Spark's own archives, which do not change while a worker lives.

    What is imported stays; for what is not, Python makes an importer again, from the directory that it read.
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
    """Return the directory where Spark was started, the base of a user's relative paths. On the driver.

    None in a session's temporary directory when the system does not say where the JVM was started.
    """
    here = os.getcwd()
    session = environment.get("SPARK_JOB_ARTIFACT_UUID")
    if not session or PurePath(here).name != session:
        return here
    from minikafka.embedded import owners

    return owners.working_directory(owners.find_owner().pid)
