"""KafkaJS's specs of brokers, administration, producers and consumers.

They are run where ``MINIKAFKA_KAFKAJS_TESTS`` names a folder with its sources and the packages that
``npm install`` puts there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop.suites.suite import (
    FAILED,
    MINIKAFKA,
    NOT_RUN,
    PASSED,
    Address,
    Outcome,
    Suite,
    missing,
    plain_login,
)
from tests.support.tls import HOSTS, authority, inline_keys, inline_trust

VARIABLE = "MINIKAFKA_KAFKAJS_TESTS"
SOURCES = "a folder with the sources of KafkaJS and its node_modules"
TIMEOUT_S = 2400
WANTED = "src/(broker|admin|producer|consumer)/__tests__"
NEWEST = "2.4"
"""The newest release that its specs know of."""

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "2",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    **plain_login("sasl_ssl", test="testtest", bob="bobbob", alice="alicealice"),
    **inline_keys(authority().issue_cert(*HOSTS, common_name="broker")),
    **inline_trust(authority()),
}

KNOWN = {
    "not currently assigned to its transactional id": (
        "it wants the offsets of a producer that nobody knows to be taken; the producer is verified first"
    ),
    "request being malformed": "it alters a setting that brokers do not have, which is refused here",
    "request_timeout": "it wants a response to take more than a millisecond",
    "out of order sequence number": "it encodes a batch again with another time, which no retry has here",
    "producer metadata": "it encodes a batch again with another time, which no retry has here",
}
"""Texts of failures here -> the reason."""

DOCKER = """\
#!/bin/sh
[ "$1" = ps ] && echo kafka1 && exit
shift 2
exec "$@"
"""
"""Their scripts call Kafka's tools in a container."""
TOPICS = """\
#!/bin/sh
shift 2
exec {scripts}/bin/kafka-topics.sh --bootstrap-server {bootstrap} "$@"
"""
"""The tool that they call has its first option, ``--zookeeper``, no more."""


def run(address: Address) -> Iterator[Outcome]:
    """All of them, in one run of jest."""
    folder = os.environ[VARIABLE]
    with tempfile.TemporaryDirectory() as directory:
        write_programs(Path(directory), address)
        report = Path(directory) / "report.json"
        environment = {
            **os.environ,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "KAFKA_VERSION": NEWEST,
            "NODE_ENV": "test",
            "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1",
        }
        command = ["node_modules/.bin/jest", "--ci", "--no-watchman", "--forceExit", "--maxWorkers=1"]
        command += ["--reporters=default", "--json", f"--outputFile={report}", "--testPathPattern", WANTED]
        subprocess.run(
            command, cwd=folder, env=environment, timeout=TIMEOUT_S, stdout=sys.stderr, check=False
        )
        yield from outcomes_of(json.loads(report.read_text()), address.kind)


def write_programs(directory: Path, address: Address) -> None:
    """Write stand-ins for the programs that the specs' scripts call."""
    topics = TOPICS.format(scripts=address.scripts, bootstrap=address.bootstrap)
    for name, text in {"docker": DOCKER, "kafka-topics": topics}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)


def outcomes_of(report: Mapping[str, Any], kind: str) -> Iterator[Outcome]:
    """The outcome of each test of jest's report; those of one name are numbered."""
    seen: Counter[str] = Counter()
    for spec in sorted(report["testResults"], key=lambda spec: str(spec["name"])):
        file = spec["name"].rpartition("/src/")[2].replace("/__tests__", "").removesuffix(".spec.js")
        for test in spec["assertionResults"]:
            name = f"{file}: {test['fullName']}"
            seen[name] += 1
            name += f" ({seen[name]})" if seen[name] > 1 else ""
            result = {"passed": PASSED, "failed": FAILED}.get(test["status"], NOT_RUN)
            yield Outcome(name, result, why(test["failureMessages"], kind))
        if not spec["assertionResults"]:
            yield Outcome(file, FAILED, why([spec["message"]], kind))


def why(messages: list[str], kind: str) -> str:
    """Return the reason of a failure: a known one, or its first line."""
    if not messages:
        return ""
    known = KNOWN if kind == MINIKAFKA else {}
    first = messages[0].strip().splitlines()[0]
    return next((reason for text, reason in known.items() if text in messages[0]), first)


SUITE = Suite(
    "kafkajs",
    partial(missing, VARIABLE, "node_modules/.bin/jest", SOURCES),
    run,
    SETTINGS,
    listeners={
        number: (
            f"PLAINTEXT://localhost:{9092 + 3 * number}",
            f"SSL://localhost:{9093 + 3 * number}",
            f"SASL_SSL://localhost:{9094 + 3 * number}",
        )
        for number in range(3)
    },
    users={"testscram": ("testtestscram=256", "testtestscram=512")},
)
