"""The examples say what the README says of them."""

from __future__ import annotations

import difflib
from pathlib import Path

FROM_KAFKA = Path(__file__).resolve().parents[2] / "examples" / "from_kafka"


def test_a_program_moves_from_sparks_kafka_source_by_its_format_and_an_import() -> None:
    before, after = ((FROM_KAFKA / name).read_text().splitlines() for name in ("before.py", "after.py"))
    lines = [line for line in difflib.ndiff(before, after) if line[0] in "+-" and line[1:].strip()]
    assert lines == [
        "+ import pyspark_minikafka  # noqa: F401  # before the session: Spark then finds the format",
        '-         spark.readStream.format("kafka")',
        '+         spark.readStream.format("minikafka")',
    ]
