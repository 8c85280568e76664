"""Fuzz tests of all decoders of external bytes, with damaged and with deliberately wrong inputs.

A child process runs them, with little more address space than it has at the start, a limit of processor time
for each input, and each input in front of a protected page: so a crash, a hang, too much memory or a read
beyond the end kills it, and the parent knows the input. BrokerError is the only allowed error; no record may
come from an entry with a wrong checksum; and records that a broker accepts must be complete and consecutive.

``MINIKAFKA_FUZZ`` is the number of random inputs (3,000). One input again, by itself::

    python -m tests.faults.test_decoder_fuzz SEED NUMBER 1
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import FileSlice
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.index.offset_index import OffsetIndex
from minikafka.log.index.time_index import TimeIndex
from minikafka.log.tools.dump import Damage, dump_records
from minikafka.records import kernels
from minikafka.records.append.conversion import down_convert
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import assign, prepare, validate
from minikafka.records.columns import SCHEMA_WITH_HEADERS, ColumnDecoder
from minikafka.records.compaction import SLOT_BYTES, OffsetMap, RecordFilter, Transactions
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.format.record import TimestampType
from minikafka.records.scan.scan import find_position, first_at_or_after, scan
from minikafka.records.scan.stream import MessageSet
from tests.faults import decoder_inputs
from tests.oracles.batches import crc32c
from tests.support.records import row_of, rows_of

ROOT = Path(__file__).resolve().parents[2]
WORST = ROOT / "tests" / "data" / "fuzz" / "worst.jsonl"

CONTENT_BYTES = 1 << 20
"""The limit of a wrapper's content in these tests."""
MORE_MEMORY_BYTES = 384 << 20
"""Decoders without an own limit decompress up to 128 MiB, and may need it twice."""
SECONDS = 10
"""The limit of processor time for one input; a usual one takes a millisecond."""
CHILD_INPUTS = 100_000
"""The number of inputs of one seed."""
EVER = (1 << 63) - 1

CORRUPT = {ErrorCode.CORRUPT_MESSAGE}
REFUSALS = CORRUPT | {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
UNCONVERTIBLE = CORRUPT | {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}

LIMITS = [
    Limits(max_content_bytes=CONTENT_BYTES, max_magic=2),
    Limits(max_content_bytes=CONTENT_BYTES),
    Limits(timestamp_type=TimestampType.LOG_APPEND_TIME, max_content_bytes=CONTENT_BYTES, max_magic=2),
    Limits(max_timestamp_difference_ms=1 << 41, max_content_bytes=CONTENT_BYTES, max_magic=2, compacted=True),
    Limits(max_message_bytes=200, max_content_bytes=CONTENT_BYTES, max_magic=2),
    Limits(max_content_bytes=CONTENT_BYTES, max_magic=2, magic=0),
    Limits(max_content_bytes=CONTENT_BYTES, max_magic=2, magic=1, codec=Codec.NONE),
    Limits(max_content_bytes=CONTENT_BYTES, max_magic=2, codec=Codec.LZ4),
    Limits(
        max_message_bytes=300,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_content_bytes=CONTENT_BYTES,
        magic=1,
        codec=Codec.SNAPPY,
    ),
]
NOW_MS = 1_480_000_000_000

Row = tuple[int, int, int, bytes | None, bytes | None]


def good_bytes(data: bytes) -> int:
    """Return the end of the complete entries with correct checksums, computed in plain Python."""
    at = 0
    while len(data) - at >= 12:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < 14 or size > len(data) - at - 12:
            break
        entry = data[at : at + 12 + size]
        if entry[16] == 2:
            right = size >= 49 and crc32c(entry[21:]) == int.from_bytes(entry[17:21], "big")
        else:
            right = entry[16] < 2 and zlib.crc32(entry[16:]) == int.from_bytes(entry[12:16], "big")
        if not right:
            break
        at += 12 + size
    return at


class Guard:
    """Memory in front of a protected page: an access beyond its last byte kills the process."""

    def __init__(self, size_bytes: int = 2 << 20) -> None:
        self._area = mmap.mmap(-1, size_bytes + mmap.PAGESIZE)
        self._view = memoryview(self._area)[:size_bytes]
        last_page = ctypes.addressof(ctypes.c_char.from_buffer(self._area)) + size_bytes
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        if protect(ctypes.c_void_p(last_page), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "cannot protect a page")

    def before(self, data: bytes) -> memoryview:
        """Return ``data``, writable, as the last bytes of the memory."""
        place = self._view[len(self._view) - len(data) :]
        place[:] = data
        return place

    def step_over(self) -> int:
        """Read the protected page."""
        return self._area[len(self._view)]


class Outcomes:
    """The outcomes of one input, by entry point."""

    def __init__(self, guard: Guard, content_bytes: int = CONTENT_BYTES) -> None:
        self.guarded = guard.before
        self.content_bytes = content_bytes
        self.texts: list[str] = []
        self.accepted = False

    def refused(self, call: Callable[[], object], allowed: Iterable[ErrorCode]) -> bool:
        """Return True if the call raises one of these errors. Any other error is a failure."""
        try:
            call()
        except BrokerError as error:
            if error.code not in allowed:
                raise AssertionError(f"an error that is not allowed here: {error}") from error
            self.texts.append("".join(c for c in error.detail if not c.isdigit()))
            return True
        self.texts.append("")
        return False

    def records(self, data: bytes, *, deep: bool = True) -> list[StoredRecord]:
        """Return the records of the iterator before it ends or raises."""
        found: list[StoredRecord] = []
        self.refused(
            lambda: found.extend(
                iterate(self.guarded(data), deep=deep, max_content_bytes=self.content_bytes)
            ),
            CORRUPT,
        )
        return found

    def try_set(self, data: bytes, number: int) -> None:
        """Try every entry point that takes a message set."""
        records = self.records(data)
        good = good_bytes(data)
        if good < len(data):
            assert records == self.records(data[:good]), "a record of an entry whose checksum is wrong"
        self.records(data, deep=False)
        for base in (None, 0):
            assert scan(self.guarded(data), base_offset=base).valid_bytes <= good
        self.refused(lambda: find_position(self.guarded(data), number % 50), CORRUPT)
        self.refused(lambda: first_at_or_after(self.guarded(data[:good]), number % 2000), CORRUPT)
        self.try_columns(data, records)
        self.try_conversion(data, good)
        self.accepted = False
        for limits in (LIMITS[0], LIMITS[1 + number % (len(LIMITS) - 1)]):
            self.accepted |= self.try_broker(data, limits, records)
        self.try_file(data, records)
        self.try_compaction(data[: scan(data, base_offset=0).valid_bytes], number)

    def try_columns(self, data: bytes, records: list[StoredRecord]) -> None:
        """Check that the columns equal the records of the iterator."""
        decoder = ColumnDecoder(-EVER - 1, EVER, headers=True, max_content_bytes=self.content_bytes)
        self.refused(lambda: decoder.add(self.guarded(data)), CORRUPT)
        columns = decoder.columns()
        rows = rows_of(columns)
        wanted = [row_of(r) for r in records if not r.control]
        # Damage after the last requested offset does not matter: the columns may end before it.
        shared = min(len(rows), len(wanted)) if decoder.finished else None
        assert rows[:shared] == wanted[:shared]
        self.refused(
            lambda: columns.record_batch("t", 0, SCHEMA_WITH_HEADERS).validate(full=True),
            {ErrorCode.INVALID_TIMESTAMP},
        )

    def try_conversion(self, data: bytes, good: int) -> None:
        """Check the conversion for an older fetcher."""
        for magic in (0, 1):
            converted: list[bytes] = []

            def convert(magic: int = magic, converted: list[bytes] = converted) -> None:
                converted.append(down_convert(self.guarded(data), magic, self.content_bytes))

            if not self.refused(convert, UNCONVERTIBLE) and good == len(data):
                assert good_bytes(converted[0]) == len(converted[0])
                assert all(entry.magic <= magic for entry in self.records(converted[0], deep=False))

    def try_broker(self, data: bytes, limits: Limits, records: list[StoredRecord]) -> bool:
        """Check that a broker stores the sent records complete, consecutive and in the topic's format."""
        stored: list[bytes] = []

        def append() -> None:
            valid = prepare(validate(self.guarded(data), limits, NOW_MS), 77)
            assigned = assign(valid, 77)
            assert assigned.last_offset - assigned.first_offset + 1 == assigned.count == valid.count
            stored.append(bytes(assigned.data))

        if self.refused(append, REFUSALS):
            return False
        found = list(iterate(stored[0]))
        assert [record.offset for record in found] == list(range(77, 77 + len(found)))
        assert good_bytes(stored[0]) == len(stored[0])
        assert scan(stored[0], base_offset=77, next_offset=77).problem is None
        assert [(record.key, record.value) for record in found] == [(r.key, r.value) for r in records]
        for record, sent in zip(found, records, strict=True):
            assert limits.codec in {None, record.codec}
            assert record.magic == (sent.magic if limits.magic is None else limits.magic)
            wanted = sent.timestamp_ms
            if limits.timestamp_type is TimestampType.LOG_APPEND_TIME:
                wanted = NOW_MS
            assert record.timestamp_ms == (wanted if record.magic else -1)
            assert record.headers == (sent.headers if record.magic == 2 else ())
        return bool(found)

    def try_compaction(self, data: bytes, number: int) -> None:
        """Check that a compaction keeps only records of the log, in the same format."""
        kept: list[bytes] = []

        def compact() -> None:
            ends = Transactions(0)
            ends.add(self.guarded(data))
            offsets = OffsetMap((4 + number % 9) * SLOT_BYTES)
            offsets.begin(0)
            offsets.add(self.guarded(data), 1 + number % 50, lambda: ends, self.content_bytes)
            record_filter = RecordFilter(
                offsets,
                now_ms=NOW_MS,
                delete_retention_ms=5,
                transactions=ends,
                max_content_bytes=self.content_bytes,
            )
            record_filter.tombstones_stay = number % 2 == 0
            found = record_filter.filter(self.guarded(data))
            kept.append(b"" if found is None else bytes(found.data))

        if self.refused(compact, CORRUPT):
            return
        assert good_bytes(kept[0]) == len(kept[0])
        there = self.records(data)
        offsets = [record.offset for record in there]
        if self.texts[-1] or offsets != sorted(set(offsets)):
            return  # damaged inside, or no broker would have stored it so
        stayed = self.records(kept[0])
        rows = [(r.offset, r.key, r.value, r.magic, r.headers) for r in stayed]
        assert set(rows) <= {(r.offset, r.key, r.value, r.magic, r.headers) for r in there}
        assert [record.offset for record in stayed] == sorted({record.offset for record in stayed})

    def try_file(self, data: bytes, records: list[StoredRecord]) -> None:
        """Check windowed reads and the dump."""
        files = MemoryFiles()
        files.make_dirs("/d")
        file = files.open("/d/f", create=True)
        file.write_at(0, data)
        found: list[StoredRecord] = []
        streamed = MessageSet(FileSlice(file, 0, len(data)), window_bytes=64)
        self.refused(lambda: found.extend(streamed.records(max_content_bytes=self.content_bytes)), CORRUPT)
        assert found == records
        damage = [item for item in dump_records(files, "/d/f") if isinstance(item, Damage)]
        assert sum(item.length for item in damage) <= len(data)

    def try_index(self, data: bytes, number: int) -> None:
        """Both indexes of a segment."""
        files = MemoryFiles()
        files.make_dirs("/d")
        files.open("/d/f", create=True).write_at(0, data)
        offsets = OffsetIndex.load(files, "/d/f", number % 3, 1 << 20)
        times = TimeIndex.load(files, "/d/f", number % 3)
        for target in decoder_inputs.EDGES:
            if offsets is not None:
                offset, position = offsets.lookup(target)
                assert 0 <= position < 1 << 20
                assert offset >= number % 3
            if times is not None:
                assert times.lookup(target) >= number % 3
        self.texts.append(f"{offsets is None} {times is None}")
        self.accepted = offsets is not None or times is not None

    def tried(self, name: str, data: bytes, number: int) -> Outcomes:
        """This, after the input went through everything that may meet it."""
        if name == "indexes":
            self.try_index(data, number)
        else:
            self.try_set(data, number)
        return self


def limit_memory() -> Guard:
    """Let this process have little more than it has. (Systems without /proc have no such limit either.)"""
    kernels.warm_up()
    guard = Guard()
    Outcomes(guard).try_set(decoder_inputs.GOLDEN[0][0], 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        size = int(statistics.read_text().split()[0]) * resource.getpagesize() + MORE_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    return guard


def run_child(inputs: Iterable[tuple[str, bytes]], first: int, progress: Path | None) -> None:
    """Try all inputs; the tally goes to stdout, and the number of the current one to ``progress``."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    at = None
    if progress is not None:
        with progress.open("r+b") as file:
            at = mmap.mmap(file.fileno(), 8)
    guard = limit_memory()
    tried: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for number, (name, data) in enumerate(inputs, first):
        if at is not None:
            struct.pack_into("<q", at, 0, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcomes = Outcomes(guard).tried(name, data, number)
        except Exception:
            sys.stderr.write(f"input {number} ({name}), {len(data)} bytes: {data[:400].hex()}\n")
            raise
        tried[name] += 1
        accepted[name] += outcomes.accepted
    sys.stdout.write(json.dumps({name: [count, accepted[name]] for name, count in tried.items()}))


def child(tmp_path: Path, *arguments: object) -> dict[str, list[int]]:
    """The child's report: the numbers of tried and accepted inputs of each class."""
    progress = tmp_path / "progress"
    progress.write_bytes(bytes(8))
    command = [sys.executable, "-m", __spec__.name, *map(str, arguments), str(progress)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=_environment())
    (number,) = struct.unpack("<q", progress.read_bytes())
    assert done.returncode == 0, f"{arguments}: status {done.returncode} at input {number}\n{done.stderr}"
    tally: dict[str, list[int]] = json.loads(done.stdout)
    return tally


def _environment() -> dict[str, str]:
    # Pools that take address space in advance would hide what is asked for.
    return os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def read_worst() -> list[tuple[str, bytes]]:
    lines = [json.loads(line) for line in WORST.read_text().splitlines()]
    return [(line["class"], base64.b64decode(line["data"])) for line in lines]


def collect(seed: int, count: int) -> None:
    """Keep the smallest input of each class for everything that an entry point says."""
    guard = limit_memory()
    best: dict[tuple[str, int, str], bytes] = {}
    for number in range(count):
        name, data = decoder_inputs.made(seed, number)
        for place, text in enumerate(Outcomes(guard).tried(name, data, number).texts):
            key = (name, place, text)
            if key not in best or len(data) < len(best[key]):
                best[key] = data
    kept = {(name, data) for (name, _, _), data in best.items()}
    lines = [
        json.dumps({"class": name, "data": base64.b64encode(data).decode()})
        for name, data in sorted(kept, key=lambda item: (item[0], len(item[1]), item[1]))
    ]
    WORST.write_text("\n".join(lines) + "\n")


def test_the_worst_inputs_end_in_an_answer_or_an_error(tmp_path: Path) -> None:
    tally = child(tmp_path, "worst")
    assert sum(tried for tried, _ in tally.values()) == len(read_worst())
    assert set(tally) == set(decoder_inputs.CLASSES)


def test_bombs_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    tally = child(tmp_path, "bombs")
    assert tally == {"bombs": [len(decoder_inputs.bombs(1 << 20)), 0]}


def test_inputs_by_chance_end_in_an_answer_or_an_error(tmp_path: Path) -> None:
    wanted = int(os.environ.get("MINIKAFKA_FUZZ", "3000"))
    total: dict[str, list[int]] = {}
    for seed, first in enumerate(range(0, wanted, CHILD_INPUTS), 1):
        for name, counts in child(tmp_path, seed, 0, min(CHILD_INPUTS, wanted - first)).items():
            total[name] = [a + b for a, b in zip(total.get(name, [0, 0]), counts, strict=True)]
    for name, (tried, accepted) in total.items():
        sys.stdout.write(f"{name}: {tried} tried, {accepted} accepted\n")
    assert all(accepted < tried for tried, accepted in total.values())
    # What nobody accepts reaches nothing.
    assert all(accepted for name, (_, accepted) in total.items() if name not in {"noise", "golden, damaged"})


def test_an_input_follows_from_its_seed_and_number() -> None:
    assert decoder_inputs.made(3, 5) == decoder_inputs.made(3, 5) != decoder_inputs.made(4, 5)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("memory", "(?s)status 1.*MemoryError"),
        ("time", f"status -{int(signal.SIGPROF)}"),
        ("beyond", f"status -{int(signal.SIGSEGV)}"),
        ("error", "(?s)status 1.*RuntimeError"),
    ],
)
def test_the_child_ends_where_an_input_does_what_none_may(tmp_path: Path, what: str, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        child(tmp_path, what)


def misbehave(what: str) -> Iterable[tuple[str, bytes]]:
    """One input, and then what a bad decoder might do."""
    yield decoder_inputs.made(1, 0)
    if what == "memory":
        bytearray(2 * MORE_MEMORY_BYTES)
    if what == "time":
        signal.setitimer(signal.ITIMER_PROF, 0.1)
        while True:
            pass
    if what == "beyond":
        Guard().step_over()
    raise RuntimeError(what)


def main(arguments: list[str]) -> None:
    """The child, and what is run by hand."""
    if arguments[0] == "collect":
        collect(int(arguments[1]), int(arguments[2]))
        return
    progress = Path(arguments.pop()) if os.sep in arguments[-1] else None
    if arguments[0] == "worst":
        run_child(read_worst(), 0, progress)
    elif arguments[0] == "bombs":
        run_child((("bombs", data) for data in decoder_inputs.bombs(32 << 20).values()), 0, progress)
    elif arguments[0].isdigit():
        seed, first, count = map(int, arguments)
        run_child((decoder_inputs.made(seed, i) for i in range(first, first + count)), first, progress)
    else:
        run_child(misbehave(arguments[0]), 0, progress)


if __name__ == "__main__":
    main(sys.argv[1:])
