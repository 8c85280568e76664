"""The directories and files of `minikafka up` are private to its user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from minikafka.cli import up
from minikafka.embedded import Cluster


@pytest.mark.process
def test_data_logs_zookeeper_and_settings_files_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    directory = tmp_path / "data"
    with Cluster(data_dir=directory) as cluster:
        cluster.create_topic("t")
        found = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
        for path in found:
            # ZooKeeper makes what lies in its own, which nobody else can enter.
            if "version-2" not in path.parts:
                assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        assert stat.S_IMODE((directory / "broker-0.properties").stat().st_mode) == 0o600
        assert up.readable_by_others(directory, 1) == []


def test_directories_that_others_can_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.base.cache_dirs.is_open_to_others", lambda path: path.name in wide)
    wide = {"logs"}
    assert up.readable_by_others(tmp_path, 1) == [tmp_path / "logs"]
    wide = {"logs", "broker-0"}
    assert up.readable_by_others(tmp_path, 1) == [tmp_path]
