"""Brokers that were started by hand in a data directory, and so do not end with its cluster.

When a broker of a cluster dies, ``up`` names the command that starts it again from another terminal. That
broker is no child of ``up``: it goes on when ``up`` ends, also when that was killed, although its ZooKeeper
ends then. It is known by the lock on its logs, which names its process and where it serves.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.errors import DirectoryLocked, MinikafkaError
from minikafka.embedded import lock, members
from minikafka.embedded.owners import is_alive, is_below, owner_of
from minikafka.embedded.process import wait_until

STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class StrayBroker:
    """A broker that runs on its logs in a data directory, and is no child of who runs the cluster there."""

    data_dir: str
    number: int
    pid: int
    address: str
    """HOST:PORT; "" while it does not serve."""

    def __str__(self) -> str:
        at = f" at {self.address}" if self.address else ""
        return f"broker {self.number} of {self.data_dir} (process {self.pid}{at})"

    @property
    def command_to_stop(self) -> str:
        """A command line that stops it."""
        return shlex.join(["minikafka", "stop", self.data_dir])

    def stop(self) -> None:
        """Stop it cleanly. Raises MinikafkaError when that cannot be."""
        owner = owner_of(self.pid)
        if owner is None:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        except PermissionError:
            raise MinikafkaError(f"{self} is another user's: that user can stop it") from None
        if not wait_until(lambda: not is_alive(owner), STOP_TIMEOUT_S):
            raise MinikafkaError(f"{self} does not stop; its log is in the terminal where it was started")


def stray_brokers(data_dir: str | Path) -> list[StrayBroker]:
    """The brokers in ``data_dir`` that were started by hand; nothing is changed."""
    place, found = Path(data_dir), []
    cluster = lock.holder(str(place / ".lock"))
    for number in members.started_in(place):
        holders = (lock.holder(str(path)) for path in members.locks_of(place, number))
        broker = next(filter(None, holders), None)
        if broker is None or broker.pid is None:
            continue
        if cluster is None or cluster.pid is None or not is_below(broker.pid, cluster.pid):
            found.append(StrayBroker(str(data_dir), number, broker.pid, broker.address))
    return found


def check_none(data_dir: str | Path) -> None:
    """Raise DirectoryLocked when a broker that was started by hand still runs in ``data_dir``."""
    found = stray_brokers(data_dir)
    if found:
        run, them = ("runs", "it") if len(found) == 1 else ("run", "them")
        raise DirectoryLocked(
            f"{' and '.join(map(str, found))}, started by hand, still {run}: "
            f"`{found[0].command_to_stop}` stops {them}; then start the cluster"
        )
