"""Where things that can be made again are kept, and whose directory is not trusted with them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from minikafka.base import places

OWN = f"minikafka-{os.getuid()}"


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's directory among the temporary ones, which is not there yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / OWN


def test_the_candidates_are_the_users_cache_and_private_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert places.candidates("things") == [
        tmp_path / "home" / ".cache" / "minikafka" / "things",
        private / "things",
        Path("/dev/shm") / OWN / "things",
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert places.candidates("things")[0] == tmp_path / "x" / "minikafka" / "things"


def test_a_cache_relative_to_anywhere_is_none(monkeypatch: pytest.MonkeyPatch, private: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert places.candidates("things")[0] == private / "things"


def test_a_machine_without_temporary_directory_still_has_the_other_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    *_, memory = places.candidates("things")
    assert memory == Path("/dev/shm") / OWN / "things"


def test_a_private_directory_is_made_for_its_user_alone(private: Path) -> None:
    assert places.writable(private / "things", private / "things" / "new")
    assert private.stat().st_mode & 0o777 == 0o700
    assert list((private / "things" / "new").iterdir()) == []


def test_a_private_directory_that_others_can_write_is_not_used(private: Path) -> None:
    private.mkdir()
    private.chmod(0o777)
    assert not places.writable(private / "things", private / "things" / "new")
    private.chmod(0o700)
    assert places.writable(private / "things", private / "things" / "new")


def test_a_private_directory_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, private: Path
) -> None:
    private.mkdir(mode=0o700)
    other = os.getuid() + 1
    private.rename(private.parent / f"minikafka-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    (place, *_) = (place for place in places.candidates("things") if place.is_relative_to(private.parent))
    assert not places.writable(place, place / "new")


def test_a_symlink_in_place_of_the_private_directory_is_not_used(tmp_path: Path, private: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    private.symlink_to(tmp_path / "elsewhere")
    assert not places.writable(private / "things", private / "things" / "new")


def test_a_file_in_place_of_a_directory_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not places.writable(tmp_path / "file" / "things", tmp_path / "file" / "things" / "new")
