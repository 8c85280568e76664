"""A suite: what it wants of its brokers, and the outcome of each of its tests."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

PASSED, FAILED, NOT_RUN = RESULTS = ("passed", "failed", "not run")

APACHE_KAFKA = "Apache Kafka 3.9.1"
MINIKAFKA = "minikafka"
BROKERS = (APACHE_KAFKA, MINIKAFKA)
"""The kinds of brokers that each suite is run against."""

VERSION = "3.9.1"
"""The release whose APIs both serve, for suites that want to be told."""

NOT_SERVED = {
    "848|KIP-848": "the groups of Kafka 4 are not served",
    "[Ss]hare": "share groups are not served",
}
"""Patterns of the names of tests that cannot pass on either -> the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test on one kind of brokers; ``why`` says more of a test that did not pass."""

    test: str
    result: str
    why: str = ""

    def explained(self, reason: str | None) -> Outcome:
        """Return it with a known reason, if there is one and the test did not pass."""
        return replace(self, why=reason) if reason and self.result != PASSED else self


@dataclass(frozen=True, slots=True)
class Address:
    """Running brokers. ``scripts`` is a folder whose ``bin`` has shell scripts of Kafka 3.9.1's tools."""

    kind: str
    """One of ``BROKERS``."""
    bootstrap: str
    zookeeper: str
    scripts: str

    def reason_to_leave_out(self, test: str) -> str | None:
        """Return the reason if a test of that name cannot pass."""
        return next((reason for part, reason in NOT_SERVED.items() if re.search(part, test)), None)


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one project.

    ``missing``: the reason why it cannot be run on this machine, if there is one. ``settings``: properties of
    the brokers; ``brokers``: their number. ``listeners``: those of each broker, by its id, for tests that
    know the addresses of their brokers: they are run in a network namespace of their own. ``users``: the
    passwords of users for SCRAM-SHA-256 and SCRAM-SHA-512.
    """

    name: str
    missing: Callable[[], str | None]
    run: Callable[[Address], Iterator[Outcome]]
    settings: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 1
    listeners: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    users: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the brokers."""
        return tuple(self.listeners) or tuple(range(self.brokers))


def missing(variable: str, path: str, what: str) -> str | None:
    """The reason if ``variable`` does not name ``what``: a folder that has ``path``."""
    folder = os.environ.get(variable)
    return None if folder and (Path(folder) / path).exists() else f"{variable} does not name {what}"


def plain_login(listener: str, **users: str) -> dict[str, str]:
    """Return the properties of a broker that has these users and their passwords for SASL."""
    module = "org.apache.kafka.common.security"
    own, password = next(iter(users.items()))
    words = [f'username="{own}" password="{password}"', *(f'user_{name}="{users[name]}"' for name in users)]
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {' '.join(words)};",
        **{
            f"{prefix}.{mechanism}.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;"
            for mechanism in ("scram-sha-256", "scram-sha-512")
        },
    }
