"""Run other projects' integration tests against an embedded broker; see docs/reference/compatibility.md.

    python -m tests.interop.suites RESULTS.json

franz-go's come with its module. librdkafka's are run where ``MINIKAFKA_LIBRDKAFKA_TESTS`` names the folder
``tests`` of its sources with a built ``test-runner`` in it (with TLS and RapidJSON more of them run); those
that call Kafka's shell scripts get 0.10.1.1's, from ``MINIKAFKA_KAFKA_LIBS``. Nothing here builds or keeps
their code.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from tests.interop.releases import JVM, KAFKA_0_10, java_environment

HERE = Path(__file__).parent
TEST_TIMEOUT_S = 180
SUITE_TIMEOUT_S = 1800
SERVED = "3.9.0.0"
"""The release whose APIs are served. Tests for newer brokers leave themselves out."""

NOT_SERVED = {
    "Txn|Transact": "transactions are not served yet",
    "848": "the groups of Kafka 4 are not served",
    "Share": "share groups are not served",
}
NEEDS_A_BROKER = re.compile(r"newTestClient|getSeedBrokers|tmpTopic|testClientOpts|newTestConsumer")

CALLS_SCRIPTS = re.compile(r"\btest_kafka_(topics|cmd)\(")

_SAYS_WHY = re.compile(r"\w+\.go:\d+: (?!.* completed in |deleting topic )")

WHY = {
    r"KAFKA_PATH": "wants Kafka's shell scripts: MINIKAFKA_KAFKA_LIBS names none of 0.10.1.1",
    r"kafka-acls": "wants an authorizer, and the broker of this run has none",
    r"OpenSSL not available": "this build of it has no TLS",
    r"ACLs Admin API": "topics, partitions and settings pass; its rules want an authorizer",
    r"max\.compaction\.lag": "wants max.compaction.lag.ms, which is not a setting here",
    r"_0\.9\.0\.0_\w+: Verification": "messages of format 0 stay so, and their time is 0 here, not -1",
    r"0098.*replication factor 3": "wants three brokers",
    r"result error: topic name '.*/": "this build of it puts the path of its source into a topic's name",
    r"init_transactions|TRANSACTION_TIMEOUT|fetch_aborted_msgs timed out": "transactions are not served yet",
}
"""The text of each known failure of librdkafka's tests -> the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: ``result`` is passed, failed or not run; ``why`` says more of the last two."""

    suite: str
    test: str
    result: str
    why: str = ""


def franz_go(bootstrap: str) -> Iterator[Outcome]:
    """Those tests of its client that need a broker."""
    suite = "franz-go"
    go = shutil.which("go")
    if go is None:
        yield Outcome(suite, "all", "not run", "go is not on PATH")
        return
    environment = os.environ | {
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "20000",
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
    }
    package = "github.com/twmb/franz-go/pkg/kgo"
    listed = subprocess.run(
        [go, "list", "-f", "{{.Dir}}", package],
        cwd=HERE / "go",
        env=environment,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        yield Outcome(suite, "all", "not run", listed.stderr.strip().splitlines()[-1])
        return
    wanted: list[str] = []
    for name in tests_with_a_broker(Path(listed.stdout.strip())):
        reason = not_served(name)
        if reason is None:
            wanted.append(name)
        else:
            yield Outcome(suite, name, "not run", reason)
    yield from go_test(go, environment, suite, package, f"^({'|'.join(wanted)})$")


def not_served(test: str) -> str | None:
    """Return the reason if a test of that name cannot pass."""
    return next((reason for part, reason in NOT_SERVED.items() if re.search(part, test)), None)


def tests_with_a_broker(directory: Path) -> list[str]:
    """Names of tests whose text makes a client for the broker."""
    texts = [path.read_text() for path in sorted(directory.glob("*_test.go"))]
    functions = [function for text in texts for function in text.split("\nfunc ")[1:]]
    return [
        function.partition("(")[0]
        for function in functions
        if function.startswith("Test") and NEEDS_A_BROKER.search(function)
    ]


def go_test(
    go: str, environment: Mapping[str, str], suite: str, package: str, chosen: str
) -> Iterator[Outcome]:
    """The outcome of each test and subtest that was chosen, as ``go test -json`` tells it."""
    command = [go, "test", "-json", "-count=1", f"-timeout={SUITE_TIMEOUT_S}s", f"-run={chosen}", package]
    done = subprocess.run(command, cwd=HERE / "go", env=environment, capture_output=True, text=True)
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
            result = {"pass": "passed", "fail": "failed", "skip": "not run"}[action]
            why = "" if action == "pass" else not_served(name) or " ".join(words[:1])
            yield Outcome(suite, name, result, why)
    if done.returncode not in {0, 1} or not said:
        yield Outcome(suite, "all", "failed", done.stderr.strip()[-500:])


def librdkafka(bootstrap: str, zookeeper: str) -> Iterator[Outcome]:
    """Each test in a process of its own, as one that fails may end the process."""
    suite = "librdkafka"
    folder = os.environ.get("MINIKAFKA_LIBRDKAFKA_TESTS")
    if not folder or not (Path(folder) / "test-runner").exists():
        reason = "MINIKAFKA_LIBRDKAFKA_TESTS does not name the tests of librdkafka with a built test-runner"
        yield Outcome(suite, "all", "not run", reason)
        return
    with tempfile.TemporaryDirectory() as directory:
        # They look for files beside their folder, and leave files in it.
        (Path(directory) / "src").symlink_to(Path(folder).parent / "src")
        config = Path(directory) / "tests" / "test.conf"
        config.parent.mkdir()
        config.write_text(f"metadata.broker.list={bootstrap}\n")
        scripts = kafka_scripts(Path(directory), zookeeper)
        for source in sorted(Path(folder).glob("0*.c*")):
            more = scripts if CALLS_SCRIPTS.search(source.read_text()) else {}
            outcome = librdkafka_test(suite, Path(folder) / "test-runner", source.stem, config, more)
            if outcome is not None:
                yield outcome


def kafka_scripts(directory: Path, zookeeper: str) -> dict[str, str]:
    """The environment of tests that call Kafka's shell scripts; empty where nobody gave its jars."""
    libs = os.environ.get(KAFKA_0_10.variable)
    if not libs:
        return {}
    script = directory / "bin" / "kafka-topics.sh"
    script.parent.mkdir()
    java = shlex.join([find_java().path, *JVM, "-cp", f"{libs}/*", "kafka.admin.TopicCommand"])
    script.write_text(f'#!/bin/sh\nexec {java} "$@"\n')
    script.chmod(0o755)
    return {"KAFKA_PATH": str(directory), "ZK_ADDRESS": zookeeper}


def librdkafka_test(
    suite: str, runner: Path, name: str, config: Path, more: Mapping[str, str]
) -> Outcome | None:
    """One test, with ``more`` in its environment; None when it needs no broker."""
    sources = runner.parent.parent
    environment = java_environment() | {
        "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(config),
        "TESTS": name[:4],
        **more,
    }
    command = [str(runner), "-L", "-Q", "-E", "-K", "-p1", "-V", SERVED]
    try:
        done = subprocess.run(
            command, cwd=config.parent, env=environment, capture_output=True, timeout=TEST_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome(suite, name, "failed", f"not done after {TEST_TIMEOUT_S} s")
    said = re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).decode(errors="replace"))
    failure = re.search(r"### Test .* ###\n(.*)", said)
    if failure is not None:
        known = next((meaning for text, meaning in WHY.items() if re.search(text, failure[1])), None)
        return Outcome(suite, name, "failed", known or failure[1].replace(str(runner.parent), ""))
    if re.search(r"= Test \S+ PASSED =", said):
        return Outcome(suite, name, "passed")
    skipped = re.findall(r"SKIPPING TEST: (.*)", said)
    if done.returncode and "ALL-TESTS" not in said:
        return Outcome(suite, name, "failed", " ".join(said.splitlines()[-1:]))
    if not skipped or any("negative test flags" in reason for reason in skipped):
        return None
    return Outcome(suite, name, "not run", skipped[-1])


def main(path: str) -> None:
    """Run both, and write what came of them."""
    with Cluster(config={"num.partitions": "4"}) as cluster:
        outcomes = [
            *franz_go(cluster.bootstrap_servers),
            *librdkafka(cluster.bootstrap_servers, cluster.zookeeper_connect),
        ]
    Path(path).write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
