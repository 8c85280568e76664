"""Brokers without a running cluster: started by hand, or left by a cluster that was killed.

When a broker of a cluster dies, ``up`` prints the command that restarts it from another terminal. That broker
is not a child of ``up``: it still runs when ``up`` has ended or was killed, although its ZooKeeper has ended.
It is found by the lock on its logs, which contains its process id and address. A broker of an ``up`` that was
killed still has the lock of that cluster open, and ends by itself within seconds.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.errors import DirectoryLocked, MinikafkaError
from minikafka.embedded import data_directory, lock
from minikafka.embedded.owners import is_below, owner_of
from minikafka.embedded.process import terminate


@dataclass(frozen=True, slots=True)
class StrayBroker:
    """A broker that runs on logs of a data directory, and is not a child of a cluster that runs there."""

    data_dir: str
    number: int
    pid: int
    address: str
    """HOST:PORT; "" while it is not ready."""
    ending: bool = False
    """True if its cluster was killed, so that it ends by itself within seconds."""

    def __str__(self) -> str:
        at = f" at {self.address}" if self.address else ""
        return f"broker {self.number} of {self.data_dir} (process {self.pid}{at})"

    @property
    def status(self) -> str:
        """A description of its state, as the end of a sentence about it."""
        if self.ending:
            return "is about to end by itself: its cluster was killed"
        return f"was started by hand and outlives its cluster; `{self.command_to_stop}` stops it"

    @property
    def command_to_stop(self) -> str:
        """The command line that stops it."""
        return shlex.join(["minikafka", "stop", self.data_dir])

    def stop(self) -> None:
        """Stop it cleanly. Raises MinikafkaError if it belongs to another user or does not end in time."""
        owner = owner_of(self.pid)
        if owner is None:
            return
        try:
            stopped = terminate(owner)
        except PermissionError:
            raise MinikafkaError(f"cannot stop {self}: it belongs to another user") from None
        if not stopped:
            raise MinikafkaError(
                f"timed out stopping {self}; its log is in the terminal where it was started"
            )


def stray_brokers(data_dir: str | Path) -> list[StrayBroker]:
    """Return the brokers in ``data_dir`` that belong to no running cluster. Nothing is changed."""
    place, found = Path(data_dir), []
    cluster = lock.holder(str(place / ".lock"))
    for number in data_directory.configured_brokers(place):
        holders = (lock.holder(str(path)) for path in data_directory.broker_lock_paths(place, number))
        broker = next(filter(None, holders), None)
        if broker is None or broker.pid is None:
            continue
        if cluster is None or cluster.pid is None or not is_below(broker.pid, cluster.pid):
            ending = lock.is_kept_open(str(place / ".lock"), broker.pid)
            found.append(StrayBroker(str(data_dir), number, broker.pid, broker.address, ending))
    return found


def check_no_strays(data_dir: str | Path) -> None:
    """Raise DirectoryLocked if a broker that belongs to no running cluster runs in ``data_dir``."""
    strays = stray_brokers(data_dir)
    found = [stray for stray in strays if not stray.ending]
    for stray in () if found else strays:
        raise DirectoryLocked(f"{stray} {stray.status}; try again in a moment")
    if found:
        run, them = ("runs", "it") if len(found) == 1 else ("run", "them")
        raise DirectoryLocked(
            f"{' and '.join(map(str, found))}, started by hand, still {run}: "
            f"`{found[0].command_to_stop}` stops {them}; then start the cluster"
        )
