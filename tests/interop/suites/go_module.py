"""Tests that come with a Go module: which of them need a broker, and what comes of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.interop.suites.suite import FAILED, NOT_RUN, PASSED, Outcome

MODULES = Path(__file__).parent.parent / "go"
TIMEOUT_S = 1800

_GO = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
_PROGRESS = r".* completed in |deleting topic |waitForTopic|retrying |createTopic\("
_SAYS_WHY = re.compile(rf"\w+\.go:\d+: (?!{_PROGRESS})")


def missing(package: str) -> str | None:
    """The reason if the tests of ``package`` cannot be built."""
    if shutil.which("go") is None:
        return "go is not on PATH"
    built = _go("test", "-c", "-o", os.devnull, package)
    return (built.stderr.strip().splitlines() or ["they do not build"])[-1] if built.returncode else None


def tests_with_a_broker(package: str, needs_a_broker: re.Pattern[str]) -> list[str]:
    """Names of tests whose text has that pattern."""
    directory = Path(_go("list", "-f", "{{.Dir}}", package).stdout.strip())
    texts = [path.read_text() for path in sorted(directory.glob("*_test.go"))]
    functions = [function for text in texts for function in text.split("\nfunc ")[1:]]
    return [
        function.partition("(")[0]
        for function in functions
        if function.startswith("Test") and needs_a_broker.search(function)
    ]


def go_test(
    package: str, chosen: list[str], environment: Mapping[str, str], *flags: str
) -> Iterator[Outcome]:
    """The outcome of each test and subtest that was chosen, as ``go test -json`` tells it."""
    flags = ("-json", "-count=1", f"-timeout={TIMEOUT_S}s", f"-run=^({'|'.join(chosen)})$", *flags)
    done = _go("test", *flags, package, environment=environment)
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


def _go(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *words],
        cwd=MODULES,
        env={**os.environ, **_GO, **(environment or {})},
        capture_output=True,
        text=True,
    )
