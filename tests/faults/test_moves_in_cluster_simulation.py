"""Histories of ``cluster_simulation`` in which logs also move between two disks of their brokers.

Every other move ends in a crash of its machine: a kill, or a power cut where messages are flushed, after a
random change to the disk while the copy replaces the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from minikafka.base.errors import BrokerError
from minikafka.base.ids import TopicPartition
from minikafka.log.future_logs import FutureLogs
from minikafka.log.log import Log
from tests.faults.cluster_machines import Machine
from tests.faults.cluster_simulation import Simulation
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

DISKS = ("data", "data2")
LAST_CHANGE = 45
"""The changes to the disk after which a crash may come: a replacement makes fewer."""


def move_log(simulation: Simulation) -> bool:
    """A log is moved to the other disk of its broker."""
    machine = simulation._some_machine()
    if machine is None or machine.running is None or not machine.running.broker.partitions:
        return False
    broker = machine.running.broker
    partition = simulation.dice.choice(sorted(broker.partitions))
    home = broker.logs.home_of(partition)
    target = DISKS[home is not None and home.path == DISKS[0]]

    def job() -> None:
        try:
            broker.alter_log_dir(partition, os.path.abspath(target))
        except BrokerError as error:
            simulation.events.note(machine.host, f"does not move {partition}: {error}")

    broker.worker.submit(job)
    return True


@pytest.mark.timeout(300)
def test_a_cluster_whose_logs_move_keeps_what_it_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    replace, replaced = FutureLogs.replace_current, 0
    simulation = Simulation(0)

    def with_crashes(
        futures: FutureLogs, partition: TopicPartition, switch: Callable[[Callable[[], Log | None]], bool]
    ) -> bool:
        nonlocal replaced
        if not simulation.careful and simulation.dice.random() < 0.5:
            _machine_of(simulation, futures).disk.changes_left = simulation.dice.randrange(1, LAST_CHANGE)
        moved = replace(futures, partition, switch)
        replaced += moved
        return moved

    monkeypatch.setattr(FutureLogs, "replace_current", with_crashes)
    for seed in seeds(10):
        simulation = Simulation(seed)
        simulation.world.properties["log.dirs"] = ",".join(DISKS)
        simulation.faults += [move_log] * 3
        simulation.run()
    assert replaced > 10


def _machine_of(simulation: Simulation, futures: FutureLogs) -> Machine:
    return next(
        machine
        for machine in simulation.world.machines.values()
        if machine.running is not None and machine.running.broker.logs.futures is futures
    )
