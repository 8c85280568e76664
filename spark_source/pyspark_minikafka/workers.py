"""The Python workers of Spark: what they do again for every task made cheap, and where they are.

Before each task and each step of planning, a worker calls ``importlib.invalidate_caches()``. Before Python
3.13, every importer of a zip archive then reads the archive's directory anew. PySpark lies in such an
archive, with thousands of entries and one importer for each of its packages, and Spark puts its own
``spark-core`` jar on Python's path, with more entries still: 0.3 to 0.6 s a task, more than most tasks need.

After each task, a worker collects garbage, and the next task waits for it: 40 ms, nearly all of them spent on
the modules that were imported, of which nothing ever goes.

Of a session that has files of its own (always in ``spark-sql``, and for a server of Spark Connect), they run
in a temporary directory, ``userFiles-…/UUID``, that goes with the session.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import zipimport
from collections.abc import Iterator, Mapping
from pathlib import PurePath

_modules_frozen = 0


@contextlib.contextmanager
def task() -> Iterator[None]:
    """Around whatever Spark asks of a worker, so that what it does until the next task is cheap."""
    freeze_modules()
    try:
        yield
    finally:
        forget_importers()


def freeze_modules() -> None:
    """Let the collector of garbage look no more at what there is, if modules were imported since the last time.

    At the beginning of a task no garbage is kept by this: Spark has just collected it.
    """
    global _modules_frozen
    if len(sys.modules) != _modules_frozen:
        _modules_frozen = len(sys.modules)
        gc.freeze()


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
    """Where Spark was started, which is what a relative path of the user's is relative to. On the driver.

    None in a session's temporary directory when the system does not say where the JVM was started.
    """
    here = os.getcwd()
    session = environment.get("SPARK_JOB_ARTIFACT_UUID")
    if not session or PurePath(here).name != session:
        return here
    from minikafka.embedded import owners

    return owners.working_directory(owners.find_owner().pid)
