"""The files of a data directory's embedded broker, also those that a crash has left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from minikafka.embedded.local_files import EmbeddedDirectory, LocalCluster, listed_clusters
from minikafka.embedded.owners import host_boot_id, owner_of


def test_address_of_a_dead_daemon_is_ignored(tmp_path: Path) -> None:
    directory = EmbeddedDirectory(str(tmp_path))
    directory.make()
    dead = LocalCluster("h:1", "h:2", "id", host_boot_id(), str(tmp_path), 1, "never")
    Path(directory.address).write_bytes(dead.to_json())
    with directory.serve():
        assert directory.cluster() is None


def test_invalid_owner_files_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / ".embedded" / "owners"
    directory.mkdir(parents=True)
    (directory / "nonsense").write_text("nonsense")
    dead = {"pid": 1, "started": "never", "boot_id": host_boot_id()}
    (directory / "1-dead").write_text(json.dumps(dead))
    elsewhere = {"pid": os.getpid(), "started": "x", "boot_id": "another host"}
    (directory / "2-elsewhere").write_text(json.dumps(elsewhere))
    living = owner_of(os.getpid())
    assert living is not None
    directory_of = EmbeddedDirectory(str(tmp_path))
    directory_of.add_owner(living)
    assert directory_of.living_owners() == [living]
    assert len(list(directory.iterdir())) == 1


def test_clusters_left_by_a_crash_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    listing = tmp_path / "minikafka" / "running"
    listing.mkdir(parents=True)
    dead = LocalCluster("h:1", "h:2", "id", host_boot_id(), "/data", 1, "never")
    other = LocalCluster("h:1", "h:2", "id", "another host", "/data", os.getpid(), "never")
    (listing / "dead.json").write_bytes(dead.to_json())
    (listing / "other.json").write_bytes(other.to_json())
    (listing / "nonsense.json").write_text("nonsense")
    assert list(listed_clusters()) == []
    assert [path.name for path in listing.iterdir()] == ["other.json"]


def test_an_address_survives_its_file() -> None:
    cluster = LocalCluster("h:1", "h:2", "id", "boot", "/dätä", 1, "2")
    assert LocalCluster.from_json(cluster.to_json()) == cluster


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"{}", b"null", b'{"pid": 1}', b"\xff"])
def test_a_damaged_address_is_none(data: bytes) -> None:
    assert LocalCluster.from_json(data) is None
