"""The address of a ZooKeeper, ``zookeeper.connect``: its servers, and the chroot of a cluster."""

from __future__ import annotations

import re

from kazoo.hosts import collect_hosts

from minikafka.base.config.types import checked
from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.registry.store import check_path


def _check_connect(text: str) -> None:
    if not text:
        raise ValueError
    parse_connect(text)


ZOOKEEPER_CONNECT = checked("HOST:PORT, or HOST:PORT/CHROOT", _check_connect)
"""The type of ``zookeeper.connect``."""


def parse_connect(connect: str) -> tuple[str, str]:
    """Split ``HOST:PORT[,HOST:PORT…][/CHROOT]`` into hosts and chroot (``""`` when there is none).

    Raises ConfigError for ``zookeeper.connect``.
    """
    hosts, _, below = connect.strip().partition("/")
    chroot = "/" + below.strip("/") if below.strip("/") else ""
    try:
        if "@" in hosts:
            raise ValueError("credentials are given by zookeeper.digest.credentials")
        servers, _ = collect_hosts(hosts)
        # kazoo treats port 0 as no port, and would use 2181.
        if any(port > 0xFFFF for _, port in servers) or re.search(r":0+(,|$)", hosts):
            raise ValueError("a port must be 1 to 65535")
        if chroot:
            check_path(chroot)
    except (ValueError, CoordinationError) as error:
        allowed = f"HOST:PORT[,HOST:PORT...][/CHROOT] ({error})"
        raise ConfigError("zookeeper.connect", connect, allowed) from None
    return hosts, chroot


def servers_of(connect: str) -> list[tuple[str, int]]:
    """Return host and port of each server in ``connect``. Raises ConfigError as ``parse_connect``."""
    servers, _ = collect_hosts(parse_connect(connect)[0])
    return [(host, port) for host, port in servers]
