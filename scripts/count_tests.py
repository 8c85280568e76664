"""Add up pytest's JUnit reports in a directory, and the checks given as two numbers: ``N passed, N failed``.

``NAME-again.xml`` has the tests of ``NAME.xml`` that failed and were run once more: that outcome counts, and
who needed it is named. Tests that were skipped are counted by their reason.

Ends with 1 when anything failed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

AGAIN = "-again"

Outcomes = dict[str, tuple[str, str]]
"""Test -> passed, failed or skipped, and why it was skipped."""


def outcomes_in(path: Path) -> Outcomes:
    """Return the outcome of each test of a report."""
    found: Outcomes = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            found[name] = "failed", ""
        elif found.get(name, ("", ""))[0] == "failed":
            continue  # it has another entry for what was wrong at its end
        elif skipped is not None:
            found[name] = "skipped", skipped.get("message") or "no reason given"
        else:
            found[name] = "passed", ""
    return found


def main(directory: str, checks_passed: str, checks_failed: str) -> int:
    counts = Counter(passed=int(checks_passed), failed=int(checks_failed))
    reasons: Counter[str] = Counter()
    for path in sorted(Path(directory).glob("*.xml")):
        if path.stem.endswith(AGAIN):
            continue
        outcomes = outcomes_in(path)
        again = path.with_name(f"{path.stem}{AGAIN}.xml")
        for name, outcome in (outcomes_in(again) if again.exists() else {}).items():
            if outcome[0] == "passed" and outcomes.get(name, outcome)[0] == "failed":
                print(f"failed at first, and passed when it was run again: {name}")
                outcomes[name] = outcome
        counts.update(kind for kind, _ in outcomes.values())
        reasons.update(reason for kind, reason in outcomes.values() if kind == "skipped")
    if reasons:
        print(f"{counts['skipped']} skipped:")
        for reason, count in reasons.most_common():
            print(f"    {count}: {reason}")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
