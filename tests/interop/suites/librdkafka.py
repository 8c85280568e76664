"""The tests of librdkafka.

They are run where ``MINIKAFKA_LIBRDKAFKA_TESTS`` names the folder ``tests`` of its sources with a built
``test-runner`` in it (with TLS and RapidJSON more of them run; 0098 needs the classes of its folder ``java``
too). ``TESTS=0001,0002`` chooses some; ``MINIKAFKA_SUITE_OUTPUT`` names a folder that gets the output of
each.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.interop.releases import java_environment
from tests.interop.suites.suite import FAILED, NOT_RUN, PASSED, VERSION, Address, Outcome, Suite, missing

VARIABLE = "MINIKAFKA_LIBRDKAFKA_TESTS"
SOURCES = "the tests of librdkafka with a built test-runner"
TEST_TIMEOUT_S = 240

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "num.partitions": "4",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""The settings of brokers in its own runs."""

KNOWN = {
    "0081-admin": (
        "its other parts pass, each by itself; this one changes sasl.kerberos.min.time.before.relogin, and "
        "brokers here have no Kerberos"
    ),
    "0052-msg_timestamps": (
        "messages of format 0 are stored as sent here, and it takes their time for 0; Kafka 3.9 converts "
        "them to format 2 with the time -1"
    ),
}
"""Tests that fail -> the reason."""

_SAYS_WHY = re.compile(r"### Test .* ###\n(.*)")


def run(address: Address) -> Iterator[Outcome]:
    """Each test in a process of its own, as one that fails may end the process."""
    folder = Path(os.environ[VARIABLE])
    chosen = os.environ.get("TESTS", "").split(",")
    with tempfile.TemporaryDirectory() as directory:
        # They look for files beside their folder, and leave files in it.
        for name in ("src", "src-cpp"):
            (Path(directory) / name).symlink_to(folder.parent / name)
        work = Path(directory) / "tests"
        work.mkdir()
        for name in ("fixtures", "java"):
            (work / name).symlink_to(folder / name)
        config = work / "test.conf"
        config.write_text(f"bootstrap.servers={address.bootstrap}\ntest.timeout.multiplier=2\n")
        environment = java_environment() | {
            "LD_LIBRARY_PATH": f"{folder.parent / 'src'}:{folder.parent / 'src-cpp'}",
            "RDKAFKA_TEST_CONF": str(config),
            "KAFKA_PATH": address.scripts,
            "BROKERS": address.bootstrap,
            "ZK_ADDRESS": address.zookeeper,
        }
        for source in sorted(folder.glob("0*.c*")):
            if chosen == [""] or source.stem[:4] in chosen:
                reason = address.reason_to_leave_out(source.stem)
                if reason is not None:
                    yield Outcome(source.stem, NOT_RUN, reason)
                    continue
                outcome = one_test(folder / "test-runner", source.stem, environment, work)
                if outcome is not None:
                    yield outcome


def one_test(runner: Path, name: str, environment: Mapping[str, str], work: Path) -> Outcome | None:
    """One test; None when it needs no broker."""
    command = [str(runner), "-L", "-Q", "-E", "-K", "-p1", "-V", f"{VERSION}.0"]
    with open(work.parent / "output", "w+b") as output:
        try:
            done = subprocess.run(
                command,
                cwd=work,
                env={**environment, "TESTS": name[:4]},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TEST_TIMEOUT_S,
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        said = re.sub(r"\x1b\[[0-9;]*m", "", output.read().decode(errors="replace"))
    kept = os.environ.get("MINIKAFKA_SUITE_OUTPUT")
    if kept:
        (Path(kept) / f"{name}.txt").write_text(said)
    return outcome_of(name, status, said, str(runner.parent))


def outcome_of(name: str, status: int | None, said: str, folder: str) -> Outcome | None:
    """Judge a test by its output and its exit status, which is None if it did not end."""
    if status is None:
        return Outcome(name, FAILED, f"not done after {TEST_TIMEOUT_S} s")
    failure = _SAYS_WHY.search(said)
    if failure is not None:
        return Outcome(name, FAILED, KNOWN.get(name, failure[1].replace(f"{folder}/", "")))
    if re.search(r"= Test \S+ PASSED =", said):
        return Outcome(name, PASSED)
    if status and "ALL-TESTS" not in said:
        return Outcome(name, FAILED, " ".join(said.splitlines()[-1:]))
    skipped = re.findall(r"SKIPPING TEST: (.*)", said)
    if not skipped or any("negative test flags" in reason for reason in skipped):
        return None
    return Outcome(name, NOT_RUN, skipped[-1])


SUITE = Suite("librdkafka", partial(missing, VARIABLE, "test-runner", SOURCES), run, SETTINGS, brokers=3)
