"""Versions of PySpark and Python: which go together, and the page of what ``scripts/matrix`` found.

    python -m tests.spark.versions supports DIRECTORY_OF_PYSPARK PYTHON     ends with 0 or 1
    python -m tests.spark.versions page ROOT RESULTS docs/reference/spark-versions.md

ROOT is the directory with PySpark's versions (``spark-4.0``), RESULTS the one with pytest's reports, one for
each pair. A pair without a report was not run.
"""

from __future__ import annotations

import datetime
import platform
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

import minikafka
from tests.interop.suites.page import row

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

TEXT = """\
# Versions of Spark and Python

Written by `scripts/matrix` on {date}, from runs of a wheel of minikafka {version} ({system}).

The tests with the mark `smoke` read and write in each way: a batch between offsets, 200,000 rows, selected
columns, values in JSON; a stream that goes on, and one that ends (`availableNow`), in limited batches from
Spark 4.2 on and in one batch before (the test of the other way is skipped); a write of a batch and of a
stream, with all columns; and a cluster that the program starts itself. The wheel is installed with
`minikafka[spark]` on each Python, and brings the kernels compiled. PySpark is the newest release of its
version. A dash: PySpark does not declare that it supports this Python.

{table}
{failures}"""


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of the tests on one pair of versions."""

    passed: int
    failed: tuple[str, ...]
    skipped: int

    def __str__(self) -> str:
        parts = [f"{self.passed} passed"] if self.passed else []
        parts += [f"**{len(self.failed)} failed**"] if self.failed else []
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(parts) or "no test"


def metadata(directory: Path) -> tuple[str, list[str]]:
    """Return PySpark's release in a directory, and the versions of Python that it declares."""
    (path,) = directory.glob("pyspark-*.dist-info/METADATA")
    known = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
    pythons = [name.rpartition(" :: ")[2] for name in known.get_all("Classifier", [])]
    return known["Version"], [name for name in pythons if name in PYTHONS]


def run_of(report: Path) -> Run:
    """Read a report of pytest."""
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name") or "")
        elif case.find("skipped") is not None:
            skipped += bool(case.get("classname"))  # else a module, which has no test of the lane
        else:
            passed += 1
    return Run(passed, tuple(failed), skipped)


def page(root: Path, results: Path) -> str:
    """Return the whole page."""
    releases = {
        path.name.removeprefix("spark-"): metadata(path)
        for path in sorted(root.glob("spark-*"))
        if path.is_dir()
    }
    lines = [row(["", *(f"Python {python}" for python in PYTHONS)]), row(["---"] * (len(PYTHONS) + 1))]
    failures = []
    for version, (release, supported) in releases.items():
        cells = []
        for python in PYTHONS:
            report = results / f"spark-{version}-python-{python}.xml"
            if python not in supported:
                cells.append("–")
            elif not report.exists():
                cells.append("not run")
            else:
                run = run_of(report)
                cells.append(str(run))
                failures += [f"- PySpark {release}, Python {python}: `{name}` failed" for name in run.failed]
        lines.append(row([f"PySpark {release}", *cells]))
    return TEXT.format(
        date=datetime.datetime.now(datetime.timezone.utc).date(),
        version=minikafka.__version__,
        system=f"{platform.system()} {platform.machine()}",
        table="\n".join(lines),
        failures="\n".join(["", *failures, ""]) if failures else "",
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    match list(arguments):
        case ["supports", directory, python]:
            return 0 if python in metadata(Path(directory))[1] else 1
        case ["page", root, results, target]:
            Path(target).write_text(page(Path(root), Path(results)), encoding="utf-8")
            return 0
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
