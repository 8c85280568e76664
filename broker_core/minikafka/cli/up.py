"""``minikafka up``: a cluster in the foreground."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import ConfigError, DirectoryLocked
from minikafka.base.ids import host_port
from minikafka.base.printable import printable
from minikafka.base.secrets import redact
from minikafka.cli.options import Settings, check_data_dir, key_values, make_data_dir, parse_data_dir
from minikafka.cli.output import note, say
from minikafka.cli.progress import spinner

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster
    from minikafka.embedded.live_brokers import Addresses, LiveBrokers

DEFAULT_DATA_DIR = Path("minikafka-data")
LOCALHOST = "127.0.0.1"
DEFAULT_PORT = 9092
ENDING_TIMEOUT_S = 10.0
"""How long a cluster may take to end that a command with ``--data-dir`` had started for itself."""
POLL_S = 1.0
"""How often a look is taken at whether ZooKeeper still runs, and at who is registered there."""
ZOOKEEPER_TIMEOUT_S = 15.0
"""How long ZooKeeper may take to tell who is registered, when none of our own brokers is left."""


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", parser=parse_data_dir, metavar="D", help="Where everything is kept.")
    ] = DEFAULT_DATA_DIR,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Where the brokers listen.")] = LOCALHOST,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="P", min=0, max=65535, help="Of the first broker, others follow; 0: free ones."
        ),
    ] = DEFAULT_PORT,
    zookeeper: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--zookeeper", metavar="HOST:PORT/CHROOT", help="One that runs already.", show_default=False
        ),
    ] = None,
    brokers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            help="How many brokers, each a process of its own. Without it: as many as D has, one in a new D.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
) -> int:
    """Start ZooKeeper and brokers; print one `ready` line; stop cleanly on Ctrl-C or SIGTERM."""
    config = key_values("--set", settings)
    check_data_dir(data_dir)
    count, ports = prepare(data_dir, host, port, brokers, config)

    from minikafka.cli.signals import stop_on_signal
    from minikafka.embedded import local
    from minikafka.embedded.cluster import Cluster
    from minikafka.embedded.live_brokers import LiveBrokers

    ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
    cluster = Cluster(
        count,
        data_dir,
        config,
        zookeeper,
        host=host,
        port=port,
        on_exit=lambda number, exit_code: ended.put((number, exit_code)),
    )
    ready = False
    watching: ClusterWatcher | None = None
    with stop_on_signal() as stop, contextlib.closing(cluster):
        with spinner(f"starting in {cluster.data_dir}"):
            cluster.start(on_progress=lambda state: note(f"minikafka: {state}"))
        with local.announce(
            str(cluster.data_dir), cluster.bootstrap_servers, cluster.zookeeper_connect, cluster.cluster_id
        ):
            ready = True  # before anybody can read that it is
            say(cluster.ready_line, flush=True)
            for complaint in advertised_address_warnings(host, ports, config):
                note(f"minikafka: {complaint}")
            with contextlib.closing(cluster.registered_brokers()) as registered:
                again = restart_command(data_dir, host, port, zookeeper, brokers, config, cluster)
                watching = ClusterWatcher(cluster, LiveBrokers(range(cluster.count), registered.read), again)
                watching.run(ended)
    if watching is not None:
        watching.note_remaining()
    if stop.number is not None:
        return 0 if ready else 128 + stop.number
    return 1


def restart_command(
    data_dir: Path,
    host: str,
    port: int,
    zookeeper: str | None,
    brokers: int | None,
    config: Mapping[str, str],
    cluster: Cluster,
) -> str:
    """The command line that serves the same again, on the same port where there is only one.

    Without secrets: whoever pastes it fills them in.
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
    data_dir: Path, host: str, port: int, brokers: int | None, config: Mapping[str, str]
) -> tuple[int, Sequence[int]]:
    """How many brokers to start, and on which ports; all that can be known before is said, or refused."""
    from minikafka.embedded import data_directory, local, lock, strays
    from minikafka.server.config.properties import BrokerConfig

    local.wait_for_end(
        str(data_dir),
        ENDING_TIMEOUT_S,
        lambda: note(f"minikafka: waiting for the cluster of {data_dir} to end, which nobody uses any more"),
    )
    served = local.running(str(data_dir))
    if served is not None:
        raise DirectoryLocked(
            f"{served.data_dir} is served already, at {served.bootstrap_servers} by process {served.pid}: "
            f"use that one, or end it with `minikafka stop {data_dir}`"
        )
    count = data_directory.broker_count(data_dir.absolute(), brokers, "--brokers")
    data_directory.check_shared_config(config, count, "--set")
    ports = data_directory.broker_ports(port, count, "--port")

    # The broker finds the same, but says it in its log only.
    unused = BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", **config}).unused()
    if unused:
        note(f"minikafka: {unused}")
    lock.wait_until_free(str(data_dir / ".lock"))  # one that was killed may still be ending, on these ports
    strays.check_no_strays(data_dir)
    if "listeners" not in config:  # they take the place of --host and --port
        check_ports_free(host, ports)
    for directory in readable_by_others(data_dir, count):
        command = f"`chmod 700 {directory}` keeps them out"
        note(f"minikafka: other users of this host can read {directory}; {command}")
    for told in broker_count_notes(data_dir, brokers, count):
        note(f"minikafka: {told}")
    make_data_dir(data_dir)
    return count, ports


def readable_by_others(data_dir: Path, count: int) -> list[Path]:
    """What lies open to other users of this host: the data directory itself, or some of those in it.

    Those that are made are private. One that is there has the rights that somebody gave it.
    """
    from minikafka.base.cache_dirs import is_open_to_others
    from minikafka.embedded import data_directory

    brokers = [data_directory.broker_directory(data_dir, number) for number in range(count)]
    found = [one for one in (*brokers, data_dir / "zookeeper", data_dir / "logs") if is_open_to_others(one)]
    return [data_dir] if len(found) > 1 else found


def broker_count_notes(data_dir: Path, brokers: int | None, count: int) -> Iterator[str]:
    """What is not as it was said, or was: how many brokers a directory has had, and has now."""
    from minikafka.embedded import data_directory

    found = data_directory.existing_brokers(data_dir)
    if brokers is None and count > 1:
        yield f"{data_dir} has {data_directory.broker_names(found)}: all of them are started"
    new = [number for number in range(count) if number not in found]
    if found and new:
        names, verb = data_directory.broker_names(new), "is" if len(new) == 1 else "are"
        gets = "gets" if len(new) == 1 else "get"
        yield (
            f"{names} of {data_dir} {verb} new and {gets} only partitions of new topics; "
            "`minikafka reassign` moves other partitions there"
        )


def check_ports_free(host: str, ports: Sequence[int]) -> None:
    """Raise ConfigError when nobody can listen there, or somebody does.

    Before ZooKeeper is started and files are made. A race is left to the broker, which says what it could
    not do.
    """
    from minikafka.net.ports import addresses_of, can_bind, can_connect

    given, host = host, host.strip("[]")
    if host and not any(can_bind(address, 0) for address in addresses_of(host)):
        raise ConfigError("--host", given, "is no address of this machine: name one, or 0.0.0.0 for all")
    for port in ports:
        if port and not can_bind(host, port) and can_connect(host, port):
            address = host_port(host, port)
            needed = f" (the brokers need {ports[0]} to {ports[-1]})" if len(ports) > 1 else ""
            raise ConfigError(
                "--port",
                str(ports[0]),
                f"{port_holder(address)} listens on {address}{needed}; name another, or --port 0 for "
                f"{'a free one' if len(ports) == 1 else 'free ones'}",
            )


def port_holder(address: str) -> str:
    """Name the cluster or broker of this user that listens at an address; else ``another process``."""
    from minikafka.embedded import local

    for cluster in local.list_running():
        if address in cluster.bootstrap_servers.split(","):
            return f"the cluster of {cluster.data_dir} (process {cluster.pid})"
    return next((str(one) for one in local.list_strays() if one.address == address), "another process")


def advertised_address_warnings(host: str, ports: Sequence[int], config: Mapping[str, str]) -> Iterator[str]:
    """What the broker says of its advertised addresses in its log, for who looks at the terminal only.

    Of those with a port: one that was free is known to the log alone.
    """
    from minikafka.net.ports import addresses_of, can_connect
    from minikafka.server.config.listeners import unreachable
    from minikafka.server.config.properties import BrokerConfig

    own = {
        "zookeeper.connect": "localhost:2181",
        "listeners": f"PLAINTEXT://{host_port(host.strip('[]'), ports[0])}",
    }
    for listener in BrokerConfig.from_properties({**own, **config}).listeners:
        if told := listener.advertised_port:
            complaint = unreachable(listener, told, addresses_of, can_connect)
            if complaint is not None:
                yield complaint


class ClusterWatcher:
    """Watches the brokers of a cluster, and its ZooKeeper, which is started again when it ends.

    again: the command line that starts the whole cluster again.
    """

    def __init__(self, cluster: Cluster, brokers: LiveBrokers, again: str) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._again = again
        self._warned: dict[int, str] = {}

    def run(self, ended: SimpleQueue[tuple[int, int]]) -> None:
        """Say which broker ends, and which one is started elsewhere; return when the last one has ended."""
        deadline_s: float | None = None
        while True:
            try:
                self._note_end(*ended.get(timeout=POLL_S))
            except Empty:
                if not self._cluster.data_dir.is_dir():
                    gone = f"{self._cluster.data_dir} was removed"
                    note(f"minikafka: {gone}: nothing of it can be served any more")
                    return
                self._cluster.restart_zookeeper(lambda text: note(f"minikafka: {text}"))
                self._note_warnings()
                if len(self._brokers.own) < self._cluster.count:
                    self._look()
            if self._brokers.count:
                deadline_s = None
            elif self._brokers.known:
                return
            elif deadline_s is None:
                deadline_s = time.monotonic() + ZOOKEEPER_TIMEOUT_S
            elif time.monotonic() > deadline_s:
                note("minikafka: ZooKeeper does not tell whether a broker was started elsewhere")
                return

    def note_remaining(self) -> None:
        """Name the brokers that go on when the cluster is stopped."""
        for number, addresses in self._brokers.elsewhere.items():
            note(
                f"minikafka: broker {number} at {_at(addresses)}, which was started elsewhere, still runs"
                f"{', and its ZooKeeper is gone' if self._cluster.has_embedded_zookeeper else ''}: "
                f"stop it too, with `{shlex.join(['minikafka', 'stop', str(self._cluster.data_dir)])}`"
            )

    def _note_warnings(self) -> None:
        """What brokers say of records that may be lost, once."""
        for number in sorted(self._brokers.own):
            text = self._cluster.broker(number).warning()
            if text is not None and text != self._warned.get(number):
                self._warned[number] = text
                note(f"minikafka: broker {number}: {printable(text)}")

    def _note_end(self, number: int, exit_code: int) -> None:
        self._brokers.own.discard(number)
        if not self._brokers.own:
            self._look()
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with status {exit_code}"
        if (reason := self._cluster.broker(number).reason()) is not None:
            how += f" ({printable(reason)})"
        # Whether it dies again is for somebody to judge who has seen why, so it is not started again here.
        self._say(number, how, f"; its log is in {self._cluster.data_dir / 'logs'}")

    def _look(self) -> None:
        changes = self._brokers.refresh()
        for number in changes.started:
            at = _at(self._brokers.elsewhere[number])
            note(f"minikafka: broker {number} at {at} was started elsewhere, and is followed")
        for number in changes.ended:
            self._say(number, "ended, which was started elsewhere")

    def _say(self, number: int, how: str, where: str = "") -> None:
        left = self._brokers.count
        rest = (
            f"{left} left" if left else "it was the last one" if self._brokers.known else "none is left here"
        )
        again = ""
        if left and number < self._cluster.count:
            again = f"; start it again with `{self._cluster.command_to_start(number)}`"
        elif not left and self._brokers.known:
            again = f"; start the cluster again with `{self._again}`"
        note(f"minikafka: broker {number} {how}, {rest}{where}{again}")


def _at(addresses: Addresses) -> str:
    return ",".join(host_port(*address) for address in addresses)
