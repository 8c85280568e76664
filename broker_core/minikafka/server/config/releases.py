"""The releases of Kafka that ``inter.broker.protocol.version`` may name: those with ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.config.types import Release, release_type

_STEPS: Mapping[tuple[int, ...], int] = {
    (0, 8, 0): 0,
    (0, 8, 1): 0,
    (0, 8, 2): 0,
    (0, 9, 0): 0,
    (0, 10, 0): 2,
    (0, 10, 1): 3,
    (0, 10, 2): 1,
    (0, 11, 0): 3,
    (1, 0): 1,
    (1, 1): 1,
    (2, 0): 2,
    (2, 1): 3,
    (2, 2): 2,
    (2, 3): 2,
    (2, 4): 2,
    (2, 5): 1,
    (2, 6): 1,
    (2, 7): 3,
    (2, 8): 2,
    (3, 0): 2,
    (3, 1): 1,
    (3, 2): 1,
    (3, 3): 4,
    (3, 4): 1,
    (3, 5): 3,
    (3, 6): 3,
    (3, 7): 5,
    (3, 8): 1,
    (3, 9): 1,
}
"""Kafka's releases up to the newest one that this broker knows -> steps of the protocol, ``-IV0`` on."""


def _is_known(release: Release) -> bool:
    series = release.numbers[: 2 if release.numbers[0] else 3]  # one more number is a bug-fix release of it
    step = -1 if release.step is None else release.step
    return len(release.numbers) <= len(series) + 1 and step < _STEPS.get(series, -1)


RELEASE = release_type("a release of Kafka from 0.8.0 to 3.9, such as 0.10.1 or 2.1-IV2", _is_known)
