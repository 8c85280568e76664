"""The examples do what the documents say of them."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples import async_producer, consumer_group_with_a_filter, raw_offsets

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FROM_KAFKA = EXAMPLES / "from_kafka"


def test_program_moves_from_spark_kafka_by_format_and_import() -> None:
    before, after = ((FROM_KAFKA / name).read_text().splitlines() for name in ("before.py", "after.py"))
    lines = [line for line in difflib.ndiff(before, after) if line[0] in "+-" and line[1:].strip()]
    assert lines == [
        "+ import pyspark_minikafka  # noqa: F401  # before the session: Spark then finds the format",
        '-         spark.readStream.format("kafka")',
        '+         spark.readStream.format("minikafka")',
    ]


def test_notebooks_are_stored_without_outputs() -> None:
    cells = [cell for path in EXAMPLES.rglob("*.ipynb") for cell in json.loads(path.read_text())["cells"]]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.process
@pytest.mark.parametrize("name", ["before.py", "after.py"])
def test_a_program_that_is_not_told_where_to_read_says_how_it_is_called(name: str) -> None:
    path = str(FROM_KAFKA / name)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"usage: {path} SERVERS TOPIC DIRECTORY, as localhost:9092 orders ./orders\n"


@pytest.mark.process
def test_raw_offsets_reads_from_middle_and_commits_to_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raw_offsets.main(["--data-dir", str(tmp_path / "d")]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line[0].isdigit()] == [
        "1: 4 bytes, 20.7",
        "2: 50028 bytes, a photograph of the sensor: xx",
        "3: 4 bytes, 21.0",
    ]
    assert "group raw continues at offset 3 of readings-0, in ZooKeeper" in printed
    assert printed.endswith("group raw continues at offset 4 of readings-0, with the coordinator\n")


@pytest.mark.process
def test_async_producer_reports_every_stage_and_sends_all_clicks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert async_producer.main(["--data-dir", str(tmp_path / "d")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:5] == [
        "before the queue: 1000",
        "in the queue: 1000",
        "out of the queue: 857",
        "not sent: 0",
        "sent: 858",
    ]
    assert int(printed[5].removeprefix("batches: ")) >= 11
    assert printed[-1] == "all clicks are there, in the order of their pages"


@pytest.mark.process
def test_group_with_filter_shares_new_topics_and_reads_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert consumer_group_with_a_filter.main(["--data-dir", str(tmp_path / "d")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "at first: stock_one has 6 partitions, stock_other has 6 partitions",
        "orders-asia has come: stock_one has 8 partitions, stock_other has 8 partitions",
        "one has left: stock_other has 16 partitions",
        "250 orders, 250 read, 250 committed",
    ]
