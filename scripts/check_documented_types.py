"""Check the types of the Python programs in README and the documents with mypy, as a reader's editor would.

    python scripts/check_documented_types.py

The blocks of a page become one module, as they continue each other; its lines are those of the page, so that
an error names the line to change. The settings are those of ``pyproject.toml`` for ``documented.*``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SESSION = "from pyspark.sql import SparkSession; spark: SparkSession"
"""Stands for the reader's own session in pages that make none."""


def pages() -> list[Path]:
    """Return README and the documents that have programs."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "```python" in page.read_text(encoding="utf-8")]


def module_of(page: str) -> str:
    """Return a module with the programs of ``page``, each line where it is in the page."""
    lines = [""] * (page.count("\n") + 1)
    for block in BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    code_text = "\n".join(lines)
    if re.search(r"\bspark\.", code_text) and not re.search(r"^spark = ", code_text, re.MULTILINE):
        lines[0] = SESSION
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check all pages. Return mypy's exit status."""
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory, "documented")
        package.mkdir()
        for page in pages():
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            (package / f"{name}.py").write_text(module_of(page.read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-m", "mypy", str(package), *sys.argv[1:]]
        environment = {**os.environ, "MYPYPATH": directory}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
