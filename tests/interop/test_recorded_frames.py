"""The classes of 3.9.1 encode what ``tests/data/wire/frames-3.9.1.jsonl.gz`` has.

With ``MINIKAFKA_REWRITE=1`` the file is written anew.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from tests.interop.clients import java, run_to_its_end
from tests.support.recorded_frames import PATH, lines

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_recorded_frames_are_those_that_3_9_1_encodes(tmp_path: Path) -> None:
    prepared = java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "Frames")(tmp_path)
    made = tmp_path / "frames.jsonl.gz"
    run_to_its_end([*prepared.command, str(made)], prepared.environment)
    if os.environ.get("MINIKAFKA_REWRITE"):
        shutil.copy(made, PATH)
    assert gzip.decompress(made.read_bytes()).decode().splitlines() == lines()
