"""The settings of a console, and the limits that keep its memory and its pages small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.console.schemas import Schemas
    from minikafka.registry.store import Store

PAGE_TIMEOUT_MS = 4_000
"""The time in which a page has its data, or is shown without the part that is missing."""
CHANGE_TIMEOUT_MS = 20_000
"""The time for a change, such as an election."""
ROWS_A_PAGE = 100
"""Rows of a long table on one page."""
FORM_BYTES_MAX = 2 << 20
"""The largest form: a message of 1 MiB with its key, percent-encoded in part."""
STREAMS_MAX = 8
"""Searches, exports and live tails at the same time."""
STREAMS_OF_A_SESSION_MAX = 4
"""Those of one browser: open tabs must not keep others out."""


class Login(str, Enum):
    """The way in which people log in."""

    NONE = "none"
    TOKEN = "token"
    SASL = "sasl"

    def __str__(self) -> str:
        return self.value


Connect = Callable[[str | None, str | None], "ClusterClient"]
"""Makes a client of the cluster: (None, None) as the command line says, or (user, password) of its SASL."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of one console."""

    connect: Connect = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    login: Login = Login.NONE
    token: str = field(default="", repr=False)
    allow_changes: bool = False
    allowed_hosts: tuple[str, ...] = ()
    store: Store | None = None
    """The cluster's ZooKeeper, for groups that are kept there; None without one."""
    schemas: Schemas | None = None
    """The schema registry of keys and values; None without one."""
    option: str = ""
    """The option of commands that names this cluster, after a blank, for the commands that pages show."""

    def check(self) -> None:
        """Raise ConfigError for a console that anybody on the network could use."""
        if self.login is Login.NONE and not is_loopback(self.host):
            raise ConfigError(
                "--host",
                self.host,
                "is not loopback, so a login is needed: add --login token or --login sasl",
            )


def is_loopback(host: str) -> bool:
    """Return True if only programs on this host reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
