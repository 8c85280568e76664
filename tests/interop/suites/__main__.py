"""Run suites, and write their outcomes into a file; see docs/reference/compatibility.md.

    python -m tests.interop.suites RESULTS.json [SUITE | BROKER]…

SUITE is one of ``SUITES``, BROKER one of ``BROKERS``; none of either means all. Outcomes of others that are
in RESULTS.json stay there. A suite that cannot be run here is named with the reason.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.interop.releases import KAFKA_3_9
from tests.interop.suites import franz_go, kafka_go, kafka_python, kafkajs, librdkafka
from tests.interop.suites.brokers import running
from tests.interop.suites.suite import BROKERS, Suite

SUITES: tuple[Suite, ...] = (
    franz_go.SUITE,
    kafka_go.SUITE,
    kafka_python.SUITE,
    kafkajs.SUITE,
    librdkafka.SUITE,
)
INSIDE = "MINIKAFKA_SUITES_INSIDE"
"""Set in a process whose network is a namespace of its own."""


def main(path: str, *chosen: str) -> None:
    """Run the suites that were chosen."""
    names = [suite.name for suite in SUITES]
    unknown = set(chosen) - {*names, *BROKERS}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; suites: {names}, brokers: {list(BROKERS)}")
    suites = [suite for suite in SUITES if suite.name in chosen] or SUITES
    kinds = [kind for kind in BROKERS if kind in chosen] or BROKERS
    for suite in suites:
        missing = suite.missing() or without_kafka() or without_namespaces(suite)
        if missing is not None:
            say(f"{suite.name}: not run: {missing}")
            continue
        for kind in kinds:
            if suite.listeners and INSIDE not in os.environ:
                run_inside(path, suite.name, kind)
            else:
                keep(Path(path), suite.name, kind, run(suite, kind))


def say(text: str) -> None:
    """Tell of progress on stderr."""
    sys.stderr.write(f"{text}\n")


def without_kafka() -> str | None:
    """The reason if there are no jars of Apache Kafka."""
    folder = os.environ.get(KAFKA_3_9.variable)
    return None if folder else f"{KAFKA_3_9.variable} names no jars of Apache Kafka {KAFKA_3_9.number}"


def without_namespaces(suite: Suite) -> str | None:
    """The reason if the suite needs a network namespace, and this machine gives none."""
    if not suite.listeners or subprocess.run(in_namespace("true"), capture_output=True).returncode == 0:
        return None
    return "its brokers need a network namespace: unshare or ip is not there, or not allowed"


def in_namespace(*command: str) -> list[str]:
    """Return the command that runs ``command`` where no port is in use."""
    script = 'ip link set lo up && exec "$@"'
    return ["unshare", "--map-root-user", "--net", "sh", "-c", script, "-", *command]


def run_inside(*arguments: str) -> None:
    """Run this program in a network namespace of its own."""
    command = in_namespace(sys.executable, "-m", "tests.interop.suites", *arguments)
    subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=True)


def run(suite: Suite, kind: str) -> list[dict[str, str]]:
    """The outcome of each test on brokers of that kind."""
    outcomes = []
    with tempfile.TemporaryDirectory() as directory, running(kind, suite, Path(directory)) as address:
        began = time.monotonic()
        for outcome in suite.run(address):
            outcomes.append(asdict(outcome))
            seconds = time.monotonic() - began
            say(f"{seconds:5.0f} s, {suite.name}, {kind}: {outcome.result}: {outcome.test} {outcome.why}")
    return outcomes


def keep(path: Path, suite: str, kind: str, outcomes: list[dict[str, str]]) -> None:
    """Put the outcomes of one suite on one kind of brokers into the file, in place of former ones."""
    results = json.loads(path.read_text()) if path.exists() else {}
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    results.setdefault(suite, {})[kind] = {"date": date, "outcomes": outcomes}
    path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
