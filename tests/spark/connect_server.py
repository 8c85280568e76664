"""A Spark Connect server of a test's own, on a port that the system gives."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.spark.conftest import ROOT, SESSION_CONFIG
from tests.spark.processes import kill_family, wait_until

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")

HIDES_US = """
import os, sys
sys.path[:] = [path for path in sys.path if not os.path.isdir(os.path.join(path, "pyspark_minikafka"))]
"""
"""As ``sitecustomize``: a Python that has all that we need, and not us."""


@contextlib.contextmanager
def connect_server(
    directory: Path,
    *,
    knows_us: bool = True,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A server that works in ``directory``; its address, for ``SparkSession.builder.remote``.

    knows_us: whether its Python can import the source. It ends by SIGTERM, as by stop-connect-server.sh.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    paths = [str(ROOT / "broker_core"), str(ROOT / "spark_source")]
    if not knows_us:
        paths = [str(directory / "without")]
        (directory / "without").mkdir()
        (directory / "without" / "sitecustomize.py").write_text(HIDES_US)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_WORKER_DIR": str(directory / "work"),
    }
    settings = {
        **SESSION_CONFIG,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **(config or {}),
    }
    command = [str(home / "bin" / "spark-submit"), "--class", CLASS, "--master", master]
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
