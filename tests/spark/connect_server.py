"""A Spark Connect server of a test's own, on a port that the system gives."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.conftest import ROOT, SESSION_CONFIG
from tests.support.processes import kill_family, wait_until

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")

PROJECT = (str(ROOT / "broker_core"), str(ROOT / "spark_source"))


@contextlib.contextmanager
def client(address: str) -> Iterator[SparkSession]:
    """A session of its own; ``SparkSession.builder`` of PySpark allows one kind of session a process.

    One that is not stopped calls for its server after the end of all tests.
    """
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(address).create()
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def connect_server(directory: Path, *, path: Sequence[str] = PROJECT) -> Iterator[str]:
    """A server that works in ``directory``; its address, for ``SparkSession.builder.remote``.

    path: its PYTHONPATH. It ends by SIGTERM, as by
    stop-connect-server.sh.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
    }
    settings = {
        **SESSION_CONFIG,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    command = [str(home / "bin" / "spark-submit"), "--class", CLASS, "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    output = directory / "server.txt"
    with output.open("w") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: server.poll() is not None or _STARTED.search(output.read_text()) is not None,
            "the start of the Spark Connect server",
        )
        started = _STARTED.search(output.read_text())
        assert started is not None, output.read_text()[-4_000:]
        yield f"sc://127.0.0.1:{started[1]}"
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        kill_family(server.pid)
        server.wait(30)
