"""Those tests of franz-go's client that need a broker; they come with its module."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tests.interop.suites.suite import FAILED, NOT_RUN, PASSED, Address, Outcome, Suite

MODULES = Path(__file__).parent.parent / "go"
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
TIMEOUT_S = 1800

NEEDS_A_BROKER = re.compile(r"newTestClient|getSeedBrokers|tmpTopic|testClientOpts|newTestConsumer")
_SAYS_WHY = re.compile(r"\w+\.go:\d+: (?!.* completed in |deleting topic )")

GO = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}


def missing() -> str | None:
    """The reason if the module is not here."""
    if shutil.which("go") is None:
        return "go is not on PATH"
    listed = package()
    return listed.stderr.strip().splitlines()[-1] if listed.returncode else None


def package() -> subprocess.CompletedProcess[str]:
    """Ask for the folder of the package."""
    return subprocess.run(
        ["go", "list", "-f", "{{.Dir}}", PACKAGE],
        cwd=MODULES,
        env={**os.environ, **GO},
        capture_output=True,
        text=True,
    )


def run(address: Address) -> Iterator[Outcome]:
    """Those tests that can pass, together."""
    wanted: list[str] = []
    for name in tests_with_a_broker(Path(package().stdout.strip())):
        reason = address.reason_to_leave_out(name)
        if reason is None:
            wanted.append(name)
        else:
            yield Outcome(name, NOT_RUN, reason)
    environment = {
        **os.environ,
        **GO,
        "KGO_SEEDS": address.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "20000",
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
    }
    for outcome in go_test(environment, f"^({'|'.join(wanted)})$"):
        reason = address.reason_to_leave_out(outcome.test)
        yield replace(outcome, why=reason) if reason and outcome.result != PASSED else outcome


def tests_with_a_broker(directory: Path) -> list[str]:
    """Names of tests whose text makes a client for the broker."""
    texts = [path.read_text() for path in sorted(directory.glob("*_test.go"))]
    functions = [function for text in texts for function in text.split("\nfunc ")[1:]]
    return [
        function.partition("(")[0]
        for function in functions
        if function.startswith("Test") and NEEDS_A_BROKER.search(function)
    ]


def go_test(environment: Mapping[str, str], chosen: str) -> Iterator[Outcome]:
    """The outcome of each test and subtest that was chosen, as ``go test -json`` tells it."""
    command = ["go", "test", "-json", "-count=1", f"-timeout={TIMEOUT_S}s", f"-run={chosen}", PACKAGE]
    done = subprocess.run(command, cwd=MODULES, env=environment, capture_output=True, text=True)
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        name, action = event.get("Test"), event["Action"]
        if name is None:
            continue
        if action == "output":
            said.setdefault(name, []).append(event["Output"].strip())
        elif action in {"pass", "fail", "skip"}:
            words = [text for text in said.get(name, ()) if _SAYS_WHY.match(text)]
            result = {"pass": PASSED, "fail": FAILED, "skip": NOT_RUN}[action]
            why = "" if action == "pass" else " ".join(words[:1])
            yield Outcome(name, result, why)
    if done.returncode not in {0, 1} or not said:
        yield Outcome("all", FAILED, done.stderr.strip()[-500:])


SUITE = Suite("franz-go", missing, run, {"num.partitions": "4"})
