"""Public names of packages are imported when they are used, and no earlier."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import minikafka
from minikafka.base.exports import lazy_exports

PACKAGES = [
    "minikafka",
    "minikafka.clients.admin",
    "minikafka.clients.consumer",
    "minikafka.clients.group",
    "minikafka.clients.network",
    "minikafka.embedded",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'p' has no attribute 'Missing'"):
        lazy_exports("p", {})("Missing")


def test_importing_the_package_imports_no_client() -> None:
    code = (
        "import sys, minikafka; print([name for name in sys.modules if name.startswith('minikafka.clients')])"
    )
    path = str(Path(minikafka.__file__).parents[1])
    out = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert out.stdout == "[]\n"
