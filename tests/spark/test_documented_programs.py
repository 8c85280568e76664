"""The Spark programs of README, the tutorials and some guides run from top to bottom, as pasted in one
session, and print what the page shows.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.embedded import local
from minikafka.embedded.process import wait_until
from tests.spark.conftest import child_environment

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/tutorials/spark-batch.md",
    "docs/tutorials/spark-streaming.md",
    "docs/tutorials/value-formats.md",
    "docs/guides/query-lag.md",
    "docs/guides/value-formats.md",
    "docs/guides/spark-recipes.md",
)
"""Each page uses topics of its own, so that all of them run in one session and one data directory."""
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:^```\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
PASTE = """
import ast, json, sys

names = {}
for block in json.load(open(sys.argv[1])):
    for statement in ast.parse(block).body:
        exec(compile(ast.Interactive([statement]), "documentation", "single"), names)
    print("=== end of a block", flush=True)
"""


def programs() -> list[tuple[str, str]]:
    """Return the code and the shown output of each program, in the order of the pages."""
    return [block for page in PAGES for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


def cells(table: str) -> list[list[str]]:
    """Return the cells of a table that ``show`` printed, header first, without columns that differ by run."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    kept = [number for number, name in enumerate(rows[0]) if name not in {"offset", "timestamp"}]
    return [[row[number] for number in kept] for row in rows]


def comparable(text: str) -> list[list[str]]:
    """Return what is printed at every run: the cells of a table, or the words without numbers."""
    if "|" in text:
        return cells(text)
    return [re.sub(r"\d[\d,.]*", "N", line).split() for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_programs_run_as_pasted_and_print_what_is_shown(tmp_path: Path) -> None:
    blocks = programs()
    (tmp_path / "blocks.json").write_text(json.dumps([code for code, _ in blocks]))
    settings = "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 --driver-memory 1g"
    done = subprocess.run(
        [sys.executable, "-c", PASTE, str(tmp_path / "blocks.json")],
        cwd=tmp_path,
        env={**child_environment(), "PYSPARK_SUBMIT_ARGS": f"--master local[2] {settings} pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=380,
    )
    data_dir = str(tmp_path / "minikafka-data")
    assert wait_until(lambda: local.running(data_dir) is None, 60), (
        "the embedded broker ends with its session"
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed = done.stdout.split("=== end of a block\n")
    assert len(blocks) >= 6
    for (code, shown), output in zip(blocks, printed, strict=False):
        if shown:
            assert comparable(output) == comparable(shown), output
        results = re.findall(r"\)  # (\d+):", code)
        assert [line for line in output.splitlines() if line.isdecimal()] == results, output
