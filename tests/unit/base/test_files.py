"""The contract of the filesystem port, over the machine's files and over those in memory."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import DirectoryLocked, StorageError, TooManyFiles
from minikafka.base.files import Buffer, File, Files, FileSlice, RealFile, RealFiles, read_file, replace_file
from minikafka.base.memory_files import MemoryFiles


@pytest.fixture(params=["real", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return RealFiles() if request.param == "real" else MemoryFiles()


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    """A directory."""
    files.make_dirs(f"{tmp_path}/d")
    return f"{tmp_path}/d"


@pytest.fixture
def file(files: Files, root: str) -> Iterator[File]:
    """An empty file ``a`` in the directory."""
    file = files.open(f"{root}/a", create=True)
    yield file
    file.close()


def test_what_is_written_can_be_read_at_its_position(file: File) -> None:
    file.write_at(0, b"hello")
    file.write_at(5, memoryview(b", world"))
    assert file.read_at(3, 4) == b"lo, "
    assert file.size() == 12


def test_a_read_past_the_end_gives_what_there_is(file: File) -> None:
    file.write_at(0, b"abc")
    assert file.read_at(1, 100) == b"bc"
    assert file.read_at(3, 100) == b""


def test_a_write_behind_the_end_leaves_zeros_between(file: File) -> None:
    file.write_at(4, b"x")
    assert file.read_at(0, 10) == b"\0\0\0\0x"


def test_truncate_cuts_and_extends_with_zeros(file: File) -> None:
    file.write_at(0, b"abcdef")
    file.truncate(2)
    assert file.size() == 2
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"


def test_open_without_create_needs_the_file(files: Files, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        read_file(files, f"{root}/absent")


def test_open_with_create_keeps_what_is_there(files: Files, root: str) -> None:
    files.open(f"{root}/a", create=True).write_at(0, b"abc")
    assert files.open(f"{root}/a", create=True).size() == 3


def test_a_file_opened_for_reading_refuses_writes(files: Files, root: str) -> None:
    files.open(f"{root}/a", create=True).write_at(0, b"abc")
    file = files.open(f"{root}/a", read_only=True)
    with pytest.raises(StorageError, match="cannot write"):
        file.write_at(0, b"x")
    assert file.read_at(0, 3) == b"abc"


def test_a_closed_file_refuses_everything_and_closes_twice(file: File, root: str) -> None:
    file.close()
    file.close()
    with pytest.raises(StorageError, match=f"{root}/a"):
        file.read_at(0, 1)
    with pytest.raises(StorageError):
        file.write_at(0, b"x")


def test_two_open_files_see_the_same_bytes(files: Files, root: str) -> None:
    one, other = files.open(f"{root}/a", create=True), files.open(f"{root}/a")
    one.write_at(0, b"abc")
    assert other.read_at(0, 3) == b"abc"


def test_an_open_file_outlives_its_name(file: File, files: Files, root: str) -> None:
    file.write_at(0, b"abc")
    files.remove(f"{root}/a")
    assert not files.exists(f"{root}/a")
    assert file.read_at(0, 3) == b"abc"


def test_open_files_of_a_removed_tree_are_readable(files: Files, root: str) -> None:
    files.make_dirs(f"{root}/x/y")
    file = files.open(f"{root}/x/y/a", create=True)
    file.write_at(0, b"abc")
    files.remove_tree(f"{root}/x")
    assert not files.exists(f"{root}/x")
    assert file.read_at(0, 3) == b"abc"


def test_names_are_listed_in_order(files: Files, root: str) -> None:
    for name in ("b", "a", "c"):
        files.open(f"{root}/{name}", create=True).close()
    files.make_dirs(f"{root}/d/e")
    assert files.list_dir(root) == ["a", "b", "c", "d"]
    assert files.is_dir(f"{root}/d")
    assert not files.is_dir(f"{root}/a")
    assert files.exists(f"{root}/d/e")


def test_listing_what_is_no_directory_fails(files: Files, root: str) -> None:
    files.open(f"{root}/a", create=True).close()
    with pytest.raises(FileNotFoundError):
        files.list_dir(f"{root}/absent")
    with pytest.raises(StorageError):
        files.list_dir(f"{root}/a")


def test_make_dirs_accepts_directories_but_not_a_file(files: Files, root: str) -> None:
    files.make_dirs(f"{root}/x/y")
    files.make_dirs(f"{root}/x/y")
    files.open(f"{root}/a", create=True).close()
    with pytest.raises(StorageError):
        files.make_dirs(f"{root}/a")


def test_rename_replaces_its_target(files: Files, root: str) -> None:
    files.open(f"{root}/a", create=True).write_at(0, b"new")
    files.open(f"{root}/b", create=True).write_at(0, b"old one")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.list_dir(root) == ["b"]
    assert read_file(files, f"{root}/b") == b"new"


def test_a_directory_can_be_renamed_with_what_is_in_it(files: Files, root: str) -> None:
    files.make_dirs(f"{root}/x")
    files.open(f"{root}/x/a", create=True).write_at(0, b"abc")
    files.rename(f"{root}/x", f"{root}/y")
    assert read_file(files, f"{root}/y/a") == b"abc"


@pytest.mark.parametrize("call", ["rename", "remove"])
def test_calls_on_a_missing_file_say_so(files: Files, root: str, call: str) -> None:
    arguments = (f"{root}/absent", f"{root}/b") if call == "rename" else (f"{root}/absent",)
    with pytest.raises(FileNotFoundError):
        getattr(files, call)(*arguments)


def test_replace_file_leaves_nothing_beside_the_new_content(files: Files, root: str) -> None:
    replace_file(files, f"{root}/a", b"a longer one")
    replace_file(files, f"{root}/a", b"short")
    assert read_file(files, f"{root}/a") == b"short"
    assert files.list_dir(root) == ["a"]


def test_lock_is_exclusive_and_free_after_release(files: Files, root: str) -> None:
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(DirectoryLocked, match=root):
        files.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_lock_with_a_removed_file_does_not_exclude_others(files: Files, root: str) -> None:
    lock = files.lock(f"{root}/.lock")
    assert lock.is_in_place()
    files.remove(f"{root}/.lock")
    assert not lock.is_in_place()
    other = files.lock(f"{root}/.lock")
    assert other.is_in_place()
    assert not lock.is_in_place()
    lock.release()
    with pytest.raises(DirectoryLocked):
        files.lock(f"{root}/.lock")
    other.release()


def remove_file(files: Files, root: str) -> None:
    files.remove(f"{root}/in/a")


def remove_directory(files: Files, root: str) -> None:
    files.remove_tree(f"{root}/in")


def move_directory(files: Files, root: str) -> None:
    files.rename(f"{root}/in", f"{root}/elsewhere")


def make_another(files: Files, root: str) -> None:
    files.remove(f"{root}/in/a")
    files.open(f"{root}/in/a", create=True).close()


def put_a_copy_there(files: Files, root: str) -> None:
    files.rename(f"{root}/in", f"{root}/elsewhere")
    files.make_dirs(f"{root}/in")
    files.open(f"{root}/in/a", create=True).close()


@pytest.mark.parametrize(
    "change", [remove_file, remove_directory, move_directory, make_another, put_a_copy_there]
)
def test_a_file_that_was_taken_away_is_not_in_place(
    files: Files, root: str, change: Callable[[Files, str], None]
) -> None:
    files.make_dirs(f"{root}/in")
    file = files.open(f"{root}/in/a", create=True)
    assert file.is_in_place()
    change(files, root)
    assert not file.is_in_place()
    file.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_file_that_cannot_be_looked_for_counts_as_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(path: str) -> os.stat_result:
        raise OSError(number, os.strerror(number), path)

    files = RealFiles()
    file, lock = files.open(f"{tmp_path}/a", create=True), files.lock(f"{tmp_path}/.lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail)
        found = file.is_in_place(), lock.is_in_place()
    assert found == (True, True)


def test_a_file_that_was_closed_counts_as_in_place(tmp_path: Path) -> None:
    file = RealFiles().open(f"{tmp_path}/a", create=True)
    file.close()
    assert file.is_in_place()


@pytest.mark.parametrize(("kind", "in_place"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False)])
def test_changed_inode_proves_nothing_if_filesystem_changes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, in_place: bool
) -> None:
    path = tmp_path / "with space" / "a"
    path.parent.mkdir()
    mounts = tmp_path / "mountinfo"
    point = str(path.parent).replace(" ", r"\040")
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw\n"
        f"30 22 0:50 / {point} rw - tmpfs over rw\n"
        f"31 30 0:51 / {point} rw,relatime shared:2 master:3 - {kind} server:/exported rw\n"
        "32 22 0:52 / /elsewhere rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr("minikafka.base.files._MOUNTS", str(mounts))
    file = RealFiles().open(str(path), create=True)
    path.rename(tmp_path / "moved")
    path.write_bytes(b"")
    assert file.is_in_place() is in_place


def test_a_slice_reads_its_part_of_the_file(file: File) -> None:
    file.write_at(0, b"0123456789")
    piece = FileSlice(file, 2, 5)
    assert piece.read() == b"23456"
    assert piece.part(1, 3).read() == b"345"
    with pytest.raises(ValueError, match="outside"):
        piece.part(3, 3)


def test_sync_calls_go_through(file: File, files: Files, root: str) -> None:
    file.sync()
    files.sync_dir(root)
    with pytest.raises(FileNotFoundError):
        files.sync_dir(f"{root}/absent")


def test_writing_moves_the_time_of_modification_forward(file: File) -> None:
    file.write_at(0, b"a")
    assert file.modified_ms() > 1_600_000_000_000


def test_the_time_of_modification_can_be_set(file: File) -> None:
    file.write_at(0, b"a")
    file.set_modified_ms(1_234_567_890_123)
    assert file.modified_ms() == 1_234_567_890_123


def test_renamed_or_removed_file_still_has_its_time(file: File, files: Files, root: str) -> None:
    file.set_modified_ms(1000)
    files.rename(f"{root}/a", f"{root}/b")
    assert file.modified_ms() == 1000
    files.remove(f"{root}/b")
    assert file.modified_ms() == 1000


def test_last_reference_closes_descriptor_of_real_file(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    assert isinstance(file, RealFile)
    descriptor = file.descriptor()
    assert descriptor is not None
    os.fstat(descriptor)
    piece = FileSlice(file, 0, 0)
    del file
    os.fstat(descriptor)
    del piece
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_in_memory_has_no_descriptor() -> None:
    assert MemoryFiles().open("a", create=True).descriptor() is None


def test_errors_of_the_machine_name_the_path_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot open .*plain/below: Not a directory"):
        RealFiles().open(str(tmp_path / "plain" / "below"), create=True)


# Who may read.


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_private_files_and_others_hold_the_same_bytes(files: Files, root: str) -> None:
    replace_file(files, f"{root}/a", b"secret", private=True)
    replace_file(files, f"{root}/a", b"new", private=True)
    assert read_file(files, f"{root}/a") == b"new"
    assert files.open(f"{root}/a", create=True, private=True).size() == 3


@pytest.mark.usefixtures("open_umask")
def test_a_private_file_is_for_its_user_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "ticket")
    replace_file(RealFiles(), path, b"open")
    assert mode_of(path) == 0o644
    replace_file(RealFiles(), path, b"secret", private=True)
    assert mode_of(path) == 0o600


@pytest.mark.usefixtures("open_umask")
def test_private_file_is_private_before_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "ticket")
    RealFiles().open(path + ".tmp", create=True).close()
    modes, write_at = [], RealFile.write_at

    def watched(file: RealFile, position: int, data: Buffer) -> None:
        modes.append(mode_of(file.path))
        write_at(file, position, data)

    monkeypatch.setattr(RealFile, "write_at", watched)
    replace_file(RealFiles(), path, b"secret", private=True)
    assert modes == [0o600]


@pytest.mark.usefixtures("open_umask")
def test_a_lock_file_is_for_its_user_alone(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    RealFiles().lock(path).release()
    assert mode_of(path) == 0o600


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a file system where nothing can be made")
def test_failed_make_dirs_is_storage_error_not_missing_file() -> None:
    """Linux says "no such file or directory" of one in /proc."""
    with pytest.raises(StorageError, match="cannot make directory /proc/x/y: No such file"):
        RealFiles().make_dirs("/proc/x/y")


@pytest.mark.parametrize("call", ["open", "sync_dir"])
def test_without_a_descriptor_nothing_was_tried(tmp_path: Path, call: str) -> None:
    (tmp_path / "a").touch()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(TooManyFiles, match="Too many open files"):
            getattr(RealFiles(), call)(str(tmp_path if call == "sync_dir" else tmp_path / "a"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
