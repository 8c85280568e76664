"""The Scala shim without a compiler: its options, where its jar is kept, what the wheel has."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_minikafka
from minikafka.base import cache_dirs
from minikafka.base.config.config_def import definition_of
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import PROTOCOL
from minikafka.clients.produce import BatchingConfig
from pyspark_minikafka import shim
from pyspark_minikafka.options import group_options, kafka_options, options

PROJECT = Path(__file__).resolve().parents[3]
SHIM = PROJECT / "scala_shim"

OTHER_NAMES = {
    prefix + name
    for prefix in ("", "minikafka.")
    for name in (group_options.STORAGE, group_options.ZOOKEEPER)
}
"""Of properties that Scala has with ``kafka.``."""


def names_in_scala() -> list[str]:
    text = (SHIM / "src/minikafka/spark/MinikafkaOptions.scala").read_text()
    return re.findall(r'^  val \w+ = \w+(?:\[.*?\])?\("([\w.]+)"\)', text, re.MULTILINE)


def names_in_python() -> set[str]:
    parts = (kafka_options.ConnectionOptions, kafka_options.FetchOptions, BatchingConfig)
    client = {PROTOCOL, *(name for part in parts for name in definition_of(part).keys)}
    keys = {*options.SOURCE_CONFIG.keys, *options.SINK_CONFIG.keys, kafka_options.GROUP_ID} - OTHER_NAMES
    keys.remove(options.ESTIMATE)  # which the shim sets by itself
    return keys | {kafka_options.PREFIX + name for name in client}


def test_every_option_of_python_has_its_typed_one_in_scala() -> None:
    """Else: add a line for it to ``MinikafkaOptions.scala``."""
    assert names_in_python() - set(names_in_scala()) == set()


def test_scala_names_no_option_that_python_does_not_know_and_none_twice() -> None:
    names = names_in_scala()
    assert set(names) - names_in_python() == set()
    assert len(names) == len(set(names)) > 40


def test_the_service_file_names_the_class() -> None:
    service = SHIM / "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    package, name = service.read_text().strip().rsplit(".", 1)
    source = (SHIM / "src" / Path(*package.split(".")) / f"{name}.scala").read_text()
    assert f"package {package}\n" in source
    assert f"class {name} extends PythonDataSourceV2" in source


def test_the_wheel_has_the_sources_where_the_package_looks_for_them(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="what builds the wheel is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = "from pyspark_minikafka import shim; print(shim.sources())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    found = Path(said.stdout.strip())
    assert found == tmp_path / "installed" / "pyspark_minikafka" / "scala_shim"
    for part in ("src", "META-INF"):
        for path in filter(Path.is_file, (SHIM / part).rglob("*")):
            assert (found / path.relative_to(SHIM)).read_bytes() == path.read_bytes()


# Where the jar is kept. The compiler is a program that puts down a class and counts how often it ran.

FAKE_JAVA = """#!/bin/sh
echo compiled >> "$COUNT"
test -z "$FAIL" || { echo "X.scala: error: not found" >&2; exit 1; }
while [ "$1" != -d ]; do shift; done
echo bytes > "$2/Probe.class"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's cache, a temporary directory, a Spark and a Java that are this test's own."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA)
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("scala-compiler-2.13.18.jar", "spark-sql_2.13-4.3.0.jar", "spark-sql-api_2.13-4.3.0.jar"):
        (jars / name).touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache_dirs, "SHARED_MEMORY", tmp_path / "no-memory")
    for name, value in {
        "JAVA_HOME": tmp_path / "jdk",
        "SPARK_HOME": tmp_path / "spark",
        "XDG_CACHE_HOME": tmp_path / "cache",
        "COUNT": tmp_path / "count",
    }.items():
        monkeypatch.setenv(name, str(value))
    yield tmp_path / "cache"
    (tmp_path / "cache").chmod(0o755) if (tmp_path / "cache").exists() else None


def compiled(cache: Path) -> int:
    count = cache.parent / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


def test_the_jar_is_compiled_once_into_the_users_cache_and_says_so(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = pyspark_minikafka.shim_path(), pyspark_minikafka.shim_path()
    assert first == second
    assert Path(first).is_relative_to(cache / "minikafka" / "shim")
    assert compiled(cache) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(Path(first).parent) in said
    with zipfile.ZipFile(first) as jar:
        names = set(jar.namelist())
    assert names == {"Probe.class", "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"}


def test_another_version_of_spark_or_scala_has_a_jar_of_its_own(cache: Path) -> None:
    first = shim.shim_path()
    jars = cache.parent / "spark" / "jars"
    (jars / "spark-sql_2.13-4.3.0.jar").rename(jars / "spark-sql_2.13-4.0.5.jar")
    second = shim.shim_path()
    (jars / "scala-compiler-2.13.18.jar").rename(jars / "scala-compiler-2.13.16.jar")
    third = shim.shim_path()
    assert ["spark4.3.0-scala2.13.18" in first, "spark4.0.5-scala2.13.18" in second] == [True, True]
    assert "spark4.0.5-scala2.13.16" in third
    assert compiled(cache) == 3


def test_many_that_ask_at_once_have_it_compiled_once(cache: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(shim.shim_path())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 6
    assert compiled(cache) == 1


def test_a_damaged_jar_is_made_again(cache: Path) -> None:
    path = Path(shim.shim_path())
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert Path(shim.shim_path()).read_bytes() == good  # and the same from the same sources
    assert compiled(cache) == 2


def test_a_jar_that_others_may_write_is_not_trusted(cache: Path) -> None:
    path = Path(shim.shim_path())
    path.chmod(0o666)
    assert Path(shim.shim_path()).stat().st_mode & 0o777 == 0o644
    assert compiled(cache) == 2


def test_without_a_cache_it_is_kept_in_a_private_temporary_directory(cache: Path) -> None:
    cache.write_text("no directory")  # also root cannot write there
    path = Path(shim.shim_path())
    private = cache.parent / "tmp" / f"minikafka-{os.getuid()}"
    assert path.is_relative_to(private)
    assert private.stat().st_mode & 0o777 == 0o700
    assert shim.shim_path() == str(path)
    assert compiled(cache) == 1


def test_without_any_place_the_error_says_which_were_tried(cache: Path) -> None:
    cache.write_text("no directory")
    private = cache.parent / "tmp" / f"minikafka-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)  # anybody could put a jar there
    with pytest.raises(shim.ShimFailed, match=f"(?s){cache}.*{private}.*XDG_CACHE_HOME"):
        shim.shim_path()
    assert compiled(cache) == 0


def test_what_the_compiler_says_is_told_and_nothing_is_left(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(shim.ShimFailed, match=r"(?s)MinikafkaOptions\.scala .*Spark 4\.0 to 4\.3.*not found"):
        shim.shim_path()
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["lock"]
    monkeypatch.delenv("FAIL")
    assert Path(shim.shim_path()).exists()


def test_without_pysparks_compiler_the_error_says_where_it_was_looked_for(cache: Path) -> None:
    (cache.parent / "spark" / "jars" / "scala-compiler-2.13.18.jar").unlink()
    with pytest.raises(ConfigError, match=r"scala-compiler-\*\.jar.*spark/jars.*minikafka\[spark\]"):
        shim.shim_path()


def test_without_java_the_error_says_what_it_is_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(cache.parent / "tmp"))
    with pytest.raises(ConfigError, match="Java 17 or newer is needed to compile the Scala shim"):
        shim.shim_path()


def test_importing_the_package_does_not_import_the_shim() -> None:
    code = "import sys, pyspark_minikafka; print('pyspark_minikafka.shim' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
