"""``minikafka up``: runs a cluster in the foreground."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base import cache_dirs
from minikafka.base.config.property_files import key_values
from minikafka.base.errors import ConfigError, DirectoryLocked
from minikafka.base.ids import host_port
from minikafka.base.printable import printable
from minikafka.base.secrets import redact
from minikafka.cli.options import (
    DEFAULT_DATA_DIR,
    Settings,
    check_data_dir,
    make_data_dir,
    number_option,
    parse_data_dir,
    zookeeper_option,
)
from minikafka.cli.terminal.output import note, say
from minikafka.cli.terminal.progress import spinner
from minikafka.cli.terminal.signals import stop_on_signal

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster
    from minikafka.embedded.live_brokers import Addresses, LiveBrokers

LOCALHOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_METRICS_PORT = 9308
"""The port of kafka_exporter."""
ENDING_TIMEOUT_S = 10.0
"""The time limit for the end of a cluster that a command with ``--data-dir`` had started for itself."""
POLL_S = 1.0
"""The interval of checks of ZooKeeper and of the brokers that are registered there."""
ZOOKEEPER_TIMEOUT_S = 15.0
"""The time limit for ZooKeeper to return the registered brokers when none of this cluster's is left."""

Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Serve only clients that log in, with TLS: makes certificates and a first user in "
        "D/security. A secured D stays so.",
    ),
]


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", parser=parse_data_dir, metavar="D", help="The data directory.")
    ] = DEFAULT_DATA_DIR,
    host: Annotated[str, typer.Option("--host", metavar="H", help="The bind address.")] = LOCALHOST,
    port: Annotated[
        int, number_option("--port", "P", "Port of the first broker; others follow. 0: free.", 0, 65535)
    ] = DEFAULT_PORT,
    zookeeper: Annotated[str | None, zookeeper_option("A running ZooKeeper.")] = None,
    brokers: Annotated[
        int | None,
        number_option(
            "--brokers",
            "N",
            "Number of brokers, each in its own process. [as many as D has, 1 in a new D]",
            1,
            show_default=False,
        ),
    ] = None,
    secure: Secure = False,
    settings: Settings = None,
) -> int:
    """Start ZooKeeper and brokers; print one `ready` line; stop cleanly on Ctrl-C or SIGTERM."""
    config = key_values("--set", settings)
    check_data_dir(data_dir)

    from minikafka.embedded import local, secured_directory

    secure = secure or secured_directory.is_secured(data_dir)
    count, ports = prepare(data_dir, host, port, brokers, config, secure=secure)

    from minikafka.embedded.cluster import Cluster
    from minikafka.embedded.live_brokers import LiveBrokers
    from minikafka.net import service_manager
    from minikafka.server.config.metrics import METRICS_LISTENERS

    ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
    cluster = Cluster(
        count,
        data_dir,
        {METRICS_LISTENERS: metrics_listeners(port, count), **config},
        zookeeper,
        host=host,
        port=port,
        secure=secure,
        on_exit=lambda number, exit_code: ended.put((number, exit_code)),
    )
    ready = False
    watcher: ClusterWatcher | None = None
    with stop_on_signal() as stop, contextlib.closing(cluster):
        with spinner(f"starting in {cluster.data_dir}"):
            cluster.start(on_progress=lambda state: note(f"minikafka: {state}"))
        served = (cluster.bootstrap_servers, cluster.zookeeper_connect, cluster.cluster_id)
        with (
            local.announce(str(cluster.data_dir), *served),
            service_manager.serving(cluster.bootstrap_servers),
        ):
            ready = True  # before the ready line can be read
            say(cluster.ready_line, flush=True)
            note_addresses(cluster, host, ports, config)
            with contextlib.closing(cluster.registered_brokers()) as registered:
                command = restart_command(data_dir, host, port, zookeeper, brokers, config, cluster)
                watcher = ClusterWatcher(cluster, LiveBrokers(range(cluster.count), registered.read), command)
                watcher.run(ended)
    if watcher is not None:
        watcher.note_remaining()
    if stop.number is not None:
        return 0 if ready else 128 + stop.number
    return 1


def note_addresses(cluster: Cluster, host: str, ports: Sequence[int], config: Mapping[str, str]) -> None:
    """Print what is to be said of the addresses of a cluster that is ready."""
    if sys.stderr.isatty():  # programs that start a cluster expect only what needs attention
        for url in cluster.metrics_urls:
            note(f"minikafka: metrics at {url}")
    secured = bool(cluster.client_properties)
    for warning in advertised_address_warnings(cluster.data_dir, host, ports, config, secured=secured):
        note(f"minikafka: {warning}")
    if secured:
        for line in how_to_connect(cluster.data_dir, cluster.bootstrap_servers):
            note(line)


def metrics_listeners(port: int, count: int) -> str:
    """Return where the first broker serves metrics unless ``--set`` says it; the others have the next ports.

    Free ports if those of the brokers are to be free, or if one of these ports is in use: nothing but a
    scraper depends on them, and several clusters may run on this host.
    """
    from minikafka.net.ports import can_bind

    wanted = range(DEFAULT_METRICS_PORT, DEFAULT_METRICS_PORT + count)
    is_free = port != 0 and all(can_bind(LOCALHOST, number) for number in wanted)
    return f"http://{LOCALHOST}:{DEFAULT_METRICS_PORT if is_free else 0}"


def how_to_connect(data_dir: Path, bootstrap_servers: str) -> Iterator[str]:
    """Yield the lines that say how each kind of client connects to a secured cluster.

    They name the files with the password, and never the password itself: output ends up in logs. They can be
    pasted, into a shell or into Python.
    """
    from minikafka.embedded import secured_directory
    from minikafka.embedded.cluster_security import CLIENT, FIRST_USER, KAFKA_PYTHON, LIBRDKAFKA, MECHANISM
    from minikafka.embedded.cluster_security import SPARK as SPARK_OPTIONS

    folder = secured_directory.folder_of(data_dir)
    yield (
        f"minikafka: {data_dir} is secured: clients need TLS and a login (SASL_SSL, {MECHANISM}); the first "
        f"user is {FIRST_USER}; certificates and passwords are in {folder}, for you alone. To connect:"
    )
    client, librdkafka = (_quoted(folder / name) for name in (CLIENT, LIBRDKAFKA))
    spark, kafka_python = (_loaded(folder / name) for name in (SPARK_OPTIONS, KAFKA_PYTHON))
    servers = json.dumps(bootstrap_servers)
    yield f"  minikafka:    minikafka topic list --data-dir {_quoted(data_dir)}"
    yield f"                minikafka topic list --bootstrap {bootstrap_servers} --command-config {client}"
    yield (
        f'  Spark:        spark.read.format("minikafka").options(**{spark})'
        f'.option("kafka.bootstrap.servers", {servers}).option("subscribe", "TOPIC").load()'
    )
    yield (
        f"  Java:         kafka-console-consumer.sh --bootstrap-server {bootstrap_servers} "
        f"--consumer.config {client} --topic TOPIC --from-beginning"
    )
    yield f"  librdkafka:   kcat -F {librdkafka} -b {bootstrap_servers} -C -t TOPIC"
    yield f'  kafka-python: KafkaConsumer("TOPIC", bootstrap_servers={servers}, **{kafka_python})'


def _quoted(path: Path) -> str:
    """Return a path as a word of a shell."""
    return shlex.quote(str(path))


def _loaded(path: Path) -> str:
    """Return a Python expression for what is in a file of JSON."""
    return f"json.loads(Path({json.dumps(str(path), ensure_ascii=False)}).read_text())"


def restart_command(
    data_dir: Path,
    host: str,
    port: int,
    zookeeper: str | None,
    brokers: int | None,
    config: Mapping[str, str],
    cluster: Cluster,
) -> str:
    """Return the command line that starts the same cluster again, on the same port if it has one broker.

    Secrets are redacted; the user must fill them in.
    """
    first = cluster.bootstrap_servers.rpartition(":")[2] if cluster.count == 1 else str(port)
    given: dict[str, object] = {
        "--data-dir": None if data_dir == DEFAULT_DATA_DIR else data_dir,
        "--host": None if host == LOCALHOST else host,
        "--port": None if first == str(DEFAULT_PORT) or "listeners" in config else first,
        "--zookeeper": zookeeper,
        "--brokers": brokers,
    }
    words = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    for name, value in config.items():
        words += ["--set", f"{name}={redact(name, value)}"]
    return shlex.join(["minikafka", "up", *words])


def prepare(
    data_dir: Path, host: str, port: int, brokers: int | None, config: Mapping[str, str], *, secure: bool
) -> tuple[int, Sequence[int]]:
    """Return the number of brokers to start and their ports, after all checks and notes that are possible
    before the start. Raise ConfigError or DirectoryLocked.
    """
    from minikafka.embedded import data_directory, local, lock, secured_directory, strays

    local.wait_for_end(
        str(data_dir),
        ENDING_TIMEOUT_S,
        lambda: note(f"minikafka: waiting for the unused cluster of {data_dir} to stop"),
    )
    served = local.running(str(data_dir))
    if served is not None:
        raise DirectoryLocked(
            f"{served.data_dir} is already served at {served.bootstrap_servers} by process {served.pid}; "
            f"use that cluster, or stop it with `minikafka stop {data_dir}`"
        )
    count = data_directory.broker_count(data_dir.absolute(), brokers, "--brokers")
    data_directory.check_shared_config(config, count, "--set")
    ports = data_directory.broker_ports(port, count, "--port")

    # The broker reports the same, but only in its log.
    unused = secured_directory.checked_config(data_dir, host, ports[0], config, secured=secure).unused()
    if unused:
        note(f"minikafka: {unused}")
    lock.wait_until_free(str(data_dir / ".lock"))  # a killed cluster may still be ending, on these ports
    strays.check_no_strays(data_dir)
    if "listeners" not in config:  # they take the place of --host and --port
        check_ports_free(host, ports)
    for directory in readable_by_others(data_dir, count):
        command = f"restrict it with `chmod 700 {directory}`"
        note(f"minikafka: other users of this host can read {directory}; {command}")
    for text in broker_count_notes(data_dir, brokers, count):
        note(f"minikafka: {text}")
    make_data_dir(data_dir)
    return count, ports


def readable_by_others(data_dir: Path, count: int) -> list[Path]:
    """Return the directories that other users of this host can read: the data directory itself, or one of
    those in it.

    Directories that this command creates are private. Existing ones keep their permissions.
    """
    from minikafka.embedded import data_directory

    brokers = [data_directory.broker_directory(data_dir, number) for number in range(count)]
    found = [
        directory
        for directory in (*brokers, data_dir / "zookeeper", data_dir / "logs")
        if cache_dirs.is_open_to_others(directory)
    ]
    return [data_dir] if len(found) > 1 else found


def broker_count_notes(data_dir: Path, brokers: int | None, count: int) -> Iterator[str]:
    """Yield notes about brokers of the directory that no option asks for, and about new ones."""
    from minikafka.embedded import data_directory

    found = data_directory.existing_brokers(data_dir)
    if brokers is None and count > 1:
        yield f"{data_dir} has {data_directory.broker_names(found)}; starting all of them"
    new = [number for number in range(count) if number not in found]
    if found and new:
        names, verb = data_directory.broker_names(new), "is" if len(new) == 1 else "are"
        gets = "gets" if len(new) == 1 else "get"
        yield (
            f"{names} of {data_dir} {verb} new and {gets} only partitions of new topics; "
            "`minikafka reassign` moves other partitions there"
        )


def check_ports_free(host: str, ports: Sequence[int]) -> None:
    """Raise ConfigError if the address is not of this host, or a port is in use.

    Called before ZooKeeper is started and files are created. If another process takes a port later, the
    broker reports it.
    """
    from minikafka.net.ports import addresses_of, can_bind, can_connect

    given, host = host, host.strip("[]")
    if host and not any(can_bind(address, 0) for address in addresses_of(host)):
        raise ConfigError("--host", given, "is not an address of this host; use one, or 0.0.0.0 for all")
    for port in ports:
        if port and not can_bind(host, port) and can_connect(host, port):
            address = host_port(host, port)
            needed = f" (the brokers need {ports[0]} to {ports[-1]})" if len(ports) > 1 else ""
            raise ConfigError(
                "--port",
                str(ports[0]),
                f"{port_holder(address)} listens on {address}{needed}; use another, or --port 0 for "
                f"{'a free one' if len(ports) == 1 else 'free ones'}",
            )


def port_holder(address: str) -> str:
    """Return the cluster or broker of this user that listens at an address, or ``another process``."""
    from minikafka.embedded import local

    for cluster in local.list_running():
        if address in cluster.bootstrap_servers.split(","):
            return f"the cluster of {cluster.data_dir} (process {cluster.pid})"
    return next((str(stray) for stray in local.list_strays() if stray.address == address), "another process")


def advertised_address_warnings(
    data_dir: Path, host: str, ports: Sequence[int], config: Mapping[str, str], *, secured: bool
) -> Iterator[str]:
    """Yield the warnings about advertised addresses that the broker writes only to its log.

    Addresses with port 0 are left out: only the broker knows the port.
    """
    from minikafka.embedded import secured_directory
    from minikafka.net.ports import addresses_of, can_connect
    from minikafka.server.config.listeners import unreachable

    checked = secured_directory.checked_config(data_dir, host, ports[0], config, secured=secured)
    for listener in checked.listeners:
        if port := listener.advertised_port:
            warning = unreachable(listener, port, addresses_of, can_connect)
            if warning is not None:
                yield warning


class ClusterWatcher:
    """Watches the brokers of a cluster, and restarts its ZooKeeper when that ends.

    command: the command line that starts the whole cluster again.
    """

    def __init__(self, cluster: Cluster, brokers: LiveBrokers, command: str) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._command = command
        self._warned: dict[int, str] = {}

    def run(self, ended: SimpleQueue[tuple[int, int]]) -> None:
        """Report brokers that end and brokers that are started elsewhere. Return after the last one's end."""
        deadline_s: float | None = None
        while True:
            try:
                self._note_end(*ended.get(timeout=POLL_S))
            except Empty:
                if not self._cluster.data_dir.is_dir():
                    note(f"minikafka: the data directory {self._cluster.data_dir} was removed; stopping")
                    return
                self._cluster.restart_zookeeper(lambda text: note(f"minikafka: {text}"))
                self._note_warnings()
                if len(self._brokers.own) < self._cluster.count:
                    self._check_registered()
            if self._brokers.count:
                deadline_s = None
            elif self._brokers.known:
                return
            elif deadline_s is None:
                deadline_s = time.monotonic() + ZOOKEEPER_TIMEOUT_S
            elif time.monotonic() > deadline_s:
                note("minikafka: cannot read from ZooKeeper whether other brokers are running; stopping")
                return

    def note_remaining(self) -> None:
        """Print a note about each broker that continues after the end of the cluster."""
        for number, addresses in self._brokers.elsewhere.items():
            note(
                f"minikafka: broker {number} at {_at(addresses)}, started elsewhere, is still running"
                f"{' without its ZooKeeper' if self._cluster.has_embedded_zookeeper else ''}; "
                f"stop it with `{shlex.join(['minikafka', 'stop', str(self._cluster.data_dir)])}`"
            )

    def _note_warnings(self) -> None:
        """Print each broker's warning about records that may be lost, once."""
        for number in sorted(self._brokers.own):
            text = self._cluster.broker(number).warning()
            if text is not None and text != self._warned.get(number):
                self._warned[number] = text
                note(f"minikafka: broker {number}: {printable(text)}")

    def _note_end(self, number: int, exit_code: int) -> None:
        self._brokers.own.discard(number)
        if not self._brokers.own:
            self._check_registered()
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with status {exit_code}"
        if (reason := self._cluster.broker(number).reason()) is not None:
            how += f" ({printable(reason)})"
        # Not restarted automatically: the user should first find the cause.
        self._note_end_of(number, how, f"; its log is in {self._cluster.data_dir / 'logs'}")

    def _check_registered(self) -> None:
        changes = self._brokers.refresh()
        for number in changes.started:
            at = _at(self._brokers.elsewhere[number])
            note(f"minikafka: broker {number} was started elsewhere, at {at}; now watching it")
        for number in changes.ended:
            self._note_end_of(number, "(started elsewhere) ended")

    def _note_end_of(self, number: int, how: str, where: str = "") -> None:
        left = self._brokers.count
        rest = (
            f"{left} left"
            if left
            else "it was the last one"
            if self._brokers.known
            else "none of this cluster is left"
        )
        advice = ""
        if left and number < self._cluster.count:
            advice = f"; start it again with `{self._cluster.command_to_start(number)}`"
        elif not left and self._brokers.known:
            advice = f"; start the cluster again with `{self._command}`"
        note(f"minikafka: broker {number} {how}, {rest}{where}{advice}")


def _at(addresses: Addresses) -> str:
    return ",".join(host_port(*address) for address in addresses)
