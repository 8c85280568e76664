"""The example that watches a failover."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "watch_a_failover.py"


@pytest.mark.timeout(180)
def test_the_isr_shrinks_and_grows_and_nothing_is_lost(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--data-dir", str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    states = re.findall(r"orders-0 is led by broker (\d), in sync: ([\d,]+)", done.stdout)
    sizes = [len(in_sync.split(",")) for _, in_sync in states]
    assert (sizes[0], min(sizes), sizes[-1]) == (3, 2, 3)
    killed = re.search(r"kill -9 of broker (\d), the leader", done.stdout)
    assert killed is not None
    assert states[0][0] == killed[1] != states[-1][0]
    acknowledged, found = map(
        int, re.findall(r"(\d+) orders were acknowledged, (\d+) are there", done.stdout)[0]
    )
    assert found >= acknowledged >= 600
    assert done.stdout.endswith(": 0 lost, 0 twice\n")
