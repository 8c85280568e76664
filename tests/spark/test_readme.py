"""README's Spark examples run from top to bottom, as pasted in one session, and show what stands there."""

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

README = Path(__file__).resolve().parents[2] / "README.md"
SECTIONS = ("Spark, with nothing else running", "Read from where, how much, in how many tasks")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:^```\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
PASTE = """
import ast, json, sys

names = {}
for block in json.load(open(sys.argv[1])):
    for statement in ast.parse(block).body:
        exec(compile(ast.Interactive([statement]), "README", "single"), names)
    print("=== end of a block", flush=True)
"""


def examples() -> list[tuple[str, str]]:
    """Code and shown output of each example."""
    parts = re.split(r"^## (.*)\n", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [found for name in SECTIONS for found in BLOCK.findall(sections[name])]


def cells(table: str) -> list[list[str]]:
    """Of a table that ``show`` printed, its header first; what differs from run to run is left out."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    kept = [number for number, name in enumerate(rows[0]) if name not in {"offset", "timestamp"}]
    return [[row[number] for number in kept] for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_examples_run_as_pasted_and_show_what_stands_there(tmp_path: Path) -> None:
    blocks = examples()
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
    assert len(blocks) >= 4
    for (code, shown), given in zip(blocks, printed, strict=False):
        if shown:
            assert cells(given) == cells(shown), given
        told = re.findall(r"\)  # (\d+):", code)
        assert [line for line in given.splitlines() if line.isdecimal()] == told, given
