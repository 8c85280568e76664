"""Machine code of kernels for tests: installations with few kernels, and code that is only stored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minikafka.records import kernels
from minikafka.records.kernels import cache
from minikafka.records.kernels.native import Code, Kernel

USE_ONE = "from minikafka.records.format.checksums import crc32c; print(hex(crc32c(b'123456789')))"
ONE_GIVES = "0xe3069283"
"""The published check value of CRC-32C."""

CODES = {"find": Code("find_1", bytes(range(256))), "scan_run": Code("scan_run_1", b"")}
"""Code that is stored and never called."""


def start(installation: Path, program: str | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start a program (USE_ONE) with the packages of an installation, and nothing else in its environment."""
    names = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installation.parent), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", program or USE_ONE],
        env=names,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def use_places(monkeypatch: pytest.MonkeyPatch, *chosen: Path) -> None:
    """Let the cache have these directories alone."""
    monkeypatch.setattr(cache, "candidates", lambda: list(chosen))


def names_of_kernels(module: ModuleType) -> set[str]:
    """Return the names of a module's kernels."""
    return {name for name, value in vars(module).items() if isinstance(value, Kernel)}


def modules() -> list[ModuleType]:
    """Return the modules with kernels."""
    return [getattr(kernels, name) for name in kernels._MODULES]
