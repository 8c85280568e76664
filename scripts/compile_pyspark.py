"""Put compiled modules into the zip from which Spark's Python workers import PySpark.

The zip of the distribution has sources only, so that each of the half-dozen Python processes behind a first
query compiles them for a second. What is imported stays the same. Run with the environment's interpreter;
a zip that has been seen to is left alone.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path


def main() -> int:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        print("PySpark is not installed", file=sys.stderr)
        return 1
    for archive in (Path(spec.origin).parent / "python" / "lib").glob("*.zip"):
        with zipfile.ZipFile(archive) as sources:
            if any(name.endswith(".pyc") for name in sources.namelist()):
                continue
            with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
                tree = os.path.join(directory, "tree")
                sources.extractall(tree)
                compileall.compile_dir(
                    tree,
                    stripdir=tree,
                    prependdir=str(archive),
                    legacy=True,
                    quiet=1,
                    rx=re.compile(r"/tests/"),
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                made = shutil.make_archive(os.path.join(directory, "made"), "zip", tree)
                os.replace(made, archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
