"""The offsets of a group move from ZooKeeper to the brokers and back while it reads, as the guide says."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.migration import (
    FEW,
    IDLE,
    KAFKA,
    KAFKA_AND_ZOOKEEPER,
    PARTITIONS,
    ZOOKEEPER,
    ZOOKEEPER_AND_KAFKA,
    Migration,
    ProcessReader,
    Settings,
    ThreadReader,
    migrating,
)

THERE_AND_BACK = (ZOOKEEPER, KAFKA_AND_ZOOKEEPER, KAFKA, ZOOKEEPER_AND_KAFKA, ZOOKEEPER)
BY_ALL_STEPS = (
    ZOOKEEPER,
    ZOOKEEPER_AND_KAFKA,
    KAFKA_AND_ZOOKEEPER,
    KAFKA,
    KAFKA_AND_ZOOKEEPER,
    ZOOKEEPER_AND_KAFKA,
    ZOOKEEPER,
)


def report(migration: Migration) -> None:
    times, watcher = migration.times(), migration.watcher
    again = sum(count - 1 for count in times.values())
    sys.stdout.write(f"{len(times)} messages, {again} again, {len(migration.all)} consumers, ")
    sys.stdout.write(f"{watcher.looks} looks\n")


def rolls_cleanly(data_dir: Path, steps: tuple[Settings, ...]) -> None:
    with migrating(data_dir) as migration:
        migration.begin(steps[0])
        for before, settings in pairwise(steps):
            migration.wait_until_written(before)
            for reader in list(migration.alive):
                migration.restarts(reader, settings)
        migration.load.stop()
        migration.wait_until_all_is_read()
        migration.close()
        report(migration)
        times = migration.times()
        assert times.keys() == migration.load.sent
        assert not [value for value, count in times.items() if count > 1]
        assert not migration.watcher.faults, migration.watcher.faults[:5]
        readers = [reader for reader in migration.all if isinstance(reader, ThreadReader)]
        behind = [message for reader in readers for message in reader.behind]
        assert not behind, behind[:5]
        in_zookeeper, _ = migration.watcher.places()
        assert in_zookeeper[IDLE] == 2 * FEW
        assert sum(in_zookeeper.values()) == len(migration.load.sent)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_offsets_move_to_brokers_and_back_without_duplicates(tmp_path: Path) -> None:
    rolls_cleanly(tmp_path / "d", THERE_AND_BACK)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
def test_they_move_by_all_steps_and_every_message_comes_once(tmp_path: Path) -> None:
    rolls_cleanly(tmp_path / "d", BY_ALL_STEPS)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [THERE_AND_BACK, BY_ALL_STEPS], ids=["recipe", "all steps"])
def test_kill_in_each_migration_step_loses_no_message_or_offset(
    tmp_path: Path, steps: tuple[Settings, ...]
) -> None:
    with migrating(tmp_path / "d", ProcessReader) as migration:
        migration.begin(steps[0])
        for before, settings in pairwise(steps):
            migration.wait_until_written(before)
            one, other, third = migration.alive
            migration.restarts(one, settings)
            migration.restarts(other, settings, killed=True)
            migration.restarts(migration.alive[1], settings, killed=True)
            migration.restarts(third, settings)
        migration.wait_until_written(steps[-1])
        migration.load.stop()
        migration.wait_until_all_is_read()
        migration.close()
        report(migration)
        assert migration.times().keys() == migration.load.sent
        assert not migration.watcher.faults, migration.watcher.faults[:5]
        in_zookeeper, _ = migration.watcher.places()
        assert in_zookeeper.keys() == set(PARTITIONS)
