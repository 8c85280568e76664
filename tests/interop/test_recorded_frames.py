"""``tests/data/wire/frames-3.9.1.jsonl.gz`` is what the classes of 3.9.1 encode."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.interop.clients import java, run_to_its_end
from tests.support.recorded_frames import lines

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_recorded_frames_are_those_that_3_9_1_encodes(tmp_path: Path) -> None:
    """To record them again, give the program the path of that file."""
    prepared = java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "Frames")(tmp_path)
    made = tmp_path / "frames.jsonl.gz"
    run_to_its_end([*prepared.command, str(made)], prepared.environment)
    assert gzip.decompress(made.read_bytes()).decode().splitlines() == lines()
