"""The choice of Java, and the error when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.embedded.java import Java, find_java


def install(directory: Path, release: str | None, script: str = "exit 1") -> Path:
    """Create a Java installation with its version in ``release`` or from ``script``; return its command."""
    (directory / "bin").mkdir(parents=True)
    command = directory / "bin" / "java"
    command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    command.chmod(0o755)
    if release is not None:
        (directory / "release").write_text(release, encoding="utf-8")
    return command


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    at_home = install(tmp_path / "home", 'JAVA_VERSION="21.0.1"\n')
    on_path = install(tmp_path / "other", 'JAVA_VERSION="17"\n')
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert found == Java(str(at_home), 21)


def test_without_java_home_the_path_is_searched(tmp_path: Path) -> None:
    command = install(tmp_path / "jdk", 'IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n')
    assert find_java({"PATH": str(command.parent)}) == Java(str(command), 17)


def test_a_link_on_the_path_is_followed_to_its_installation(tmp_path: Path) -> None:
    command = install(tmp_path / "jdk", 'JAVA_VERSION="25"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(command)
    assert find_java({"PATH": str(tmp_path / "bin")}).version == 25


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "old", 'JAVA_VERSION="1.8.0_402"\n')
    new = install(tmp_path / "new", 'JAVA_VERSION="17"\n')
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert found == Java(str(new), 17)


def test_without_a_release_file_java_is_asked(tmp_path: Path) -> None:
    command = install(tmp_path / "jdk", None, """echo 'openjdk version "18.0.2" 2022-07-19' >&2""")
    assert find_java({"PATH": str(command.parent)}) == Java(str(command), 18)


def test_missing_java_error_says_where_it_looked_and_what_to_install(tmp_path: Path) -> None:
    install(tmp_path / "old", 'JAVA_VERSION="1.8.0_402"\n')
    with pytest.raises(ConfigError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    message = str(caught.value)
    assert f"{tmp_path}/old/bin/java of JAVA_HOME={tmp_path}/old is Java 8" in message
    assert "none in PATH" in message
    assert "apt install openjdk-17-jre-headless" in message


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"none in JAVA_HOME={tmp_path}"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    command = install(tmp_path / "jdk", None, "exit 1")
    with pytest.raises(ConfigError, match=f"{command} of PATH does not run"):
        find_java({"PATH": str(command.parent)})


def test_this_machine_has_a_java() -> None:
    assert find_java().version >= 17
