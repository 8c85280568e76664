"""Writes docs/reference/compatibility.md from the results of the clients' tests.

    python -m tests.interop.compatibility CLIENTS.xml SUITES.json docs/reference/compatibility.md

CLIENTS.xml: pytest's report of ``test_clients.py``, ``test_secured_listeners.py`` and
``test_spark_kafka_format.py``, whose tests put down ``client``, ``version`` and ``feature``, and of those of
our clients on secured brokers of Apache Kafka, which put down ``broker`` as well. SUITES.json: what
``tests.interop.suites`` wrote.
"""

from __future__ import annotations

import datetime
import json
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as distribution_version
from pathlib import Path

import pytest

import minikafka
from tests.interop.clients import CLIENTS
from tests.interop.releases import Release

NOT_IN_CLIENT = "not in this client: "
SPARK = "Spark's kafka format"
PRODUCER_AND_CONSUMER, COMMANDS, SPARK_SOURCE = OURS = ("producer and consumer", "commands", "Spark source")
"""Our clients that tests run on secured brokers of Apache Kafka."""

TEXT = """\
# Compatibility

Written by `scripts/compatibility` on {date}, from a run of minikafka {version} (Python {python}, {system}).

## Clients

Each client, with its own defaults, does each of these against one broker, and what comes is compared byte
for byte (`test_clients.py`, `test_secured_listeners.py`, `test_spark_kafka_format.py`). A dash is no pass:
the note says why.
{numbers}.

{table}

## Our clients on secured brokers of Apache Kafka

Each of our clients writes and reads on each listener of real brokers: with TLS, with a certificate, and with
each mechanism; 0.10.1.1 has PLAIN alone. GSSAPI is with keytabs and a KDC of MIT Kerberos, on 3.9.1 alone.
For each mistake, commands and the Spark source (PySpark {pyspark}) say in one line, within five seconds,
which it is and what to set (`test_clients_against_secured_kafka.py`, `test_kerberos.py`,
`tests/spark/test_secured_kafka.py`).
{numbers_of_ours}.

{table_of_ours}

## Other projects' own tests

Those of franz-go and librdkafka that need a broker (`suites.py`). Each of librdkafka's is run by itself, in
its quick mode.

{suites}"""


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one feature with one client: passed, failed, not run, or not in this client."""

    client: str
    version: str
    feature: str
    result: str
    why: str = ""
    broker: str = ""
    """The release of Apache Kafka, if the client is ours."""


def record_ours(request: pytest.FixtureRequest, client: str, release: Release | None, feature: str) -> None:
    """Record that a test shows a feature of a client of ours on a broker of Apache Kafka."""
    assert release is not None
    request.node.user_properties.extend(
        [("client", client), ("broker", release.version), ("feature", feature)]
    )


def cells_of(path: Path) -> list[Cell]:
    """A cell for each test of the report."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        told = {element.get("name"): element.get("value") or "" for element in case.iter("property")}
        if "client" not in told:
            continue
        result, why = "passed", ""
        skipped = case.find("skipped")
        failed = next(
            (element for element in (case.find("failure"), case.find("error")) if element is not None), None
        )
        if skipped is not None:
            why = skipped.get("message") or ""
            result = "not in this client" if why.startswith(NOT_IN_CLIENT) else "not run"
            why = why.removeprefix(NOT_IN_CLIENT)
        if failed is not None:
            result, why = "failed", (failed.get("message") or "").splitlines()[0]
        version, broker = told.get("version", ""), told.get("broker", "")
        found.append(Cell(told["client"], version, told["feature"], result, why, broker))
    return found


def table(cells: Sequence[Cell]) -> str:
    """Features by clients, ours for each broker; what did not pass refers to a note."""
    order = [*OURS, *(str(client) for client in CLIENTS), SPARK]
    columns = sorted(
        {(cell.broker, cell.client) for cell in cells},
        key=lambda column: ([int(part) for part in column[0].split(".") if part], order.index(column[1])),
    )
    versions = {cell.client: cell.version for cell in cells if cell.version}
    at = {(cell.feature, cell.broker, cell.client): cell for cell in cells}
    features = sorted({cell.feature for cell in cells})
    notes: dict[str, int] = {}

    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        if cell.result == "passed":
            return "pass"
        number = notes.setdefault(f"{cell.result}: {cell.why}", len(notes) + 1)
        return f"{'FAIL' if cell.result == 'failed' else '–'} [{number}]"

    heads = [
        f"{broker}: {client}" if broker else head(client, versions.get(client, ""))
        for broker, client in columns
    ]
    lines = [row(["", *heads]), row(["---"] * (len(heads) + 1))]
    lines += [
        row([feature, *(shown(at.get((feature, *column))) for column in columns)]) for feature in features
    ]
    remarks = [f"- [{number}] {text}" for text, number in notes.items()]
    return "\n".join([*lines, "", *remarks] if remarks else lines)


def head(client: str, version: str) -> str:
    """A client and its version, where that is not in the name already."""
    name, _, release = client.rpartition(" ")
    return f"{name} {version}" if version.startswith(f"{release}.") else f"{client} {version}".strip()


def row(fields: Iterable[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"


def suite_text(suite: str, outcomes: Sequence[Mapping[str, str]]) -> str:
    """One suite: the numbers, what did not pass and why, and the names of what did."""
    counts = Counter(outcome["result"] for outcome in outcomes)
    numbers = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "not run"))
    lines = [f"### {suite}: {numbers}", ""]
    others = [outcome for outcome in outcomes if outcome["result"] != "passed"]
    if others:
        lines += [row(["test", "result", "why"]), row(["---"] * 3)]
        lines += [
            row(
                outcome[name] if name != "test" else f"`{outcome[name]}`"
                for name in ("test", "result", "why")
            )
            for outcome in others
        ]
        lines.append("")
    passed = ", ".join(f"`{outcome['test']}`" for outcome in outcomes if outcome["result"] == "passed")
    return "\n".join([*lines, *([f"Passed: {passed}.", ""] if passed else [])])


def suite_before(suite: str, before: str, why: str) -> str | None:
    """Return the former results of a suite that cannot be run now, with their date, from ``before``."""
    found = re.search(rf"^### {re.escape(suite)}: [1-9].*?(?=^### |\Z)", before, re.DOTALL | re.MULTILINE)
    date = re.search(r"^Written by .* on (\S+),", before, re.MULTILINE)
    if found is None or date is None:
        return None
    heading, _, rest = found[0].partition("\n\n")
    of_before = re.match(r"Of the run of ([\d-]+)[^\n]*\n\n", rest)
    day, rest = (date[1], rest) if of_before is None else (of_before[1], rest[of_before.end() :])
    return f"{heading}\n\nOf the run of {day}, with what was served then; not run since: {why}.\n\n{rest}"


def numbers(cells: Iterable[Cell]) -> str:
    """The number of cells by result."""
    counts = Counter(cell.result for cell in cells)
    return ", ".join(
        f"{counts[result]} {result}" for result in ("passed", "failed", "not run", "not in this client")
    )


def document(cells: Sequence[Cell], outcomes: Sequence[Mapping[str, str]], before: str = "") -> str:
    """The whole text. Suites that are not on this machine are as ``before``, the text of the last run."""
    ours = [cell for cell in cells if cell.broker]
    others = [cell for cell in cells if not cell.broker]
    suites = sorted({outcome["suite"] for outcome in outcomes})
    return TEXT.format(
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        version=minikafka.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        pyspark=distribution_version("pyspark"),
        numbers=numbers(others),
        table=table(others),
        numbers_of_ours=numbers(ours),
        table_of_ours=table(ours),
        suites="\n".join(
            section(suite, [outcome for outcome in outcomes if outcome["suite"] == suite], before)
            for suite in suites
        ),
    )


def section(suite: str, outcomes: Sequence[Mapping[str, str]], before: str) -> str:
    """One suite as it was run now, or the last time."""
    whole = (
        outcome["why"] for outcome in outcomes if outcome["test"] == "all" and outcome["result"] == "not run"
    )
    missing = next(whole, None)
    kept = None if missing is None else suite_before(suite, before, missing)
    return kept or suite_text(suite, outcomes)


def main(clients: str, suites: str, to: str) -> None:
    """Write it."""
    before = Path(to).read_text() if Path(to).exists() else ""
    Path(to).write_text(document(cells_of(Path(clients)), json.loads(Path(suites).read_text()), before))


if __name__ == "__main__":
    main(*sys.argv[1:])
