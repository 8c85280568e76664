"""Find Java, and the jars that PySpark ships.

``find_java`` looks for a Java that is new enough in JAVA_HOME, then on PATH.

The version is read from the file ``release`` of the installation, which costs nothing. Only if that is
missing (macOS' stub), ``java -version`` is run, which takes a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.errors import ConfigError

JAVA_MIN_VERSION = 17
"""Spark 4 requires the same version."""

# Java has no structured output: its file and its output are read by pattern.
_VERSION = re.compile(r"""(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)""")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime."""

    path: str
    """The ``java`` command."""
    version: int
    """Major version, as in 17."""


def find_java(environment: Mapping[str, str] = os.environ, *, purpose: str = "to run ZooKeeper") -> Java:
    """Return the first Java of at least version 17. Raises ConfigError with the purpose, the places that were
    searched, and what to install.
    """
    seen = []
    for source, command in _candidates(environment):
        version = None if command is None else _version(command)
        if command is not None and version is not None and version >= JAVA_MIN_VERSION:
            return Java(command, version)
        if command is None:
            seen.append(f"none in {source}")
        else:
            seen.append(
                f"{command} of {source} {'does not run' if version is None else f'is Java {version}'}"
            )
    raise ConfigError(
        "JAVA_HOME",
        environment.get("JAVA_HOME"),
        f"Java {JAVA_MIN_VERSION} or newer is needed {purpose} ({', '.join(seen)}): install one, on "
        "Debian with `apt install openjdk-17-jre-headless` (or openjdk-21-jre-headless), on macOS with "
        "`brew install openjdk@17`, or point JAVA_HOME at it",
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Return the places to search: (source, the command or None)."""
    found = []
    home = environment.get("JAVA_HOME")
    if home:
        command = os.path.join(home, "bin", "java")
        found.append((f"JAVA_HOME={home}", command if os.access(command, os.X_OK) else None))
    return [*found, ("PATH", shutil.which("java", path=environment.get("PATH", os.defpath)))]


def _version(command: str) -> int | None:
    """Return the major version of a ``java`` command; None if it is unknown."""
    try:
        text = (Path(os.path.realpath(command)).parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    found = _VERSION.search(text)
    if found is None:
        try:
            answer = subprocess.run(
                [command, "-version"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def jar_directories(environment: Mapping[str, str]) -> list[Path]:
    """Return the jar directories of the installed PySpark and of SPARK_HOME, in this order, unchecked."""
    found = []
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.submodule_search_locations:
        found += [Path(location) / "jars" for location in spec.submodule_search_locations]
    if environment.get("SPARK_HOME"):
        found.append(Path(environment["SPARK_HOME"]) / "jars")
    return found
