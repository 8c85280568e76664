"""The jar of the Scala shim, compiled from its sources with the compiler that PySpark ships.

There is one jar for every version of minikafka, PySpark and Scala, and for every state of the sources, in the
first directory of ``base.cache_dirs`` that has it or is writable.

    shim-STATE/minikafka-shim.jar     complete or, after a crash, missing
    shim-STATE/lock

If several processes need it at once, one compiles it, under the lock, and the others wait. Only the standard
library and the search for Java are used: this runs before there is a Spark session.
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
    """The shim could not be compiled or stored."""


def shim_path() -> str:
    """Return the absolute path of the jar. Compile it if it does not exist yet (about ten seconds).

    Raise ConfigError (no Java, no PySpark with a Scala compiler) or ShimFailed.
    """
    jars = find_spark_jars()
    name = f"shim-{_state(jars)}"
    tried = cache_dirs.candidates("shim")
    for place in tried:
        jar = place / name / JAR
        if cache_dirs.is_trusted(place) and _is_usable(jar):
            return str(jar)
        if cache_dirs.is_writable(place, jar.parent):
            return str(_compiled_once(jar, jars))
    raise ShimFailed(
        f"cannot store the jar of the Scala shim: none of {', '.join(map(str, tried))} is writable; set "
        "XDG_CACHE_HOME to a writable directory"
    )


def sources() -> Path:
    """Return the directory ``scala_shim``: inside an installed package, or beside it in the project."""
    installed = Path(__file__).parent / "scala_shim"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "scala_shim"


def find_spark_jars(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the jars of the installed PySpark, which is not imported, or of SPARK_HOME.

    Raise ConfigError when neither has a Scala compiler.
    """
    seen = jar_directories(environment)
    for directory in seen:
        if any(directory.glob(f"{_COMPILER}*.jar")):
            return directory
    raise ConfigError(
        "SPARK_HOME",
        environment.get("SPARK_HOME"),
        f"cannot compile the Scala shim: {_COMPILER}*.jar, which comes with Spark, was not found in "
        f"{' or '.join(map(str, seen)) or 'any PySpark (none is installed)'}; "
        "pip install 'minikafka[spark]', or set SPARK_HOME to a complete installation",
    )


def compile_jar(jar: Path, jars: Path) -> None:
    """Compile the shim into ``jar`` with the compiler among ``jars``. The file appears whole or not at all.

    Raise the errors of ``compile_scala``.
    """
    here = sources()
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="compiling-") as scratch:
        classes, unfinished = Path(scratch) / "classes", Path(scratch) / JAR
        compile_scala(sorted(here.rglob("*.scala")), classes, jars)
        shutil.copytree(here / "META-INF", classes / "META-INF")
        write_jar(unfinished, classes)
        os.chmod(unfinished, 0o644)  # regardless of the umask: see _is_usable
        os.replace(unfinished, jar)


def compile_scala(files: Sequence[Path], classes: Path, jars: Path, *others: str) -> None:
    """Compile Scala ``files`` into the new directory ``classes``, against ``jars`` and the jars ``others``.

    Raise ConfigError (no Java), or ShimFailed with the compiler's output.
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
        raise ShimFailed(f"failed to compile {files[0].name}: {problem}") from problem
    if done.returncode:
        raise ShimFailed(
            f"failed to compile {files[0].name} with {jars} (Spark 4.0 to 4.3 are known to work):\n"
            f"{(done.stdout + done.stderr).strip()[:4_000]}"
        )


def write_jar(jar: Path, classes: Path) -> None:
    """Pack the files in ``classes`` into ``jar``. The same files always make the same jar."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _LONG_AGO)
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _state(jars: Path) -> str:
    """Return a name that identifies everything the jar depends on."""
    here = sources()
    digest = hashlib.sha256()
    for path in sorted(here.rglob("*")):
        if path.is_file() and (path.suffix == ".scala" or "META-INF" in path.parts):
            digest.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes())
    scala, spark = (_version(jars, prefix) for prefix in (_COMPILER, "spark-sql_"))
    return f"{minikafka.__version__}-spark{spark}-scala{scala}-{digest.hexdigest()[:12]}"


def _version(jars: Path, prefix: str) -> str:
    """Return the version in a name like ``scala-compiler-2.13.18.jar`` or ``spark-sql_2.13-4.3.0.jar``."""
    stems = sorted(path.stem for path in jars.glob(f"{prefix}*.jar"))
    return next(iter(stems), "-unknown").rpartition("-")[2]


def _is_usable(jar: Path) -> bool:
    """Return True if the jar exists and is undamaged. Its code is run, so it must belong to this user or
    root, and must not be writable by others.
    """
    try:
        with cache_dirs.open_own(jar) as file, zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _compiled_once(jar: Path, jars: Path) -> Path:
    """Compile the jar, or wait for the process that compiles it."""
    lock = cache_dirs.open_lock(jar.parent / "lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_usable(jar):
            _print(f"compiling the Scala shim, once for this version (about ten seconds), into {jar.parent}")
            compile_jar(jar, jars)
    finally:
        os.close(lock)
    return jar


def _print(text: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"minikafka: {printable(text)}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.stdout.write(shim_path() + "\n")
    except MinikafkaError as problem:
        sys.exit(f"minikafka: {problem}")
