"""Who leads a partition: the controller's decision, as a value that travels from it to the brokers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the controller decided for one partition: who leads, since which epoch, who is in sync.

    ``version`` is that of the partition's state znode once it holds this value: 0 for the first.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    controller_epoch: int
    version: int = 0
