"""Add up pytest's JUnit reports in a directory, and the checks given as two numbers: ``N passed, N failed``.

Tests that were skipped are counted by their reason.

Ends with 1 when anything failed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def main(directory: str, checks_passed: str, checks_failed: str) -> int:
    passed, failed, skipped = int(checks_passed), int(checks_failed), 0
    reasons: Counter[str] = Counter()
    for path in Path(directory).glob("*.xml"):
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            left_out = int(suite.get("skipped", 0))
            passed += int(suite.get("tests", 0)) - bad - left_out
            failed += bad
            skipped += left_out
            reasons.update(one.get("message") or "no reason given" for one in suite.iter("skipped"))
    if skipped:
        print(f"{skipped} skipped:")
        for reason, count in reasons.most_common():
            print(f"    {count}: {reason}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
