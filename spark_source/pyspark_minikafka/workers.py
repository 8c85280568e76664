"""What a Python worker of Spark does again for every task, made cheap.

Before each task and each step of planning, a worker calls ``importlib.invalidate_caches()``. Before Python
3.13, every importer of a zip archive then reads the archive's directory anew. PySpark lies in such an
archive, with thousands of entries and one importer for each of its packages: 0.3 to 0.6 s a task, more than
most tasks need.
"""

from __future__ import annotations

import sys
import zipimport
from pathlib import PurePath


def forget_importers() -> None:
    """Forget the importers of Spark's own archives, which do not change while a worker lives.

    What is imported stays; for what is not, Python makes an importer again, from the directory that it read.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter) and _is_sparks(PurePath(importer.archive).name):
            sys.path_importer_cache.pop(path, None)


def _is_sparks(name: str) -> bool:
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))
