"""Benchmarks of Python clients: each case in a process of its own, the cases in turns, rates beside goals."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence


def arguments(description: str | None, cases: Iterable[str], records: int) -> argparse.Namespace:
    """Parse the command line. ``client`` is set in the process of one case."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(cases))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_turns(cases: Sequence[str], runs: int) -> Iterator[tuple[int, str]]:
    """Yield every run of every case; another case goes first in each run."""
    for run in range(runs):
        first = run % len(cases)
        for case in (*cases[first:], *cases[:first]):
            yield run, case


def records_of(case: str, records: int) -> int:
    """Return the records of a case. A fifth is enough for the rate of kafka-python, the slowest."""
    return records // 5 if case == "kafka-python" else records


def run_alone(program: str, case: str, *words: object) -> float:
    """Run one case in a process of its own, and return the number that it prints."""
    command = [sys.executable, program, "--client", case, *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stdout}\n{done.stderr[-2_000:]}")
    return float(done.stdout)


def print_goals(medians: Mapping[str, float], goals: Mapping[tuple[str, str], float]) -> None:
    """Print the ratio of two cases beside each goal, where both were run."""
    for (one, other), goal in goals.items():
        if one in medians and other in medians:
            ratio = medians[one] / medians[other]
            print(f"{one} / {other}: {ratio:.2f} × (goal {goal}): {'met' if ratio >= goal else 'missed'}")
