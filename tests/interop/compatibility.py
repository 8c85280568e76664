"""Writes docs/reference/compatibility.md from the results of the clients' tests.

    python -m tests.interop.compatibility CLIENTS.xml docs/reference/compatibility.md

CLIENTS.xml: pytest's report of ``test_clients.py``, ``test_secured_listeners.py``,
``test_spark_kafka_format.py``, ``test_frameworks.py``, ``test_connect.py`` and ``test_schema_registry.py``,
whose tests put down ``client``, ``version`` and ``feature``, and of those of our clients on secured brokers
of Apache Kafka, which put down ``broker`` as well. What the page says of other projects' own tests stays:
``tests.interop.suites.page`` writes it.
"""

from __future__ import annotations

import datetime
import platform
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version as distribution_version
from pathlib import Path

import pytest

import minikafka
from tests.interop.clients import CLIENTS
from tests.interop.releases import Release
from tests.interop.suites.page import HEADING, row

NOT_IN_CLIENT = "not in this client: "
SPARK = "Spark's kafka format"
PRODUCER_AND_CONSUMER, COMMANDS, SPARK_SOURCE = OURS = ("producer and consumer", "commands", "Spark source")
"""Our clients that tests run on secured brokers of Apache Kafka."""

FRAMEWORKS = ("Kafka Streams", "Kafka Connect", "MirrorMaker", "Flink", "Debezium", "Spring for Apache Kafka")
REGISTRIES = APICURIO, CONFLUENT = ("Apicurio Registry", "Confluent's serializers")
_PROGRAMS = (*FRAMEWORKS, *REGISTRIES)
"""Programs whose tests differ, in the order of their tables."""

TEXT = """\
# Compatibility

Written by `scripts/compatibility` on {date}, from a run of minikafka {version} (Python {python}, {system}).

## Clients

Each client, with its own defaults, does each of these against one broker, and what comes is compared byte
for byte (`test_clients.py`, `test_secured_listeners.py`, `test_spark_kafka_format.py`). A dash is no pass:
the note says why.
{numbers}.

{table}

## Frameworks

Each framework, with its own defaults, makes its topics on our brokers, and what comes out is compared record
by record (`test_frameworks.py`, `test_connect.py`). Kafka Streams is run with exactly-once too, while brokers
and the program itself are killed.
{numbers_of_frameworks}.

{table_of_frameworks}

## Schema registries

The Spark source's formats with a real schema registry, and with the serializers of Confluent's client for
Python, by that registry (`test_schema_registry.py`).
{numbers_of_registries}.

{table_of_registries}

## Our clients on secured brokers of Apache Kafka

Each of our clients writes and reads on each listener of real brokers: with TLS, with a certificate, and with
each mechanism; 0.10.1.1 has PLAIN alone. GSSAPI is with keytabs and a KDC of MIT Kerberos, on 3.9.1 alone.
For each mistake, commands and the Spark source (PySpark {pyspark}) say in one line, within five seconds,
which it is and what to set (`test_clients_against_secured_kafka.py`, `test_kerberos.py`,
`tests/spark/test_secured_kafka.py`).
{numbers_of_ours}.

{table_of_ours}

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


def program_table(cells: Sequence[Cell]) -> str:
    """A row for each feature of each framework or registry, with the reason why it did not pass.

    Tests of one feature that had the same result share a row.
    """
    order = sorted(cells, key=lambda cell: (_PROGRAMS.index(cell.client), cell.version, cell.feature))
    rows = (
        (
            head(cell.client, cell.version),
            cell.feature,
            f"{cell.result}: {cell.why}" if cell.why else cell.result,
        )
        for cell in order
    )
    return "\n".join(map(row, [("program", "does", "result"), ("---",) * 3, *dict.fromkeys(rows)]))


def head(client: str, version: str) -> str:
    """A client and its version, where that is not in the name already."""
    name, _, release = client.rpartition(" ")
    return f"{name} {version}" if version.startswith(f"{release}.") else f"{client} {version}".strip()


def numbers(cells: Iterable[Cell]) -> str:
    """The number of cells by result."""
    counts = Counter(cell.result for cell in cells)
    return ", ".join(
        f"{counts[result]} {result}" for result in ("passed", "failed", "not run", "not in this client")
    )


def document(cells: Sequence[Cell], before: str = "") -> str:
    """The whole text. The part about other projects' tests is as ``before``, in the text of the last run."""
    ours = [cell for cell in cells if cell.broker]
    frameworks = [cell for cell in cells if cell.client in FRAMEWORKS]
    registries = [cell for cell in cells if cell.client in REGISTRIES]
    others = [cell for cell in cells if not cell.broker and cell.client not in _PROGRAMS]
    _, heading, suites = before.partition(HEADING)
    return TEXT.format(
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        version=minikafka.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        pyspark=distribution_version("pyspark"),
        numbers=numbers(others),
        table=table(others),
        numbers_of_frameworks=numbers(frameworks),
        table_of_frameworks=program_table(frameworks),
        numbers_of_registries=numbers(registries),
        table_of_registries=program_table(registries),
        numbers_of_ours=numbers(ours),
        table_of_ours=table(ours),
        suites=heading + suites,
    )


def main(clients: str, page: str) -> None:
    """Write it."""
    path = Path(page)
    path.write_text(document(cells_of(Path(clients)), path.read_text() if path.exists() else ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
