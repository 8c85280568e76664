"""A data directory and offset indexes written by Apache Kafka 0.10.1.1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.files import RealFiles
from minikafka.log.checkpoints.meta_properties import MetaProperties, agreed_meta
from minikafka.log.config import LogConfig
from minikafka.log.file_scan import scan_file
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from tests.support.logs import DATA, expected_records, plain, read_all

LOG_DIR = DATA / "log-dir"
EXPECTED = json.loads((LOG_DIR / "expected.json").read_text())
INDEXES = sorted(path.stem for path in (DATA / "log-index").glob("*.index"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOG_DIR / "data", tmp_path / "data"))


@pytest.mark.parametrize("state", ["clean", "unclean", "unclean without checkpoint", "without indexes"])
def test_data_directory_of_kafka_opens_with_offsets_and_records(data_dir: Path, state: str) -> None:
    if state != "clean":
        (data_dir / ".kafka_cleanshutdown").unlink()
    if state == "unclean without checkpoint":
        (data_dir / "recovery-point-offset-checkpoint").unlink()
    if state == "without indexes":
        for index in data_dir.glob("*/*index"):
            index.unlink()
    manager = LogManager(RealFiles(), [str(data_dir)], LogConfig(), Layout.CLASSIC, ManualClock())
    manager.open_all()
    assert {str(partition) for partition in manager.logs()} == set(EXPECTED)
    for partition, log in manager.logs().items():
        ends = EXPECTED[str(partition)]
        assert (log.start_offset, log.end_offset) == (ends["log_start_offset"], ends["log_end_offset"])
        assert log.recovery is None
        assert log.layout is Layout.APACHE
        assert plain(read_all(log)) == expected_records(LOG_DIR / f"{partition}.jsonl")
    manager.close()
    assert (data_dir / ".kafka_cleanshutdown").exists()
    assert not list(data_dir.glob("*/*.corrupt"))


def test_a_real_brokers_directory_says_whose_it_is(data_dir: Path) -> None:
    assert agreed_meta(RealFiles(), [str(data_dir)]) == MetaProperties(3)


def test_opening_and_closing_changes_no_byte_of_kafkas_segments(data_dir: Path) -> None:
    before = {path: path.read_bytes() for path in data_dir.glob("*/*")}
    manager = LogManager(RealFiles(), [str(data_dir)], LogConfig(), Layout.CLASSIC, ManualClock())
    manager.open_all()
    manager.close()
    assert {path: path.read_bytes() for path in data_dir.glob("*/*")} == before
    points = (data_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert points[:2] == ["0", "4"]
    assert sorted(points[2:]) == ["alpha 0 250", "alpha 1 250", "beta 0 600", "beta 1 600"]


@pytest.mark.parametrize("name", INDEXES)
def test_a_real_brokers_index_loads_and_finds_what_a_rebuilt_one_finds(name: str) -> None:
    files = RealFiles()
    segment = files.open(str(DATA / "segments" / f"{name}.log"), read_only=True)
    size = segment.size()
    real = OffsetIndex.load(files, str(DATA / "log-index" / f"{name}.index"), 0, size)
    assert real is not None
    assert len(real) > 0
    ours = OffsetIndex("", 0)
    for entries in scan_file(segment, 0, size, 0, interval_bytes=1024).entries:
        ours.extend(entries)
    if name.startswith(("magic0-none", "magic1-none")):
        # The release indexes appends while it runs, and messages when it rebuilds: never more than ours.
        assert len(ours) >= len(real)
    from_ours = [
        first_from(segment.read_at(0, size), ours.lookup(offset)[1], offset) for offset in range(200)
    ]
    from_real = [
        first_from(segment.read_at(0, size), real.lookup(offset)[1], offset) for offset in range(200)
    ]
    from_start = [first_from(segment.read_at(0, size), 0, offset) for offset in range(200)]
    assert from_ours == from_real == from_start
    segment.close()


def first_from(data: bytes, position: int, offset: int) -> int:
    """Position of the first entry from ``position`` on with an offset at or above ``offset``."""
    while True:
        last = int.from_bytes(data[position : position + 8], "big")
        if data[position + 16] == 2:  # a batch names its first offset, and how many more it has
            last += int.from_bytes(data[position + 23 : position + 27], "big")
        if last >= offset:
            return position
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")


def test_a_real_brokers_time_indexes_say_how_new_its_segments_are(data_dir: Path) -> None:
    manager = LogManager(RealFiles(), [str(data_dir)], LogConfig(), Layout.CLASSIC, ManualClock())
    manager.open_all()
    seen = 0
    for log in manager.logs().values():
        records = plain(read_all(log))
        for segment in log.segments:
            times = TimeIndex.load(
                RealFiles(), segment.path.replace(".log", ".timeindex"), segment.base_offset
            )
            assert times is not None
            seen += len(times)
            mine = [at for offset, at, *_ in records if segment.base_offset <= offset < segment.next_offset()]
            assert times.last()[0] == segment.max_timestamp()[0] == max(mine)
    assert seen > len(manager.logs())
    manager.close()
