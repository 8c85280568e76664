"""The parity page names only tests that exist, and every test that runs against the peer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/parity-with-spark-kafka.md").read_text()))


def named_below(*directories: str) -> set[str]:
    sources = (
        path.read_text() for name in directories for path in (ROOT / "tests" / name).rglob("test_*.py")
    )
    return {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}


def test_every_test_that_the_table_names_exists() -> None:
    assert NAMED
    assert not NAMED - named_below("spark", "unit/spark_source", "interop")


def test_every_test_against_the_peer_stands_in_the_table() -> None:
    assert not named_below("spark/parity") - NAMED
