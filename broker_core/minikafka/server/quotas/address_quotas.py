"""Quotas of addresses: their new connections in a second (KIP-612). Pure except for a mutex.

    /config/ips/ADDRESS     connection_creation_rate of an address
    /config/ips/<default>   that of each address without its own

They hold on all listeners, beside ``max.connection.creation.rate``. A connection above the rate of its
address is kept unread for as long as its client should wait, then closed.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Callable, Mapping

from minikafka.base.errors import ConfigError
from minikafka.net.connection_quotas import DEFAULT_IP
from minikafka.registry.entity_configs import CONNECTION_RATE, CONNECTION_RATE_TYPE
from minikafka.registry.users import DEFAULT_ENTITY

_log = logging.getLogger(__name__)


def normal_address(name: str) -> str:
    """Return an address as the network writes it; DEFAULT_IP for ``<default>``. Raises ValueError."""
    if name == DEFAULT_ENTITY:
        return DEFAULT_IP
    address = ipaddress.ip_address(name)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class AddressQuotas:
    """The quotas of addresses, as configured in ZooKeeper. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apply: Callable[[Mapping[str, int]], None] = lambda limits: None
        self.limits: Mapping[str, int] = {}
        """Address -> its limit; DEFAULT_IP: that of each other one."""

    def attach(self, apply: Callable[[Mapping[str, int]], None]) -> None:
        """Call ``apply`` with the limits, now and after each change."""
        with self._lock:
            self._apply = apply
            apply(self.limits)

    def replace(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the configs of all addresses."""
        limits: dict[str, int] = {}
        for name, configs in settings.items():
            try:
                address = normal_address(name)
                if CONNECTION_RATE in configs:
                    limits[address] = CONNECTION_RATE_TYPE.parse(CONNECTION_RATE, configs[CONNECTION_RATE])
            except ConfigError as error:
                _log.warning("quota of ips/%s: ignored %s", name, error)
            except ValueError:
                _log.warning("quota of ips/%s: ignored, as that is not an address", name)
        with self._lock:
            if limits != self.limits:
                _log.info("connections in a second of addresses: %s", limits or "no limits")
                self.limits = limits
                self._apply(limits)
