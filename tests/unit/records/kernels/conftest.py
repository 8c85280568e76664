"""Fixtures of the tests of machine code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import minikafka
from minikafka.records.kernels import cache
from minikafka.records.kernels.targets import TARGETS
from tests.support.kernel_code import CODES

SHARES = re.compile(r"^_SHARES = \(.*?\)\n(?=\S)", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def nothing_ready_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy with ready-made kernels (``scripts/wheel``), tests of the cache find none, as in a clone."""
    monkeypatch.setattr(cache, "for_this_machine", lambda: None)


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the packages that kernels need, with nothing compiled; only those that hash will be."""
    source = Path(minikafka.__file__).parent
    target = tmp_path / "site" / "minikafka"
    for name in ("base", "records"):
        ignored = shutil.ignore_patterns("__pycache__", *(known.file_name for known in TARGETS))
        shutil.copytree(source / name, target / name, ignore=ignored)
    shutil.copy(source / "__init__.py", target)
    code = target / "records" / "kernels" / "cache.py"
    text = code.read_text()
    assert len(SHARES.findall(text)) == 1
    code.write_text(SHARES.sub('_SHARES = (("hashing",),)\n', text))
    return target


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories of compilations, which are replaced by CODES."""
    directories: list[Path] = []

    def compile_at_once(directory: Path, lock: int) -> None:
        directories.append(directory)
        cache.keep(directory, CODES)

    monkeypatch.setattr(cache, "_compile_in_children", compile_at_once)
    return directories
