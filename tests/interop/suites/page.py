"""Writes the results of suites into docs/reference/compatibility.md.

    python -m tests.interop.suites.page RESULTS.json docs/reference/compatibility.md

Each suite has a section of its own. One that is not in RESULTS.json keeps its section, whose first line says
when it was run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.suites.suite import APACHE_KAFKA, MINIKAFKA, NOT_RUN, PASSED

HEADING = "## Other projects' own tests"
PREFACE = f"""\
{HEADING}

Their tests that need a broker, run against {APACHE_KAFKA} with ZooKeeper and against ours, with the same
settings (`tests/interop/suites`). Each of librdkafka's is run by itself, in its quick mode.
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of one test on both kinds of brokers; ``why`` says more of one that did not pass."""

    test: str
    theirs: str
    ours: str
    why: str


GROUPS = (
    (f"Passed on {APACHE_KAFKA} alone", lambda test: test.theirs == PASSED != test.ours),
    ("Passed on minikafka alone", lambda test: test.ours == PASSED != test.theirs),
    ("Passed on neither", lambda test: PASSED not in {test.theirs, test.ours}),
)


def compared(results: Mapping[str, Mapping[str, Any]]) -> list[Compared]:
    """Each test of a suite, in the order in which they were run."""
    theirs, ours = (
        {outcome["test"]: outcome for outcome in results.get(kind, {}).get("outcomes", ())}
        for kind in (APACHE_KAFKA, MINIKAFKA)
    )
    none = {"result": NOT_RUN, "why": ""}

    def outcome(side: Mapping[str, Mapping[str, str]], name: str) -> Mapping[str, str]:
        # A test that was left out did not name its subtests.
        return side.get(name) or {**none, "why": side.get(name.partition("/")[0], none)["why"]}

    tests = []
    for name in {**theirs, **ours}:
        on_theirs, on_ours = outcome(theirs, name), outcome(ours, name)
        why = on_ours["why"] or on_theirs["why"]
        tests.append(Compared(name, on_theirs["result"], on_ours["result"], why))
    return tests


def section(suite: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """One suite: the numbers, the tests that did not pass on both, and the names of those that did."""
    tests = compared(results)
    both = [test for test in tests if test.theirs == test.ours == PASSED]
    numbers = [f"{len(both)} passed on both"]
    lines = []
    for title, belongs in GROUPS:
        group = [test for test in tests if belongs(test)]
        if group:
            numbers.append(f"{len(group)} {title[0].lower()}{title[1:]}")
            lines += [f"{title}:", "", *table(group), ""]
    dates = sorted({results[kind]["date"] for kind in results})
    lines = [f"### {suite}", "", f"Run on {' and '.join(dates)}: {', '.join(numbers)}.", "", *lines]
    if both:
        lines += [f"Passed on both: {', '.join(f'`{test.test}`' for test in both)}.", ""]
    return "\n".join(lines)


def table(tests: Sequence[Compared]) -> list[str]:
    """The lines of a table of tests."""
    lines = [row(["test", APACHE_KAFKA, "minikafka", "why"]), row(["---"] * 4)]
    return lines + [row([f"`{test.test}`", test.theirs, test.ours, test.why]) for test in tests]


def row(fields: Iterable[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"


def with_suites(page: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the page with new sections of the suites that have results."""
    rest, _, former = page.partition(HEADING)
    sections = {
        found[1]: found[0].rstrip("\n") + "\n"
        for found in re.finditer(r"^### (\S+)\n.*?(?=^### |\Z)", former, re.DOTALL | re.MULTILINE)
    }
    sections |= {suite: section(suite, of_suite) for suite, of_suite in results.items()}
    return rest + "\n".join([PREFACE, *(sections[suite] for suite in sorted(sections))])


def main(results: str, page: str) -> None:
    """Write them."""
    path = Path(page)
    path.write_text(with_suites(path.read_text(), json.loads(Path(results).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
