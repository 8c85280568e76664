"""ZooKeeper restored from an older copy, and a disk that fails to rename a log."""

from __future__ import annotations

import pytest

from minikafka.base.errors import StorageError
from tests.scenarios.test_restored_zookeeper import (
    contents,
    moved_since_the_copy,
    produce,
    reassign,
    stray_directories,
    values,
)
from tests.support.simulation import Simulation


@pytest.mark.parametrize("failures", [1, 3])
def test_setting_a_log_aside_is_retried(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation()
    machines, before, after = moved_since_the_copy(simulation, running=False)
    later = [b"c0", b"c1", b"c2"]
    for value in later:
        produce(simulation, value)
    files, left = machines[after].files, [StorageError("cannot rename")] * failures
    really_rename = files.rename

    def rename(path: str, to: str) -> None:
        if to.endswith("-stray") and left:
            raise left.pop()
        really_rename(path, to)

    monkeypatch.setattr(files, "rename", rename)
    reassign(simulation, before, after)
    assert left == []
    assert values(simulation) == later
    (kept,) = stray_directories(machines[after])
    assert b"b" in contents(machines[after], kept)
