"""The small parts of scripts/test that decide whether it says yes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import (
    LONGEST_S,
    NOT_PURE,
    TESTS,
    pytest_collection_modifyitems,
    pytest_testnodedown,
    pytest_xdist_make_scheduler,
    shares,
)

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def count(directory: Path, passed: int, failed: int) -> tuple[int, list[str]]:
    command = [sys.executable, SCRIPTS / "count_tests.py", directory, str(passed), str(failed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def report(directory: Path, name: str, *outcomes: str) -> None:
    """A report of tests ``0``, ``1``, …: each ``passed``, or the element that tells what became of it."""
    cases = "".join(
        f'<testcase classname="c" name="{number}">{"" if outcome == "passed" else f"<{outcome}/>"}</testcase>'
        for number, outcome in enumerate(outcomes)
    )
    (directory / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_all_that_passed_is_added_up(tmp_path: Path) -> None:
    report(tmp_path, "pure", *["passed"] * 9, "skipped")
    report(tmp_path, "processes", *["passed"] * 5)
    status, lines = count(tmp_path, 4, 0)
    assert (status, lines[-1]) == (0, "18 passed, 0 failed")


@pytest.mark.parametrize("bad", ["failure", "error"])
def test_one_that_failed_makes_it_fail(tmp_path: Path, bad: str) -> None:
    report(tmp_path, "pure", *["passed"] * 9, bad)
    status, lines = count(tmp_path, 4, 0)
    assert (status, lines[-1]) == (1, "13 passed, 1 failed")


@pytest.mark.parametrize("outcomes", [("passed", "error"), ("error", "passed")])
def test_a_test_that_failed_at_its_end_is_counted_once(tmp_path: Path, outcomes: tuple[str, str]) -> None:
    cases = "".join(
        f'<testcase classname="c" name="0">{"<error/>" if one == "error" else ""}</testcase>'
        for one in outcomes
    )
    (tmp_path / "pure.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert count(tmp_path, 0, 0) == (1, ["0 passed, 1 failed"])


def test_test_that_passes_when_run_again_counts_as_passed_and_is_named(tmp_path: Path) -> None:
    report(tmp_path, "interop", "failure", "passed")
    report(tmp_path, "interop-again", "passed")
    status, lines = count(tmp_path, 0, 0)
    assert (status, lines[-1]) == (0, "2 passed, 0 failed")
    assert lines[0] == "failed at first, and passed when it was run again: c::0"


@pytest.mark.parametrize("second", ["failure", "skipped"])
def test_one_that_did_not_pass_when_it_was_run_again_has_failed(tmp_path: Path, second: str) -> None:
    report(tmp_path, "interop", "failure", "passed")
    report(tmp_path, "interop-again", second)
    assert count(tmp_path, 0, 0) == (1, ["1 passed, 1 failed"])


def test_a_check_that_failed_makes_it_fail(tmp_path: Path) -> None:
    status, lines = count(tmp_path, 3, 1)
    assert (status, lines[-1]) == (1, "3 passed, 1 failed")


def test_skipped_tests_are_counted_by_reason(tmp_path: Path) -> None:
    skipped = "".join(
        f'<testcase classname="c" name="{number}"><skipped message="{why}"/></testcase>'
        for number, why in enumerate(("no jar", "no go", "no jar"))
    )
    text = f"<testsuite>{skipped}</testsuite>"
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


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_file_is_in_the_share_of_one_worker(workers: int) -> None:
    files = {str(path) for path in TESTS.rglob("test_*.py") if NOT_PURE.isdisjoint(path.parents)}
    found = shares(workers)
    assert len(found) == workers
    assert sorted(path for share in found for path in share) == sorted(files)
    assert {str(TESTS / path) for path in LONGEST_S} <= files


@pytest.mark.parametrize("mark", ["process", "slow"])
def test_a_mark_that_the_gate_would_not_find_ends_the_run(mark: str) -> None:
    item: Any = SimpleNamespace(
        nodeid="tests/unit/base/test_text.py::test_hidden",
        path=TESTS / "unit" / "base" / "test_text.py",
        get_closest_marker=lambda name: name if name == mark else None,
    )
    with pytest.raises(pytest.UsageError, match="test_hidden: the gate would leave it out"):
        pytest_collection_modifyitems([item])


@pytest.mark.parametrize("status", [3, 4])
def test_a_worker_that_ended_before_its_tests_ends_the_run(status: int) -> None:
    node = SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workeroutput={"exitstatus": status})
    with pytest.raises(pytest.UsageError, match=f"worker gw1 ended with {status}, and its tests"):
        pytest_testnodedown(node)


class Worker:
    """A worker of xdist that only notes what it is told."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)

    def send_runtest_some(self, numbers: list[int]) -> None:
        """Nothing: no test runs."""

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_worker_that_replaces_another_begins_a_single_test() -> None:
    values = {"dist": "loadscope", "tx": ["popen"]}
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(getoption=lambda *_: "", getvalue=values.get, option=option)
    scheduler, tests = pytest_xdist_make_scheduler(config, None), ["tests/test_gate.py::test_a"]
    first, second = Worker("gw0"), Worker("gw1")
    scheduler.add_node(first)
    scheduler.add_node_collection(first, tests)
    scheduler.schedule()
    assert scheduler.remove_node(first) == tests[0]
    scheduler.add_node(second)
    scheduler.add_node_collection(second, tests)
    scheduler.schedule()
    assert second.shutting_down


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


@pytest.mark.parametrize("script", ["prepare.sh", "pytest_runs.sh", "test", "demo", "interop", "../.ci/run"])
def test_the_scripts_are_bash_that_parses(script: str) -> None:
    subprocess.run(["bash", "-n", SCRIPTS / script], check=True)


def test_a_run_that_ends_without_a_report_has_failed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    code = f"say() {{ :; }}; reports={tmp_path}; . {SCRIPTS}/pytest_runs.sh; tests pure . 0"
    subprocess.run(["bash", "-euc", code], cwd=tmp_path, check=True)
    assert (tmp_path / "broken").read_text() == "pure (it ended without a report)\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for PATH in which no tool can set up a peer, each for another reason."""
    (tmp_path / "bin").mkdir()
    texts = {
        "mvn": "exit 3",
        "npm": "echo no registry >&2; exit 7",
        "cargo": "exec sleep 100",
        "go": "exit 1",
    }
    for name, text in {**texts, "javac": "exit 0"}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "bin"


def set_up(tools: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINIKAFKA_")}
    environment |= {
        "PATH": f"{tools}:{environment['PATH']}",
        "MINIKAFKA_INTEROP_CACHE": str(cache),
        "MINIKAFKA_TESTS_UNTIL": "1",  # over long ago: a second for each
        "PIP_NO_INDEX": "1",  # a second may be enough for a package
    }
    command = ["bash", SCRIPTS / "interop", "--setup"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.process
def test_peers_that_cannot_be_set_up_are_named_with_the_reason(tools: Path, tmp_path: Path) -> None:
    done = set_up(tools, tmp_path / "cache")
    assert (done.returncode, done.stdout) == (0, "")
    assert "left out: kafka-3.9: mvn could not set it up: it ended with 3 and said nothing (" in done.stderr
    assert "left out: kafkajs: npm could not set it up: no registry (" in done.stderr
    assert "left out: rskafka: cargo could not set it up: not done after 1 s; " in done.stderr


@pytest.mark.process
def test_a_peer_that_was_set_up_before_needs_no_tool(tools: Path, tmp_path: Path) -> None:
    made = 'for last; do :; done; mkdir -p "${last#-DoutputDirectory=}"; exit 0'
    (tools / "mvn").write_text(f"#!/bin/sh\n{made}\n")
    first = set_up(tools, tmp_path / "cache")
    (tools / "mvn").write_text("#!/bin/sh\nexit 1\n")
    second = set_up(tools, tmp_path / "cache")
    assert first.stdout == second.stdout
    assert f"export MINIKAFKA_KAFKA3_LIBS={tmp_path / 'cache' / 'kafka-3.9'}" in second.stdout.splitlines()


def run_of(directory: Path, most_again: int, test: str) -> tuple[int, list[str]]:
    """Run ``test`` by ``scripts/pytest_runs.sh`` in ``directory``; return what the count says of it."""
    (directory / "test_one.py").write_text(test)
    venv = directory / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(sys.executable)
    given = f"set -euo pipefail; say() {{ :; }}; reports=$PWD; . {SCRIPTS}/pytest_runs.sh"
    code = f"{given}; tests one venv {most_again}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(["bash", "-c", code], cwd=directory, env=environment, capture_output=True, check=True)
    return count(directory, 0, 0)


THE_SECOND_TIME = """
from pathlib import Path
def test_it():
    first = not Path("ran").exists()
    Path("ran").touch()
    assert not first
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("most_again", "last"), [(1, "1 passed, 0 failed"), (0, "0 passed, 1 failed")], ids=["few", "too many"]
)
def test_few_that_failed_are_run_once_more(tmp_path: Path, most_again: int, last: str) -> None:
    assert run_of(tmp_path, most_again, THE_SECOND_TIME)[1][-1] == last


@pytest.mark.process
def test_one_that_fails_twice_has_failed(tmp_path: Path) -> None:
    assert run_of(tmp_path, 1, "def test_it(): assert False") == (1, ["0 passed, 1 failed"])


@pytest.mark.process
def test_a_run_without_tests_is_told_as_broken(tmp_path: Path) -> None:
    run_of(tmp_path, 1, "")
    assert (tmp_path / "broken").read_text() == "one (pytest ended with 5)\n"


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


RUN_WHOLE = ("tests/interop/", "tests/spark/parity/")
"""Folders that scripts/interop runs."""


def test_scripts_interop_runs_every_test_that_needs_a_peer() -> None:
    root, script = SCRIPTS.parent, (SCRIPTS / "interop").read_text(encoding="utf-8")
    marked = {
        str(module.relative_to(root))
        for module in sorted((root / "tests").rglob("test_*.py"))
        if "pytest.mark.interop" in module.read_text(encoding="utf-8")
    }
    marked.discard("tests/test_gate.py")
    assert [name for name in sorted(marked) if not name.startswith(RUN_WHOLE) and name not in script] == []


def test_the_soak_has_the_peers_that_take_part_in_it() -> None:
    assert "scripts/interop --setup" in (SCRIPTS / "soak").read_text(encoding="utf-8")
