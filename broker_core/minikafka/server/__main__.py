"""One broker as a process: ``python -m minikafka.server FILE.properties [--set key=value]…``.

Prints ``ready HOST:PORT zookeeper CONNECT cluster ID`` to stdout once it serves; logs go to stderr. SIGTERM
and Ctrl-C stop it cleanly with exit code 0, also while it waits for ZooKeeper. Exit code 2, and one line on
stderr: invalid configuration, a directory that is in use, a broker id that is taken, a ZooKeeper that does
not respond. Exit code 1, and one line on stderr: a fatal error while it ran, or a failed flush at its stop.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TextIO, TypeVar

import minikafka
from minikafka.base.cache_dirs import is_open_to_others, write_address
from minikafka.base.clock import SystemClock
from minikafka.base.config.config_def import Faults
from minikafka.base.config.property_files import key_values, read_properties
from minikafka.base.errors import (
    ConfigError,
    ConfigErrors,
    DirectoryLocked,
    MinikafkaError,
    NetworkError,
    StorageError,
)
from minikafka.base.files import RealFiles
from minikafka.base.ids import host_port
from minikafka.base.log_lines import LogFormat
from minikafka.base.memory import collect_rarely
from minikafka.base.reports import report
from minikafka.log.layout import LOCK_FILE
from minikafka.log.manager import Jobs
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.net.ports import addresses_of, can_connect, wait_for_zookeeper
from minikafka.net.server import RequestHandler, Server, SocketServer
from minikafka.net.service_manager import notify_ready, notify_stopping
from minikafka.net.tls import ServerTls
from minikafka.net.zookeeper_tls import zookeeper_security
from minikafka.records import kernels
from minikafka.registry.store import Store
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.registry.zookeeper_address import servers_of
from minikafka.registry.zookeeper_security import AclPolicy, ZooKeeperSecurity
from minikafka.server.assembly import Ports, RunningBroker, endpoints_of, start_patiently
from minikafka.server.config.listener_security import ListenerProperties
from minikafka.server.config.listeners import unreachable
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.event_log import EventLog, log_to_stderr
from minikafka.server.inter_broker_connection import InterBrokerConnection
from minikafka.server.inter_broker_connector import InterBrokerConnector
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.server.metrics.monitoring import Monitoring
from minikafka.server.metrics.slow_requests import SlowRequests
from minikafka.server.workers.work_pool import MEMORY_BYTES, ThreadWorkPool
from minikafka.server.workers.worker import ThreadWorker

T = TypeVar("T")

_log = logging.getLogger("minikafka.server")

_CONNECT_MS = 3_000
"""The time-out for connecting to another broker: a dead host must not block a thread."""
EVERY_LINE = ("minikafka.server.security",)
"""The loggers whose lines are never counted instead of written: who was denied what."""
_START_AGAIN_S = 1.0
"""The pause between attempts to start, after the connection to ZooKeeper was lost."""


def main(
    arguments: list[str] | None = None, notes: Iterable[str] = (), log_stream: TextIO | None = None
) -> int:
    """Run a broker until it is stopped; return the exit code.

    notes: of the caller, for the log. log_stream: the log's, in place of standard error.
    """
    parser = argparse.ArgumentParser(prog="minikafka.server", description="Run one broker.")
    parser.add_argument("properties", metavar="FILE.properties", help="Kafka's own property names")
    parser.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="override one property"
    )
    given = parser.parse_args(arguments)
    lines = log_to_stderr(EVERY_LINE, log_stream)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    ending = _Ending(lines)
    monitoring = Monitoring()
    try:
        config = _config(given.properties, given.set, lines)
        _log_start(config)
        for note in notes:
            _log.info("%s", note)
        listen(monitoring, config)
        running = start_patiently(
            lambda: _start(config, ending, lines, monitoring.metrics),
            config.zookeeper_connection_timeout_ms,
            SystemClock(),
            lambda: ending.or_result(lambda: time.sleep(_START_AGAIN_S)),
        )
    except _Stopped:
        _log.info("stopped before the start was complete")
        return 0
    except MinikafkaError as error:
        report("failed", message=str(error))
        lines.write_failure(str(error))
        return 2
    except Exception as error:
        report("failed", message=f"internal error: {type(error).__name__}: {error}")
        raise
    if watch(monitoring, running, config, ending.fatal):
        threading.Thread(
            target=announce, args=(running, config, monitoring.urls), name="announce", daemon=True
        ).start()
    status = ending.wait()
    _log.info("stopping")
    notify_stopping()
    monitoring.stopping()
    running.housekeeper.stop()
    try:
        running.stop()
    except MinikafkaError as error:
        problem = f"failed to stop cleanly, the next start will check the logs: {error}"
        report("failed", message=problem)
        lines.write_failure(problem)
        return 1
    finally:
        monitoring.stop()
    _log.info("stopped")
    return status


_DONE = b"."
"""Written to the pipe of ``_Ending``, which also gets signal numbers and ``!``."""


class _Stopped(Exception):
    """The broker was stopped while it waited."""


class _Ending:
    """Waits for SIGTERM, Ctrl-C or a fatal error.

    It uses a pipe, which Python's own signal handling writes to: a handler that used an Event could interrupt
    the very thread that holds the Event's lock.
    """

    def __init__(self, lines: EventLog) -> None:
        self._lines = lines
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._status = 0

    def fatal(self, reason: str, status: int = 1) -> None:
        """Report a fatal error and end ``wait``, which returns ``status``. Any thread may call this."""
        report("failed", message=reason)
        self._lines.write_failure(reason)
        self._status = status
        os.write(self._write, b"!")

    def wait(self) -> int:
        """Wait for the end; return the exit status."""
        os.read(self._read, 1)
        return self._status

    def or_result(self, job: Callable[[], T]) -> T:
        """Return or raise the outcome of ``job``, run on another thread; raise _Stopped at the end."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for it
                future.set_exception(error)
            os.write(self._write, _DONE)

        threading.Thread(target=run, name="waited-for", daemon=True).start()
        if os.read(self._read, 1) != _DONE:
            raise _Stopped
        return future.result()


def listen(monitoring: Monitoring, config: BrokerConfig) -> None:
    """Serve the health of the process. Raise NetworkError for a port in use, but DirectoryLocked if another
    process has a data directory: it is that broker which also has the port.
    """
    try:
        monitoring.listen(config)
    except NetworkError:
        for path in (os.path.join(directory, LOCK_FILE) for directory in config.log_dirs):
            if os.path.exists(path):
                _check_unlocked(path)
        raise


def _check_unlocked(path: str) -> None:
    try:
        RealFiles().lock(path).release()
    except DirectoryLocked as held:
        raise held from None
    except StorageError:
        return  # the port is the first problem that was found


def watch(
    monitoring: Monitoring, running: RunningBroker, config: BrokerConfig, fatal: Callable[[str, int], None]
) -> bool:
    """Serve and push the metrics of a broker that has started. A failure is fatal; return False then."""
    try:
        monitoring.watch(running, lambda: _connector(config))
    except Exception as error:  # noqa: BLE001 - the broker serves already, and must stop in order
        cause = str(error) if isinstance(error, MinikafkaError) else f"{type(error).__name__}: {error}"
        fatal(f"failed to start the metrics: {cause}", 2)
        return False
    return True


def announce(running: RunningBroker, config: BrokerConfig, metrics_urls: Sequence[str] = ()) -> None:
    """Print the ready line once the broker serves; then warn of advertised addresses that look wrong."""
    running.serving.wait()
    address = running.address
    for directory in config.log_dirs:
        write_address(os.path.join(directory, LOCK_FILE), host_port(address.host, address.port))
    notify_ready(host_port(address.host, address.port))
    # One write, also where Python does not buffer: another thread's log may go to the same file.
    sys.stdout.write(
        f"ready {host_port(address.host, address.port)} zookeeper {config.zookeeper_connect} "
        f"cluster {running.broker.metadata_cache.cluster_id}\n"
    )
    sys.stdout.flush()
    bound = ",".join(f"{found.listener}://{host_port(found.host, found.port)}" for found in running.endpoints)
    _log.info("ready: advertised.listeners=%s", bound)
    report(
        "ready",
        address=host_port(address.host, address.port),
        cluster_id=running.broker.metadata_cache.cluster_id,
        metrics=",".join(metrics_urls),
    )
    listeners = {listener.name: listener for listener in config.listeners}
    for endpoint in running.endpoints:
        complaint = unreachable(listeners[endpoint.listener], endpoint.port, addresses_of, can_connect)
        if complaint is not None:
            _log.warning("%s", complaint)


def _config(path: str, overrides: list[str], lines: EventLog) -> BrokerConfig:
    properties = read_properties(path, "FILE.properties") | key_values("--set", overrides)
    lines.use(LogFormat.among(properties))  # faults of the others are reported in this form
    config = BrokerConfig.from_properties(properties)
    if config.broker_id >= 0:
        lines.identify(broker_id=config.broker_id)
    if config.unknown:
        _log.warning("%s", config.unused())
    return config


def _log_start(config: BrokerConfig) -> None:
    _log.info(
        "starting minikafka %s: broker.id=%s log.dirs=%s listeners=%s zookeeper.connect=%s pid=%d python=%s",
        minikafka.__version__,
        config.broker_id if config.broker_id >= 0 else "from meta.properties or generated",
        ",".join(config.log_dirs),
        ",".join(
            f"{listener.name}://{host_port(listener.host, listener.port)}" for listener in config.listeners
        ),
        config.zookeeper_connect,
        os.getpid(),
        platform.python_version(),
    )


def _identified(lines: EventLog, broker_id: int, cluster_id: str) -> None:
    lines.identify(broker_id=broker_id, cluster_id=cluster_id)
    _log.info("broker %d of cluster %s", broker_id, cluster_id)


def _start(config: BrokerConfig, ending: _Ending, lines: EventLog, metrics: BrokerMetrics) -> RunningBroker:
    tls = tls_of(config)
    counted = metrics.requests if config.metrics.are_served else None
    slow_requests = SlowRequests(counted, config.event_log.slow_request_ms)

    def listen(config: BrokerConfig, handler: RequestHandler) -> Server:
        server = SocketServer(
            endpoints_of(config, tls),
            handler,
            processors=config.network_threads,
            max_request_bytes=config.request_max_bytes,
            idle_ms=config.connection_idle_max_ms,
            queued_requests=config.queued_max_requests,
            queued_bytes=config.queued_max_bytes,
            unauthenticated_request_bytes=config.authentication.receive_max_bytes,
            limits=_resolved(config.connection_limits),
            observer=slow_requests,
        )
        server.start()
        return server

    security = zookeeper_security(config.zookeeper)

    _warn_of_open_directories(config.log_dirs)
    _raise_file_limit()
    report("phase", phase="loading kernels")
    kernels.warm_up()
    report("phase", phase="starting")
    # Imported objects are never freed: checking them in every full collection stops all threads for 20 ms.
    gc.freeze()
    collect_rarely()
    running = RunningBroker(
        config,
        Ports(
            files=RealFiles(),
            clock=SystemClock(),
            worker=ThreadWorker("registrar"),
            loader=ThreadWorker("groups"),
            connect_store=lambda: ending.or_result(lambda: _connect(config, security, metrics)),
            listen=listen,
            random_bytes=os.urandom,
            connector=_connector(config),
            run_all=lambda jobs: _in_parallel(jobs, config.recovery_threads),
            spawn=_spawn,
            metrics=metrics,
            renew_certificates=lambda: _renew(tls.values()),
            pool=ThreadWorkPool("requests", min(config.io_threads, os.cpu_count() or 1), MEMORY_BYTES),
            identified=partial(_identified, lines),
        ),
        ending.fatal,
    )
    running.broker.dynamic_properties.attach(
        lambda properties: slow_requests.set_limit(properties.slow_request_ms)
    )
    running.housekeeper.start()
    return running


def _connect(config: BrokerConfig, security: ZooKeeperSecurity, metrics: BrokerMetrics) -> Store:
    """Connect to ZooKeeper, which may start later than this broker."""
    began, patience_ms = time.monotonic(), config.zookeeper_connection_timeout_ms
    if security.tls is None:
        wait_for_zookeeper(servers_of(config.zookeeper_connect), patience_ms)
    waited_ms = int((time.monotonic() - began) * 1000)
    store = ZooKeeperStore(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connect_timeout_ms=patience_ms,
        waited_ms=waited_ms,
        security=security,
        request_times=metrics.zookeeper_requests,
    )
    if security.acl is AclPolicy.PRIVATE:
        closed = store.close_to_others()
        if closed:
            _log.info("closed ZooKeeper to others: %d znodes were open", closed)
    return store


def _warn_of_open_directories(directories: Iterable[str]) -> None:
    for directory in filter(is_open_to_others, directories):
        _log.warning(
            "other users of this host can read %s: run `chmod 700 %s` to prevent that", directory, directory
        )


def tls_of(config: BrokerConfig) -> dict[str, ServerTls]:
    """Return the TLS of each listener that has it, by the listener's name. Raises ConfigErrors."""
    faults, found = Faults(), {}
    hosts = {listener.name: listener.advertised_host for listener in config.listeners}
    for name, security in config.security.items():
        if security.ssl is not None:
            own = ListenerProperties(config.properties, name)
            try:
                found[name] = ServerTls(security.ssl, name, host=hosts.get(name))
            except ConfigError as error:
                faults.add(own.faults_as_given(error.faults))
    faults.check()
    return found


def _connector(config: BrokerConfig) -> InterBrokerConnector:
    """Return the connector to other brokers. Raises ConfigErrors."""
    try:
        return InterBrokerConnector(
            config.inter_broker,
            connect_timeout_ms=min(_CONNECT_MS, config.replication.socket_timeout_ms),
            request_timeout_ms=config.replication.socket_timeout_ms,
        )
    except ConfigError as error:
        own = ListenerProperties(config.properties, config.inter_broker.listener)
        raise ConfigErrors(own.faults_as_given(error.faults)) from None


def _renew(listeners: Iterable[ServerTls]) -> None:
    for tls in listeners:
        tls.reload()
        tls.warn_of_expiry()


def _spawn(connection: InterBrokerConnection, name: str) -> None:
    threading.Thread(target=connection.run, name=name, daemon=True).start()


def _resolved(limits: ConnectionLimits) -> ConnectionLimits:
    """Return ``limits`` with the addresses of hosts instead of their names."""
    overrides: dict[str, int] = {}
    for host, count in limits.per_ip_overrides.items():
        addresses = addresses_of(host)
        if not addresses:
            raise ConfigError("max.connections.per.ip.overrides", host, "cannot resolve this host")
        overrides |= dict.fromkeys(addresses, count)
    return replace(limits, per_ip_overrides=overrides)


def _in_parallel(jobs: Jobs, threads: int) -> None:
    with ThreadPoolExecutor(threads, thread_name_prefix="opening") as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


def _raise_file_limit() -> None:
    """Raise the soft limit of open files: two for each segment and one for each connection exceed 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS reports a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
