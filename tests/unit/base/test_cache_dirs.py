"""Cache directories, and the refusal of directories of other users."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base import cache_dirs
from tests.support.raising import raising

OWN = f"minikafka-{os.getuid()}"


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's directory below the temporary directory, which does not exist yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / OWN


def test_candidates_are_user_cache_and_private_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dirs.candidates("things") == [
        tmp_path / "home" / ".cache" / "minikafka" / "things",
        private / "things",
        Path("/dev/shm") / OWN / "things",
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_dirs.candidates("things")[0] == tmp_path / "x" / "minikafka" / "things"


def test_a_cache_relative_to_anywhere_is_none(monkeypatch: pytest.MonkeyPatch, private: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_dirs.candidates("things")[0] == private / "things"


def test_without_temporary_directory_other_candidates_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", raising(FileNotFoundError("no usable temporary directory")))
    *_, memory = cache_dirs.candidates("things")
    assert memory == Path("/dev/shm") / OWN / "things"


def test_a_private_directory_is_made_for_its_user_alone(private: Path) -> None:
    assert cache_dirs.is_writable(private / "things", private / "things" / "new")
    assert private.stat().st_mode & 0o777 == 0o700
    assert list((private / "things" / "new").iterdir()) == []


def test_a_private_directory_that_others_can_write_is_not_used(private: Path) -> None:
    private.mkdir()
    private.chmod(0o777)
    assert not cache_dirs.is_writable(private / "things", private / "things" / "new")
    private.chmod(0o700)
    assert cache_dirs.is_writable(private / "things", private / "things" / "new")


def test_a_private_directory_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, private: Path
) -> None:
    private.mkdir(mode=0o700)
    other = os.getuid() + 1
    private.rename(private.parent / f"minikafka-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    (place, *_) = (place for place in cache_dirs.candidates("things") if place.is_relative_to(private.parent))
    assert not cache_dirs.is_writable(place, place / "new")


def test_a_symlink_in_place_of_the_private_directory_is_not_used(tmp_path: Path, private: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    private.symlink_to(tmp_path / "elsewhere")
    assert not cache_dirs.is_writable(private / "things", private / "things" / "new")


def test_a_file_in_place_of_a_directory_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not cache_dirs.is_writable(tmp_path / "file" / "things", tmp_path / "file" / "things" / "new")


def test_open_own_refuses_files_that_others_can_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"code")
    file.chmod(0o644)
    with cache_dirs.open_own(file) as ours:
        assert ours.read() == b"code"
    file.chmod(0o666)
    with pytest.raises(PermissionError):
        cache_dirs.open_own(file)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("opening", [cache_dirs.open_own, cache_dirs.open_lock, cache_dirs.read_regular])
def test_fifo_in_place_of_a_file_does_not_block(tmp_path: Path, opening: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(OSError, match="not a"):
        opening(tmp_path / "fifo")


def test_a_link_in_place_of_a_lock_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="link"):
        cache_dirs.open_lock(tmp_path / "link")
    assert not (tmp_path / "precious").exists()


def test_make_private_keeps_rights_of_existing_directories(tmp_path: Path) -> None:
    cache_dirs.make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a" / "b").chmod(0o755)
    cache_dirs.make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o755


def test_a_directory_is_open_to_others_when_they_can_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for above in tmp_path.parents:  # pytest's own are private
        if above.stat().st_uid == os.getuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)
    tmp_path.chmod(0o711)
    for outer, mode, is_open in ((0o755, 0o755, True), (0o700, 0o755, False), (0o755, 0o750, False)):
        inner.parent.chmod(outer)
        inner.chmod(mode)
        assert cache_dirs.is_open_to_others(inner) is is_open
    assert not cache_dirs.is_open_to_others(tmp_path / "absent")
