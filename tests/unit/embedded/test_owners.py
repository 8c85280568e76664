"""Owners: unique process identities, and the JVM above a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.embedded import owners
from minikafka.embedded.owners import (
    Owner,
    find_owner,
    from_ps,
    host_boot_id,
    is_alive,
    owner_of,
    process_info,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="programs are copied and renamed")

Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def make(*command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def shell_named(name: str, directory: Path) -> str:
    """Create a shell under another name; a process named ``java`` counts as a JVM."""
    shell = os.path.realpath("/bin/sh")
    directory.mkdir(exist_ok=True)
    return shutil.copy(shell, str(directory / name))


def said(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_running_process_is_alive() -> None:
    itself = owner_of(os.getpid())
    assert itself is not None
    assert is_alive(itself)


def test_another_process_of_the_same_id_is_not_the_owner() -> None:
    itself = owner_of(os.getpid())
    assert itself is not None
    assert not is_alive(Owner(itself.pid, itself.started + "1"))


def test_a_process_that_has_ended_is_not_alive(run: Run) -> None:
    process = run("sleep", "600")
    owner = owner_of(process.pid)
    assert owner is not None
    process.kill()
    process.wait()
    assert not is_alive(owner)
    assert owner_of(process.pid) is None


def test_a_zombie_is_not_alive(run: Run) -> None:
    process = run("sleep", "600")
    owner = owner_of(process.pid)
    assert owner is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is not reaped
    assert not is_alive(owner)


@pytest.mark.parametrize("name", ["java", "a b", "x) S 1 (y", "z"])
@linux_only
def test_a_strange_name_does_not_disturb(run: Run, tmp_path: Path, name: str) -> None:
    process = run(shell_named(name, tmp_path / "bin"), "-c", "echo $$; read line")
    info = process_info(said(process))
    assert info is not None
    assert (info.name, info.parent) == (name, os.getpid())


def test_ps_says_the_same(run: Run) -> None:
    process = run("sleep", "600")
    info = from_ps(process.pid)
    assert info is not None
    assert (info.name, info.parent) == ("sleep", os.getpid())
    assert from_ps(process.pid) == info
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert from_ps(process.pid) is None
    process.wait()
    assert from_ps(process.pid) is None


@linux_only
def test_the_owner_is_the_nearest_jvm_above(run: Run, tmp_path: Path) -> None:
    java = shell_named("java", tmp_path)
    # An editor that is a JVM, a driver, Spark's JVM, its worker. The colons keep shells from replacing
    # themselves.
    chain = {
        "worker": "echo $$; read line; :",
        "spark": "echo $$; sh worker; :",
        "driver": f"{java} spark; :",
    }
    for name, script in {**chain, "editor": "sh driver; :"}.items():
        (tmp_path / name).write_text(script)
    editor = run(java, "-c", f"cd {tmp_path}; . ./editor")
    spark, worker = said(editor), said(editor)
    assert find_owner(worker) == owner_of(spark)
    assert spark != editor.pid


@linux_only
def test_a_jvm_owns_itself(run: Run, tmp_path: Path) -> None:
    process = run(shell_named("java", tmp_path), "-c", "echo $$; read line")
    assert find_owner(said(process)).pid == process.pid


def test_without_a_jvm_a_process_owns_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "is_jvm", lambda pid, info: False)
    assert find_owner() == owner_of(os.getpid())


def test_a_real_jvm_is_known_by_any_name(run: Run, tmp_path: Path) -> None:
    from minikafka.embedded.java import find_java

    source = tmp_path / "Wait.java"
    source.write_text(
        "class Wait { public static void main(String[] a) throws Exception "
        "{ System.out.println(ProcessHandle.current().pid()); System.in.read(); } }"
    )
    pid = said(run(find_java().path, "-XX:TieredStopAtLevel=1", str(source)))
    info = process_info(pid)
    assert info is not None
    assert owners.is_jvm(pid, info)
    if sys.platform == "linux":
        assert owners.is_jvm(pid, owners.ProcessInfo(info.parent, info.started, "renamed"))


def test_a_process_that_does_not_run_has_no_owner(run: Run) -> None:
    process = run("sleep", "600")
    process.kill()
    process.wait()
    with pytest.raises(ProcessLookupError):
        find_owner(process.pid)


def test_the_working_directory_of_a_process_is_known(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path)
    try:
        assert owners.working_directory(process.pid) == str(tmp_path.resolve())
    finally:
        process.communicate(b"\n")
    assert owners.working_directory(process.pid) is None


def test_the_command_line_of_a_process_is_known(run: Run) -> None:
    command = [sys.executable, "-c", "print(1, flush=True); input()", "two words", ""]
    process = run(*command)
    said(process)  # it has no command line while it begins
    if sys.platform == "linux":
        assert owners.command_line(process.pid) == command
    assert owners.command_from_ps(process.pid) == " ".join(command).split()
    process.kill()
    process.wait()
    assert owners.command_line(process.pid) == owners.command_from_ps(process.pid) == []


@pytest.mark.skipif(shutil.which("lsof") is None, reason="lsof is not installed")
def test_lsof_says_the_same() -> None:
    assert owners.directory_from_lsof(os.getpid()) == os.getcwd()


def test_the_boot_id_is_one_text_for_all_processes() -> None:
    code = "from minikafka.embedded.owners import host_boot_id; print(host_boot_id())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == host_boot_id() != ""
