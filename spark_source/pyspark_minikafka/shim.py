"""The jar of the Scala shim, compiled from its sources with the compiler that PySpark ships.

It is kept for every version of minikafka, PySpark and Scala, and for every state of the sources, in the first
directory of ``base.cache_dirs`` that has it or can be written.

    shim-STATE/minikafka-shim.jar     whole or, after a crash, not there
    shim-STATE/lock

Of many processes that ask at once one compiles, under the lock, and the others wait. Standard library only,
besides what finds Java: this runs before there is a Spark session.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import minikafka
from minikafka.base import cache_dirs
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.printable import printable
from minikafka.embedded.java import find_java, jar_directories

JAR = "minikafka-shim.jar"
_COMPILER = "scala-compiler-"
_SECONDS_MAX = 300
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


class ShimFailed(MinikafkaError):
    """The shim could not be compiled, or put anywhere."""


def shim_path() -> str:
    """The absolute path of the jar, which is compiled now if it never was (about ten seconds).

    Raises ConfigError (no Java, no PySpark with a Scala compiler) and ShimFailed.
    """
    jars = find_spark_jars()
    name = f"shim-{_state(jars)}"
    tried = cache_dirs.candidates("shim")
    for place in tried:
        jar = place / name / JAR
        if cache_dirs.is_trusted(place) and _is_whole(jar):
            return str(jar)
        if cache_dirs.is_writable(place, jar.parent):
            return str(_compiled_once(jar, jars))
    raise ShimFailed(
        f"there is no place for the jar of the Scala shim: {', '.join(map(str, tried))} cannot be "
        "written; set XDG_CACHE_HOME to a directory that can"
    )


def sources() -> Path:
    """The directory ``scala_shim``: in the package where it is installed, else beside it in the project."""
    installed = Path(__file__).parent / "scala_shim"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "scala_shim"


def find_spark_jars(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of the jars of the installed PySpark, which is not imported, else of SPARK_HOME.

    Raises ConfigError when there is no Scala compiler in either.
    """
    seen = jar_directories(environment)
    for directory in seen:
        if any(directory.glob(f"{_COMPILER}*.jar")):
            return directory
    raise ConfigError(
        "SPARK_HOME",
        environment.get("SPARK_HOME"),
        f"{_COMPILER}*.jar, which comes with Spark, is needed to compile the Scala shim, and is not in "
        f"{' or '.join(map(str, seen)) or 'any PySpark, as none is installed'}: "
        "pip install 'minikafka[spark]', or set SPARK_HOME to a whole installation",
    )


def compile_jar(jar: Path, jars: Path) -> None:
    """Compile the shim into ``jar`` with the compiler among ``jars``; the file is there whole or not at all.

    Raises as ``compile_scala``.
    """
    here = sources()
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="compiling-") as scratch:
        classes, unfinished = Path(scratch) / "classes", Path(scratch) / JAR
        compile_scala(sorted(here.rglob("*.scala")), classes, jars)
        shutil.copytree(here / "META-INF", classes / "META-INF")
        write_jar(unfinished, classes)
        os.chmod(unfinished, 0o644)  # whatever the umask: see _is_whole
        os.replace(unfinished, jar)


def compile_scala(files: Sequence[Path], classes: Path, jars: Path, *others: str) -> None:
    """Compile Scala ``files`` into the new directory ``classes``, against ``jars`` and the jars ``others``.

    Raises ConfigError (no Java) and ShimFailed with what the compiler said.
    """
    classes.mkdir()
    java = find_java(purpose="to compile the Scala shim").path
    class_path = os.pathsep.join([str(jars / "*"), *others])
    command = [java, *_JVM_OPTIONS, "-cp", class_path, "scala.tools.nsc.Main", "-usejavacp"]
    command += ["-encoding", "UTF-8", "-d", str(classes), *map(str, files)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ShimFailed(f"{files[0].name} could not be compiled: {problem}") from problem
    if done.returncode:
        raise ShimFailed(
            f"{files[0].name} could not be compiled with {jars}; Spark 4.0 to 4.3 are known to work:\n"
            f"{(done.stdout + done.stderr).strip()[:4_000]}"
        )


def write_jar(jar: Path, classes: Path) -> None:
    """Pack what lies in ``classes``: the same jar from the same files, whenever it is made."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _LONG_AGO)
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _state(jars: Path) -> str:
    """A name for everything that the jar depends on."""
    here = sources()
    digest = hashlib.sha256()
    for path in sorted(here.rglob("*")):
        if path.is_file() and (path.suffix == ".scala" or "META-INF" in path.parts):
            digest.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes())
    scala, spark = (_version(jars, prefix) for prefix in (_COMPILER, "spark-sql_"))
    return f"{minikafka.__version__}-spark{spark}-scala{scala}-{digest.hexdigest()[:12]}"


def _version(jars: Path, prefix: str) -> str:
    """As in ``scala-compiler-2.13.18.jar`` and ``spark-sql_2.13-4.3.0.jar``."""
    return next(iter(sorted(path.stem for path in jars.glob(f"{prefix}*.jar"))), "-unknown").rpartition("-")[
        2
    ]


def _is_whole(jar: Path) -> bool:
    """Return whether the jar exists and is undamaged. Its code is run, so it must belong to this user or
    root, and be writable by nobody else.
    """
    try:
        with cache_dirs.open_own(jar) as file, zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _compiled_once(jar: Path, jars: Path) -> Path:
    """Compile the jar, or wait for who does."""
    lock = cache_dirs.open_lock(jar.parent / "lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(jar):
            _say(f"compiling the Scala shim, once for this version (about ten seconds), into {jar.parent}")
            compile_jar(jar, jars)
    finally:
        os.close(lock)
    return jar


def _say(text: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"minikafka: {printable(text)}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.stdout.write(shim_path() + "\n")
    except MinikafkaError as problem:
        sys.exit(f"minikafka: {problem}")
