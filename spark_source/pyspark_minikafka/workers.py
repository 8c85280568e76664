"""What a Python worker of Spark does again for every task, made cheap.

Reading archives
    Before each task and each step of planning, a worker calls ``importlib.invalidate_caches()``. Before
    Python 3.13, every importer of a zip archive then reads the archive's directory anew. PySpark lies in such
    an archive, with thousands of entries and one importer for each of its packages: 0.3 to 0.6 s a task.
Looking for garbage
    After each task a worker calls ``gc.collect()``, which visits all objects of all modules: 0.07 s with
    numba and pyarrow.

Both take longer than most tasks.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import zipimport
from collections.abc import Iterator
from pathlib import PurePath

_frozen = False


def forget_importers() -> None:
    """Forget the importers of Spark's own archives, which do not change while a worker lives.

    What is imported stays; for what is not, Python makes an importer again, from the directory that it read.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter) and _is_sparks(PurePath(importer.archive).name):
            sys.path_importer_cache.pop(path, None)


@contextlib.contextmanager
def task() -> Iterator[None]:
    """Around a task's work: the next task of this worker begins sooner.

    Once a process, what is alive after its first task (the modules, above all) is taken out of the search for
    garbage. It is not given back then, should it become garbage in a cycle; nothing later is concerned.
    """
    global _frozen
    try:
        yield
    finally:
        forget_importers()
        if not _frozen:
            _frozen = True
            gc.freeze()


def _is_sparks(name: str) -> bool:
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))
