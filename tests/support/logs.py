"""Small builders that the tests of the log share."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

from minikafka.base.clock import ManualClock
from minikafka.base.files import Files
from minikafka.base.ids import TopicPartition
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.append.validation import validate
from minikafka.records.format.message_set import Codec, Record, StoredRecord, build_message_set, iterate

DATA = Path(__file__).resolve().parents[1] / "data"
NOW_MS = 1_700_000_000_000
HOME = "data/t_0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
ONE, TWO, OTHER = TopicPartition("my_topic", 0), TopicPartition("my_topic", 1), TopicPartition("other", 0)
MARKER = ".kafka_cleanshutdown"
CHECKPOINT = "recovery-point-offset-checkpoint"


def valid_set(
    values: list[bytes], *, timestamp_ms: int = NOW_MS, codec: Codec = Codec.NONE, magic: int = 1
) -> ValidatedRecords:
    """A produced set as ``append`` takes it; timestamps rise by 1 ms."""
    records = [Record(None, value, timestamp_ms + number) for number, value in enumerate(values)]
    data = bytearray(build_message_set(records, magic=magic, codec=codec))
    return validate(data, Limits(max_message_bytes=1 << 28), NOW_MS)


def numbered(first: int, count: int, size: int = 20) -> list[bytes]:
    """Values that name their offset, each of ``size`` bytes."""
    return [f"{first + number}:".encode().ljust(size, b".") for number in range(count)]


def open_log(
    files: Files,
    config: LogConfig = SMALL,
    *,
    directory: str = HOME,
    clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
    layout: Layout = Layout.CLASSIC,
) -> Log:
    """A log in ``directory``."""
    known = LoadHints(clean=clean, recovery_point=recovery_point, start_offset=start_offset)
    return Log.open(files, directory, config, layout, known)


def manager_of(
    files: Files,
    *directories: str,
    config: LogConfig = SMALL,
    layout: Layout = Layout.CLASSIC,
    clock: ManualClock | None = None,
) -> LogManager:
    manager = LogManager(files, directories or ("d1",), config, layout, clock or ManualClock())
    manager.open_all()
    return manager


def log_of(manager: LogManager, partition: TopicPartition = ONE) -> Log:
    log = manager.get(partition)
    assert log is not None
    return log


def fill(
    log: Log,
    messages: int,
    *,
    in_set: int = 5,
    size: int = 20,
    codec: Codec = Codec.NONE,
    flush: bool = False,
) -> Log:
    """Append numbered messages, ``in_set`` at a time; timestamp of a message: NOW_MS plus its offset. Return
    the log.
    """
    for _ in range(messages // in_set):
        first = log.end_offset
        log.append(valid_set(numbered(first, in_set, size), timestamp_ms=NOW_MS + first, codec=codec))
    if flush:
        log.flush()
    return log


def names_of(*bases: int) -> list[str]:
    """Names of the segments of those base offsets and of their indexes, sorted."""
    return [f"{base:011d}.{suffix}" for base in bases for suffix in ("index", "kafka", "timeindex")]


def read_all(log: Log, *, max_bytes: int = 300, up_to: int | None = None) -> list[StoredRecord]:
    """Every record, fetched as a consumer would."""
    records: list[StoredRecord] = []
    offset = log.start_offset
    while True:
        found = log.read(offset, max_bytes, up_to=up_to)
        if found.slice is None:
            return records
        new = [record for record in iterate(found.slice.read()) if record.offset >= offset]
        assert new, f"a read at {offset} gave no whole message"
        records += new
        offset = new[-1].offset + 1


class Interrupted(int):
    """A number at whose ``turn``-th comparison another thread comes in and does ``action``."""

    def __new__(cls, value: int, turn: int, action: Callable[[], object]) -> Interrupted:
        number = super().__new__(cls, value)
        number._turn, number._action, number.interrupted = turn, action, False
        return number

    _turn: int
    _action: Callable[[], object]
    interrupted: bool

    def _compared(self) -> None:
        self._turn -= 1
        if self._turn == 0:
            self.interrupted = True
            self._action()

    def __gt__(self, other: int) -> bool:
        self._compared()
        return int(self) > other

    def __lt__(self, other: int) -> bool:
        self._compared()
        return int(self) < other

    def __ge__(self, other: int) -> bool:
        self._compared()
        return int(self) >= other

    def __le__(self, other: int) -> bool:
        self._compared()
        return int(self) <= other


def expected_records(path: Path) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, timestamp, key, value) of each line of a recorded file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["offset"], line["timestamp"], _bytes(line["key"]), _bytes(line["value"])) for line in lines]


def plain(records: list[StoredRecord]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """The same four fields of decoded records."""
    return [(record.offset, record.timestamp_ms, record.key, record.value) for record in records]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
