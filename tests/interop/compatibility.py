"""Writes docs/reference/compatibility.md from the results of the clients' tests.

    python -m tests.interop.compatibility CLIENTS.xml SUITES.json docs/reference/compatibility.md

CLIENTS.xml: pytest's report of ``test_clients.py``, ``test_secured_listeners.py`` and
``test_spark_kafka_format.py``, whose tests put down ``client``, ``version`` and ``feature``. SUITES.json:
what ``tests.interop.suites`` wrote.
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
from pathlib import Path

import minikafka
from tests.interop.clients import CLIENTS

NOT_IN_CLIENT = "not in this client: "
SPARK = "Spark's kafka format"

TEXT = """\
# Compatibility

Written by `scripts/compatibility` on {date}, from a run of minikafka {version} (Python {python}, {system}).

## Clients

Each client, with its own defaults, does each of these against one broker, and what comes is compared byte
for byte (`test_clients.py`, `test_secured_listeners.py`, `test_spark_kafka_format.py`). A dash is no pass:
the note says why.
{numbers}.

{table}

## minikafka's clients on Apache Kafka

Producers, consumers in groups, the reference texts' clients and the commands of minikafka write and read on
secured listeners of Apache Kafka. `scripts/interop` runs these (`test_clients_against_secured_kafka.py`,
`test_kerberos.py`):

| | Kafka 3.9.1 | Kafka 0.10.1.1 |
| --- | --- | --- |
| SSL | pass, also with a certificate | pass |
| SASL_PLAINTEXT and SASL_SSL, PLAIN | pass | pass |
| SASL_PLAINTEXT and SASL_SSL, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER | pass | not in this release |
| SASL_PLAINTEXT and SASL_SSL, GSSAPI (MIT Kerberos 1.20), by keytab or ticket cache | pass | not run |

## Other projects' own tests

Those of franz-go and librdkafka that need a broker (`suites.py`). Each of librdkafka's is run by itself, in
its quick mode, for a broker of version 2.1.

{suites}"""


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one feature with one client: passed, failed, not run, or not in this client."""

    client: str
    version: str
    feature: str
    result: str
    why: str = ""


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
        found.append(Cell(told["client"], told.get("version", ""), told["feature"], result, why))
    return found


def table(cells: Sequence[Cell]) -> str:
    """Features by clients; what did not pass refers to a note."""
    order = [str(client) for client in CLIENTS] + [SPARK]
    clients = sorted({cell.client for cell in cells}, key=order.index)
    versions = {cell.client: cell.version for cell in cells if cell.version}
    at = {(cell.feature, cell.client): cell for cell in cells}
    features = sorted({cell.feature for cell in cells})
    notes: dict[str, int] = {}

    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        if cell.result == "passed":
            return "pass"
        number = notes.setdefault(f"{cell.result}: {cell.why}", len(notes) + 1)
        return f"{'FAIL' if cell.result == 'failed' else '–'} [{number}]"

    heads = [head(client, versions.get(client, "")) for client in clients]
    lines = [row(["", *heads]), row(["---"] * (len(heads) + 1))]
    lines += [
        row([feature, *(shown(at.get((feature, client))) for client in clients)]) for feature in features
    ]
    remarks = [f"- [{number}] {text}" for text, number in notes.items()]
    return "\n".join([*lines, "", *remarks])


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


def document(cells: Sequence[Cell], outcomes: Sequence[Mapping[str, str]], before: str = "") -> str:
    """The whole text. Suites that are not on this machine are as ``before``, the text of the last run."""
    counts = Counter(cell.result for cell in cells)
    results = ("passed", "failed", "not run", "not in this client")
    suites = sorted({outcome["suite"] for outcome in outcomes})
    return TEXT.format(
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        version=minikafka.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        numbers=", ".join(f"{counts[result]} {result}" for result in results),
        table=table(cells),
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
