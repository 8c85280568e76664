"""The commands and Python programs of the documents run as shown, and print what the page shows.

The Spark programs are run by ``tests/spark/test_documented_programs.py``.

    MINIKAFKA_REWRITE=1 python -m pytest tests/test_documented_commands.py

writes the output of this run into the pages. What differs from run to run (addresses, times, ids, widths of
columns) is not compared.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka.net.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(
    r"^```python\n((?:import|from) .*?)^```\n(?:^```\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
NOT_RUN = re.compile(r"minikafka (?:up|ps|stop)\b|kafka-configs\.sh|tail |group describe")
"""Commands of the test itself, of other programs, or whose output needs a second terminal."""
LONG_PLAN = (re.compile(r'"partitions":\[.*\]'), '"partitions":[…]')
VARYING = (
    LONG_PLAN,
    (re.compile(r"\b(?:0,2|2,0)\b"), "0,2"),  # a plan begins with any broker
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b1[78]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\s+"), " "),
)
FLIGHTS = (
    "minikafka topic create flights --partitions 4",
    (
        r"""printf 'AA:{"delay":12}\nUA:{"delay":-3}\nDL:{"delay":0}\n' | """
        "minikafka produce flights --key-separator :"
    ),
)
METRICS = "127.0.0.1:9308"
"""The address of the metrics in the documents."""
NEXT_FLIGHT = "echo 'WN:{\"delay\":7}' | minikafka produce flights --key-separator :"


@dataclass(frozen=True)
class Page:
    """Sections of a page whose commands run on one cluster, after the commands ``before``."""

    path: str
    sections: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    needs: str = "bash"
    """A program that its commands use."""


PAGES = (
    Page("README.md", ("Broker example",)),
    Page("docs/tutorials/first-cluster.md"),
    Page("docs/guides/topics-and-messages.md", ("How commands find a cluster", "Create, alter, delete")),
    Page(
        "docs/guides/topics-and-messages.md",
        ("Change settings while the cluster runs", "Quotas"),
        before=FLIGHTS[:1],
    ),
    Page("docs/guides/consumer-groups.md", ("Read with a group", "Reset offsets"), before=FLIGHTS),
    Page("docs/guides/python-clients.md", before=(*FLIGHTS, NEXT_FLIGHT)),
    Page("docs/guides/client-metrics.md", before=FLIGHTS),
    Page(
        "docs/guides/monitor.md",
        ("Turn it on", "Metrics of your own clients", "Probe a broker"),
        before=FLIGHTS,
        needs="curl",
    ),
    Page("docs/guides/test-with-pytest.md"),
    Page("docs/reference/cli-for-kafka-users.md", ("An hour in the shell",)),
    Page("docs/guides/inspect-logs.md", before=FLIGHTS),
    Page("docs/guides/logs.md", ("Read them", "Slow requests")),
    Page(
        "docs/guides/reassign.md",
        ("Move partitions",),
        ("--brokers", "3"),
        ("minikafka topic create orders --replica-assignment 1:0:2,2:1:0,0:2:1",),
    ),
    Page(
        "docs/guides/secure-a-cluster.md",
        ("Add users and rules", "Use it from Python", "Use ZooKeeper"),
        ("--secure",),
    ),
    Page(
        "docs/guides/access-control.md",
        ("Turn it on", "Add, list and remove rules", "Users and passwords"),
        ("--set", "authorizer.class.name=kafka.security.auth.SimpleAclAuthorizer"),
    ),
)


@contextmanager
def cluster(directory: Path, *options: str) -> Iterator[Callable[[str], str]]:
    """Start ``minikafka up`` in ``directory``; yield what runs a shell command against it."""
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    environment["COLUMNS"] = "200"
    environment["MINIKAFKA_CONFIG_HOME"] = str(directory / "config")
    command = [sys.executable, "-m", "minikafka", "up", "--port", "0", *options]
    metrics = f"127.0.0.1:{free_port()}"
    if "--brokers" not in options:  # which have the next ports
        command += ["--set", f"metrics.listeners=http://{metrics}"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, env=environment) as up:
        try:
            assert up.stdout is not None
            ready = up.stdout.readline()
            found = re.match(r"ready (\S+) zookeeper (\S+) cluster \S+$", ready)
            assert found is not None, ready
            environment["MINIKAFKA_BOOTSTRAP"], zookeeper = found.groups()

            def run(text: str) -> str:
                here = re.sub(r"(--zookeeper )127\.0\.0\.1:\d+", rf"\g<1>{zookeeper}", text)
                here = here.replace(METRICS, metrics)
                done = subprocess.run(
                    ["bash", "-c", here],
                    cwd=directory,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=60,
                )
                return done.stdout

            yield run
        finally:
            up.send_signal(signal.SIGTERM)


def sections_of(text: str, names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield where each named section of a page begins and ends; the whole page without names."""
    if not names:
        yield 0, len(text)
    for name in names:
        begin = text.index(f"\n## {name}\n")
        end = text.find("\n## ", begin + 1)
        yield begin, len(text) if end < 0 else end


def comparable(output: str) -> list[str]:
    """Return the lines of an output, sorted, as stderr may come before stdout, without what varies."""
    lines = output.splitlines()
    for pattern, name in VARYING:
        lines = [pattern.sub(name, line).strip() for line in lines]
    return sorted(lines)


def run_programs(text: str, run: Callable[[str], str]) -> list[str]:
    """Run the Python programs of ``text`` that end; return those that printed something else, or failed."""
    different = []
    for program, shown in PROGRAM.findall(text):
        address = 'os.environ["MINIKAFKA_BOOTSTRAP"]'
        here = "import os\n" + program.replace('"127.0.0.1:9092"', address).replace(
            '"127.0.0.1", 9092', f'"127.0.0.1", int({address}.rpartition(":")[2])'
        )
        if "127.0.0.1:" in here:  # it reads until somebody stops it
            continue
        output = run(f"{shlex.quote(sys.executable)} -c {shlex.quote(here)}; echo status $?")
        printed, _, status = output.rpartition("status ")
        if status != "0\n" or (shown and comparable(printed) != comparable(shown)):
            different.append(f"{program}{output}")
    return different


def run_blocks(text: str, run: Callable[[str], str]) -> tuple[str, list[str]]:
    """Run the commands of ``text``; return it with their output, and those that printed something else."""
    different = []

    def block(match: re.Match[str]) -> str:
        printed = []
        for entry in re.split(r"^\$ ", match[1], flags=re.MULTILINE)[1:]:
            command, _, shown = entry.partition("\n")
            output = shown if NOT_RUN.search(command) else run(command)
            if shown and comparable(output) != comparable(shown):
                different.append(f"$ {command}\n{output}")
            if "[…]" in shown:
                output = LONG_PLAN[0].sub(LONG_PLAN[1], output)
            printed.append(f"$ {command}\n{output if shown else ''}")
        return "```\n" + "".join(printed) + "```"

    return BLOCK.sub(block, text), different


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: "-".join([Path(page.path).stem, *page.sections[:1]]))
def test_commands_print_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    if shutil.which(page.needs) is None:
        pytest.skip(f"needs {page.needs}")
    path = ROOT / page.path
    text = path.read_text(encoding="utf-8")
    different: list[str] = []
    with cluster(tmp_path, *page.options) as run:
        for command in page.before:
            run(command)
        parts, done = [], 0
        for begin, end in sections_of(text, page.sections):
            new, others = run_blocks(text[begin:end], run)
            others += run_programs(text[begin:end], run)
            parts += [text[done:begin], new]
            different += others
            done = end
    if os.environ.get("MINIKAFKA_REWRITE"):
        path.write_text("".join([*parts, text[done:]]), encoding="utf-8")
    else:
        assert not different, "\n".join(different)


def test_other_output_is_found() -> None:
    text = "```\n$ minikafka topic list\nTOPIC\norders\n$ minikafka ps\nDATA DIR\n```\n"
    outputs = {"minikafka topic list": "TOPIC\npayments\n"}
    new, different = run_blocks(text, outputs.__getitem__)
    assert different == ["$ minikafka topic list\nTOPIC\npayments\n"]
    assert new == text.replace("orders", "payments")
    assert run_blocks(new, outputs.__getitem__) == (new, [])


def test_failed_program_is_found() -> None:
    text = "```python\nimport this\n```\n```\na\n```\n"
    assert run_programs(text, lambda command: "a\nstatus 0\n") == []
    assert len(run_programs(text, lambda command: "b\nstatus 0\n")) == 1
    assert len(run_programs(text, lambda command: "a\nstatus 1\n")) == 1
