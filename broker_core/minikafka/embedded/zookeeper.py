"""An embedded ZooKeeper: a real one, run from the jars that PySpark ships.

``D/zookeeper`` has all its files: ``zoo.cfg`` (written at every start), ``port`` (the last one), ``lock``,
and ``data/version-2``, ZooKeeper's snapshots and transaction logs, purged every hour down to three snapshots.
A new transaction log has 256 kB instead of 64 MiB. It listens on 127.0.0.1 only.

Crash behaviour: ZooKeeper flushes every change before it acknowledges it, so it may be killed at any time,
and that is how it is stopped. Its process ends with this process (see ``process``). The supervisor holds the
lock too, so it is free only when no process writes there any more. If the holder has died, a start waits for
that moment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from minikafka.base.cache_dirs import make_private
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.files import RealFiles, replace_file
from minikafka.embedded import lock
from minikafka.embedded.java import find_java, jar_directories
from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.net.ports import can_bind, free_port, zookeeper_mode

HOST = "127.0.0.1"
TICK_MS = 500
"""Sessions expire at multiples of this."""
SESSION_TIMEOUT_MIN_MS = 500
SESSION_TIMEOUT_MAX_MS = 60_000

_log = logging.getLogger("minikafka.embedded")

_START_TIMEOUT_S = 90.0
"""Long, as Java reports no progress of its start on a busy machine."""
_PORT_ATTEMPTS = 3
_ANSWER_MS = 500

_JARS = (
    # The jars that QuorumPeerMain loads for a standalone server, by the start of the file's name.
    "zookeeper-",
    "zookeeper-jute-",
    "metrics-core-",
    "snappy-java-",
    "netty-common-",
    "netty-buffer-",
    "netty-transport-",
    "netty-resolver-",
    "netty-codec-",
    "netty-handler-",
    # log4j's small logger: log4j-core costs 20 MB and 0.2 s, and without a logger ZooKeeper's messages are
    # lost.
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
)

_COMMANDS_LOGGER = "org.apache.zookeeper.server.ServerCnxn"
_JVM_OPTIONS = (
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
    "-Dorg.apache.logging.log4j.simplelog.level=WARN",
    "-Dorg.apache.logging.log4j.simplelog.showdatetime=true",
    # It logs the end of connections with commands alone: an error with a stack if ``srvr``, which awaits its
    # start, comes when it listens and has no data yet.
    f"-Dorg.apache.logging.log4j.simplelog.{_COMMANDS_LOGGER}.level=FATAL",
    # As in the logs of brokers, see ``log_files``.
    "-Duser.timezone=UTC",
    "-Dorg.apache.logging.log4j.simplelog.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
)


def find_jars(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the jars of ZooKeeper from the installed PySpark, which is not imported, or from SPARK_HOME.

    Raises ConfigError if neither has them.
    """
    for directory in jar_directories(environment):
        jars = [
            str(path)
            for path in sorted(directory.glob("*.jar"))
            for prefix in _JARS
            if path.name.startswith(prefix) and path.name[len(prefix) :][:1].isdigit()
        ]
        if any("zookeeper-jute" in jar for jar in jars):
            return jars
    raise ConfigError(
        "zookeeper.connect",
        None,
        "no ZooKeeper was given, and the jars to start one, which come with PySpark, were not found: "
        "pip install 'minikafka[spark]', or give --zookeeper HOST:PORT",
    )


class PortInUse(ConfigError):
    """The required port is in use by another process."""


class EmbeddedZooKeeper:
    """A standalone ZooKeeper over ``data_dir/zookeeper``. Not thread-safe.

    port 0: the last port of this directory if it is free, else any free one. The port is kept for the life of
    this object, as brokers know it. Its output goes to ``data_dir/logs/zookeeper.log``.
    """

    def __init__(self, data_dir: str, port: int = 0) -> None:
        self._directory = os.path.join(os.path.abspath(data_dir), "zookeeper")
        self._log = os.path.join(os.path.abspath(data_dir), "logs", "zookeeper.log")
        self._fixed_port = port
        """The required port: the requested one, or the one that brokers know; 0: any free one."""
        self._port = 0
        self._process: ChildProcess | None = None

    @property
    def port(self) -> int:
        """The port it listens on; before the first start the requested one, which may be 0."""
        return self._port or self._fixed_port

    @property
    def connect(self) -> str:
        """``host:port``, for ``zookeeper.connect``."""
        return f"{HOST}:{self.port}"

    @property
    def process(self) -> ChildProcess | None:
        """The Java process while it runs."""
        return self._process

    @property
    def ended(self) -> bool:
        """True if it has ended without having been stopped."""
        return self._process is not None and self._process.exit_code is not None

    @property
    def answers(self) -> bool:
        """True if it responds now."""
        return zookeeper_mode(HOST, self._port, _ANSWER_MS) is not None

    @property
    def data_path(self) -> str:
        """The directory of its snapshots and transaction logs."""
        return os.path.join(self._directory, "data")

    @property
    def is_new(self) -> bool:
        """True if it has never run in this directory."""
        return not os.path.isdir(os.path.join(self.data_path, "version-2"))

    def remove_data(self) -> None:
        """Stop it, and remove all that it has."""
        self.stop()
        shutil.rmtree(self.data_path, ignore_errors=True)

    @property
    def is_data_removed(self) -> bool:
        """True if it runs and its data was deleted meanwhile."""
        return not self.ended and self.is_new

    def restart(self) -> None:
        """Restart it after its end, on the port that brokers know.

        Raises PortInUse while another process uses that port, and ProcessFailed if it does not start; then it
        still counts as ended, and can be restarted later.
        """
        ended, self._process = self._process, None
        try:
            self.start()
        except Exception:
            if self._process is None:
                self._process = ended
            raise

    def start(self) -> str:
        """Start it and return ``host:port`` once it is ready.

        Raises ConfigError (no Java, no jars), PortInUse, DirectoryLocked, ProcessFailed.
        """
        if self._process is not None:
            return self.connect
        java, jars = find_java(), find_jars()
        make_private(self._directory)
        make_private(self.data_path)
        held = lock.hold(os.path.join(self._directory, "lock"))
        try:
            for attempt in range(_PORT_ATTEMPTS):
                self._port = self._choose_port()
                self._process = self._launch(java.path, jars, held)
                try:
                    self._wait_ready(self._process)
                    break
                except MinikafkaError:
                    self._process.kill()
                    self._process = None
                    # Another process may have taken the free port first.
                    if self._fixed_port or attempt == _PORT_ATTEMPTS - 1 or can_bind(HOST, self._port):
                        raise
        finally:
            os.close(held)  # the supervisor holds it from now on
        self._fixed_port = self._port
        replace_file(RealFiles(), os.path.join(self._directory, "port"), b"%d\n" % self._port)
        return self.connect

    def stop(self) -> None:
        """Stop it. Does nothing if it does not run."""
        # SIGTERM would end the JVM just as abruptly, as ZooKeeper has no shutdown hook, but a third of a
        # second later.
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _choose_port(self) -> int:
        if self._fixed_port:
            if not can_bind(HOST, self._fixed_port):
                raise PortInUse(
                    "zookeeper port",
                    self._fixed_port,
                    f"is in use on {HOST}; use another port, or 0 for a free one",
                )
            return self._fixed_port
        last = 0
        with contextlib.suppress(OSError, ValueError):
            last = int(Path(self._directory, "port").read_text(encoding="ascii"))
        if 0 < last < 0x10000 and can_bind(HOST, last):
            return last
        port = free_port(HOST)
        if last:
            _log.warning(
                "port %d of ZooKeeper in %s is in use by another process; using port %d instead",
                last,
                self._directory,
                port,
            )
        return port

    def _launch(self, java: str, jars: list[str], held: int) -> ChildProcess:
        replace_file(RealFiles(), os.path.join(self._directory, "zoo.cfg"), self._config().encode("ascii"))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ChildProcess(
            [java, *_JVM_OPTIONS, "-cp", os.pathsep.join(jars), main, "./zoo.cfg"],
            name="zookeeper",
            log=self._log,
            environment=_java_environment(),
            directory=self._directory,
            orphan_grace_s=0.0,
            keep_open=(held,),
        )

    def _config(self) -> str:
        settings = {
            # Relative to its working directory: the file is read as Latin 1, and a path may have any
            # character.
            "dataDir": "./data",
            "clientPort": self._port,
            "clientPortAddress": HOST,
            "tickTime": TICK_MS,
            "minSessionTimeout": SESSION_TIMEOUT_MIN_MS,
            "maxSessionTimeout": SESSION_TIMEOUT_MAX_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,stat,mntr",
            "autopurge.purgeInterval": 1,
            "autopurge.snapRetainCount": 3,
            "preAllocSize": 256,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _wait_ready(self, process: ChildProcess) -> None:
        def settled() -> bool:
            # A short time-out: a connection made before ZooKeeper is ready is never answered.
            return process.exit_code is not None or zookeeper_mode(HOST, self._port, 200) is not None

        if not wait_until(settled, _START_TIMEOUT_S):
            raise process.failure(f"was not ready at {self.connect} within {_START_TIMEOUT_S:g} s")
        if process.exit_code is not None:
            raise process.failure("")


def _java_environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _JAVA_VARIABLES}
    # In the locale C, Java could not name a directory with letters outside ASCII.
    return environment | {"LC_ALL": "C.UTF-8"}


_JAVA_VARIABLES = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"})
"""Settings meant for the user's own Java programs, such as a debugger's port."""
