"""The integration tests of kafka-python.

They are run where ``MINIKAFKA_KAFKA_PYTHON`` names a folder with its sources: ``kafka`` and ``test`` of one
release. Its source distribution lacks some of the tests' helpers; the repository has them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.interop.suites.suite import FAILED, NOT_RUN, PASSED, VERSION, Address, Outcome, Suite, missing

VARIABLE = "MINIKAFKA_KAFKA_PYTHON"
SOURCES = "a folder with the sources of kafka-python and its tests"
TIMEOUT_S = 1800

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "4",
}

KNOWN = {
    "test_admin_integration::test_describe_configs_broker_resource_returns_configs": (
        "advertised.listeners, which it looks at, cannot be changed while a broker runs here"
    )
}
"""Tests that fail -> the reason."""


def run(address: Address) -> Iterator[Outcome]:
    """All of them in one run of pytest, but those of TLS, which start a broker of their own."""
    sources = os.environ[VARIABLE]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        command += ["--timeout", "120", "--timeout-method", "signal", "--junitxml", str(report)]
        command += ["test/integration", "--ignore", "test/integration/test_ssl_integration.py"]
        environment = {
            **os.environ,
            "PYTHONPATH": sources,
            "PYTHONDONTWRITEBYTECODE": "1",
            "KAFKA_VERSION": VERSION,
            "KAFKA_URI": f"kafka://{address.bootstrap}",
            "KAFKA_ROOT": directory,  # it must exist; a broker that runs elsewhere needs nothing of it
        }
        subprocess.run(command, cwd=sources, env=environment, timeout=TIMEOUT_S, stdout=sys.stderr)
        for outcome in outcomes_of(report):
            reason = address.reason_to_leave_out(outcome.test)
            left_out = reason is not None and outcome.result != PASSED
            yield Outcome(outcome.test, NOT_RUN, reason or "") if left_out else outcome


def outcomes_of(report: Path) -> Iterator[Outcome]:
    """The outcome of each test of pytest's report."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module = (case.get("classname") or "").rpartition(".")[2]
        name = f"{module}::{case.get('name')}"
        faults = [fault for kind in ("failure", "error") for fault in case.iter(kind)]
        skipped = case.find("skipped")
        if faults:
            said = ((faults[0].get("message") or "").splitlines() or [""])[0]
            yield Outcome(name, FAILED, KNOWN.get(name, said))
        elif skipped is not None:
            yield Outcome(name, NOT_RUN, skipped.get("message") or "")
        else:
            yield Outcome(name, PASSED)


SUITE = Suite("kafka-python", partial(missing, VARIABLE, "test/integration", SOURCES), run, SETTINGS)
