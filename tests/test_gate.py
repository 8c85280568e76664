"""The small parts of scripts/test that decide whether it says yes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

REPORT = (
    '<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"/>'
    "</testsuites>"
)


def count(directory: Path, passed: int, failed: int) -> tuple[int, list[str]]:
    command = [sys.executable, SCRIPTS / "count_tests.py", directory, str(passed), str(failed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def report(
    directory: Path, name: str, *, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0
) -> None:
    text = REPORT.format(tests=tests, failures=failures, errors=errors, skipped=skipped)
    (directory / f"{name}.xml").write_text(text)


def test_all_that_passed_is_added_up(tmp_path: Path) -> None:
    report(tmp_path, "pure", tests=10, skipped=1)
    report(tmp_path, "processes", tests=5)
    status, lines = count(tmp_path, 4, 0)
    assert (status, lines[-1]) == (0, "18 passed, 0 failed")


@pytest.mark.parametrize("bad", ["failures", "errors"])
def test_one_that_failed_makes_it_fail(tmp_path: Path, bad: str) -> None:
    report(tmp_path, "pure", tests=10, **{bad: 1})
    status, lines = count(tmp_path, 4, 0)
    assert (status, lines[-1]) == (1, "13 passed, 1 failed")


def test_a_check_that_failed_makes_it_fail(tmp_path: Path) -> None:
    status, lines = count(tmp_path, 3, 1)
    assert (status, lines[-1]) == (1, "3 passed, 1 failed")


def test_skipped_tests_are_counted_by_reason(tmp_path: Path) -> None:
    skipped = "".join(
        f'<testcase><skipped message="{why}"/></testcase>' for why in ("no jar", "no go", "no jar")
    )
    text = f'<testsuite tests="3" failures="0" errors="0" skipped="3">{skipped}</testsuite>'
    (tmp_path / "interop.xml").write_text(f"<testsuites>{text}</testsuites>")
    status, lines = count(tmp_path, 1, 0)
    assert (status, lines) == (0, ["3 skipped:", "    2: no jar", "    1: no go", "1 passed, 0 failed"])


@pytest.mark.process
@pytest.mark.parametrize(("until", "outcome"), [("0", "1 skipped"), ("99999999999", "1 passed")])
def test_a_test_is_left_out_when_the_time_is_over(until: str, outcome: str) -> None:
    one = f"{__file__}::test_a_check_that_failed_makes_it_fail"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one]
    environment = os.environ | {"MINIKAFKA_TESTS_UNTIL": until}
    done = subprocess.run(command, env=environment, cwd=SCRIPTS.parent, capture_output=True, text=True)
    assert outcome in done.stdout.splitlines()[-1]


@pytest.mark.process
def test_a_process_that_is_left_behind_is_named_and_killed() -> None:
    run = f"test-{os.getpid()}"
    left = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"MINIKAFKA_TEST_RUN": run}
    )
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import leftovers; leftovers.PATIENCE_S = 0; "
        f"sys.exit(leftovers.main({run!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"left behind: {left.pid}" in done.stdout
    assert left.wait(10) == -9
    assert left.stdin is not None
    left.stdin.close()


@pytest.mark.process
def test_nothing_left_behind_is_fine() -> None:
    done = subprocess.run([sys.executable, SCRIPTS / "leftovers.py", "no-such-run"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("script", ["prepare.sh", "test", "demo", "interop", "../.ci/run"])
def test_the_scripts_are_bash_that_parses(script: str) -> None:
    subprocess.run(["bash", "-n", SCRIPTS / script], check=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with ``.ci/run`` beside a gate and an interop script that pass."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".ci" / "run").write_text((SCRIPTS.parent / ".ci" / "run").read_text())
    script(tmp_path, "test", "echo 10 passed, 0 failed")
    script(tmp_path, "interop", "echo 5 passed, 0 failed")
    return tmp_path


def script(checkout: Path, name: str, text: str) -> None:
    path = checkout / "scripts" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "text", "status", "last"),
    [
        ("interop", "echo 5 passed, 0 failed", 0, "15 passed, 0 failed"),
        ("interop", "echo 4 passed, 1 failed; exit 1", 1, "14 passed, 1 failed"),
        ("interop", "echo 4 passed, 1 failed", 1, "14 passed, 1 failed"),
        ("interop", "exit 124", 1, "10 passed, 1 failed"),
        ("test", "echo broken; exit 2", 1, "5 passed, 1 failed"),
    ],
)
def test_ci_adds_up_the_gate_and_the_peers(
    checkout: Path, name: str, text: str, status: int, last: str
) -> None:
    script(checkout, name, text)
    done = subprocess.run(["bash", checkout / ".ci" / "run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (status, last)
