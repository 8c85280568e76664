"""Segments and indexes that we wrote, as Apache Kafka's own ``DumpLogSegments`` reads them.

Two conventions are at odds. To the tool of 0.10.1.1 an entry of the offset index names the first offset of a
compressed message, which is what that release writes; to the tool of 3.9.1 it names the last one, as ours do,
and it complains of indexes that 0.10.1.1 wrote. All brokers find everything by either.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from minikafka.base.files import RealFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.columns import encode, raw_headers
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, RELEASES, Printed, Release

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec is not Codec.ZSTD]
CONFIG = LogConfig(segment_bytes=10_000, index_interval_bytes=512)
CODEC_NAMES = {
    KAFKA_0_10: {
        Codec.NONE: "NoCompressionCodec",
        Codec.GZIP: "GZIPCompressionCodec",
        Codec.SNAPPY: "SnappyCompressionCodec",
        Codec.LZ4: "LZ4CompressionCodec",
    },
    KAFKA_3_9: {codec: codec.name.lower() for codec in Codec},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One record as the tools show it. Of headers they print the names alone, in magic 2."""

    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: tuple[str, ...] = ()


def texts(count: int, magic: int) -> list[Record]:
    """Records that can be printed: null, empty and non-ASCII fields, one large value, times out of order."""
    chance = random.Random(magic)
    records = [
        Record(None, None, 1_600_000_000_000),
        Record(b"", b"", 0),
        Record("ключ".encode(), b"tombstone follows", 1_600_000_000_001),
        Record("ключ".encode(), None, 1_500_000_000_000),
        Record(None, letters(chance, 6_000), 1_600_000_000_002),
    ]
    for number in range(len(records), count):
        key = b"k%d" % (number % 17) if number % 5 else None
        value = letters(chance, chance.randrange(200))
        headers = ((f"h{number}", b"x"), ("h", None)) if magic == 2 and number % 3 == 0 else ()
        records.append(Record(key, value, 1_600_000_000_000 + chance.randrange(10_000), headers))
    return records


def letters(chance: random.Random, count: int) -> bytes:
    return bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=count))


def written_set(records: list[Record], magic: int, codec: Codec, *, by_columns: bool) -> bytes:
    """The records as a producer sends them, by the one builder of ours or the other."""
    if not by_columns:
        return build_message_set(records, magic=magic, codec=codec)
    headers = pa.array(
        [[{"key": name, "value": value} for name, value in record.headers] for record in records],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    sets = encode(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        np.array([record.timestamp_ms for record in records], dtype=np.int64),
        np.arange(len(records)),
        magic=magic,
        codec=codec,
        max_bytes=1 << 20,
        headers=raw_headers(headers) if magic == 2 else None,
    )
    return b"".join(bytes(encoded.data) for encoded in sets)


def write_log(directory: Path, magic: int, codec: Codec) -> list[Row]:
    """A log of several segments, closed; what it holds."""
    log = Log.open(RealFiles(), str(directory), CONFIG, Layout.APACHE)
    records, chance, at = texts(300, magic), random.Random(codec), 0
    while at < len(records):
        taken = records[at : at + chance.randrange(1, 12)]
        data = written_set(taken, magic, codec, by_columns=at % 2 == 0)
        log.append(validate(data, Limits(max_magic=2), now_ms=0))
        at += len(taken)
    log.close()
    return [
        Row(
            offset,
            record.timestamp_ms if magic else -1,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
            tuple(name for name, _ in record.headers),
        )
        for offset, record in enumerate(records)
    ]


Format = tuple[int, Codec]


class Written:
    """A log in each format, and what the tools say about them: each is started once for all files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rows = {form: write_log(self.path(form), *form) for form in FORMATS}
        self.dumped = cache(self._dumped)
        self.checked = cache(self._checked)

    def path(self, form: Format) -> Path:
        return self._directory / f"magic{form[0]}-{form[1].name.lower()}-0"

    def files(self, form: Format, suffix: str) -> list[Path]:
        return sorted(self.path(form).glob(f"*{suffix}"))

    def rebuild_indexes(self) -> None:
        """Remove the indexes and let recovery make them."""
        for form in FORMATS:
            for path in self.files(form, "index"):
                path.unlink()
            Log.open(RealFiles(), str(self.path(form)), CONFIG, Layout.APACHE).close()

    def _dumped(self, release: Release) -> Printed:
        files = [path for form in FORMATS if form[0] in release.magics for path in self.files(form, ".log")]
        return release.dump_log_segments(files, "--deep-iteration", "--print-data-log")

    def _checked(self, release: Release, option: str) -> Printed:
        files = [path for form in FORMATS if form[0] in release.magics for path in self.files(form, "index")]
        return release.dump_log_segments(files, option)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Written:
    made = Written(tmp_path_factory.mktemp("rebuilt"))
    made.rebuild_indexes()
    return made


def complaints(printed: Printed, files: Iterable[Path]) -> list[str]:
    """Lines on stderr that belong to one of ``files``, or to none of any."""
    paths, found, told = {str(path) for path in files}, [], True
    for line in printed.err.splitlines():
        if line.startswith("log4j:"):
            continue
        named = re.search(rf"{re.escape(os.sep)}\S+", line)
        if named is not None:
            told = named[0] in paths
        if told:
            found.append(line)
    return found


_SHOWN_BY_0_10 = re.compile(
    r"offset: (?P<offset>\d+) position: \d+ \w+: (?P<time>-?\d+) isvalid: true payloadsize: (?P<size>-?\d+) "
    r"magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: \d+"
    r"(?: keysize: \d+)?(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)
_SHOWN_BY_3_9 = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<time>-?\d+) keySize: -?\d+ valueSize: (?P<size>-?\d+)"
    r"(?: sequence: -1 headerKeys: \[(?P<headers>.*?)\])?(?: isValid: true crc: \d+\})?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)
_ENTRY_BY_3_9 = re.compile(r".*magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: \d+ isvalid: true")


def shown(printed: Printed, directory: Path, release: Release) -> tuple[list[Row], set[tuple[int, str]]]:
    """The records that the tool shows of a directory's segments, and (magic, codec) of what they lie in."""
    rows: list[Row] = []
    forms: set[tuple[int, str]] = set()
    current = False
    for line in printed.out.splitlines():
        if line.startswith("Dumping "):
            current = f"{directory}{os.sep}" in line
        elif current and not re.match(r"(Log s|S)tarting offset: \d+$", line):
            entry = (_SHOWN_BY_0_10 if release is KAFKA_0_10 else _ENTRY_BY_3_9).fullmatch(line)
            if entry is not None:
                forms.add((int(entry["magic"]), entry["codec"]))
            record = (_SHOWN_BY_0_10 if release is KAFKA_0_10 else _SHOWN_BY_3_9).fullmatch(line)
            assert entry is not None or record is not None, line
            if record is not None:
                rows.append(_row(record))
    return rows, forms


def _row(match: re.Match[str]) -> Row:
    fields = match.groupdict()
    headers = tuple((fields.get("headers") or "").split(",")) if fields.get("headers") else ()
    value = None if fields["size"] == "-1" else fields["value"]
    return Row(int(fields["offset"]), int(fields["time"]), fields["key"], value, headers)


def known_to(release: Release) -> Iterator[Format]:
    return (form for form in FORMATS if form[0] in release.magics)


every_known_format = pytest.mark.parametrize(
    ("release", "form"),
    [
        pytest.param(release, form, id=f"{release}-magic{form[0]}-{form[1].name.lower()}")
        for release in RELEASES
        for form in known_to(release)
    ],
)


@every_known_format
def test_the_tool_shows_the_records_that_we_wrote(written: Written, release: Release, form: Format) -> None:
    printed = written.dumped(release)
    assert len(written.files(form, ".log")) > 1
    rows, forms = shown(printed, written.path(form), release)
    wanted = written.rows[form]
    if release is KAFKA_0_10:
        # It does not print the key where the value is null.
        wanted = [replace(row, key=None) if row.value is None else row for row in wanted]
    assert rows == wanted
    # Asked for every record, the tool of 0.10.1.1 does not show what it lay in.
    codec = form[1] if release is KAFKA_3_9 else Codec.NONE
    assert forms == {(form[0], CODEC_NAMES[release][codec])}
    assert complaints(printed, written.files(form, ".log")) == []


@every_known_format
def test_our_indexes_pass_the_check_that_a_broker_makes(
    written: Written, rebuilt: Written, release: Release, form: Format
) -> None:
    for logs in (written, rebuilt):
        printed = logs.checked(release, "--index-sanity-check")
        files = logs.files(form, "index")
        passed = re.findall(r"^(\S+) passed sanity check", printed.out, re.MULTILINE)
        assert {str(path) for path in files} <= set(passed)
        assert complaints(printed, files) == []


@every_known_format
def test_our_time_indexes_agree_with_their_segments(
    written: Written, rebuilt: Written, release: Release, form: Format
) -> None:
    for logs in (written, rebuilt):
        printed = logs.checked(release, "--verify-index-only")
        assert complaints(printed, logs.files(form, ".timeindex")) == []


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_it_is_noticed_when_an_index_disagrees_with_its_segment(
    written: Written, tmp_path: Path, release: Release
) -> None:
    for path in written.path((1, Codec.NONE)).glob(f"{0:020d}.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("*index"):
        entries = bytearray(path.read_bytes())
        entries[-5] ^= 1  # the offset, the timestamp
        path.write_bytes(entries)
    files = sorted(tmp_path.glob("*index"))
    printed = release.dump_log_segments(files, "--verify-index-only")
    assert all(complaints(printed, [path]) for path in files)


@pytest.mark.parametrize("magic", [0, 1])
def test_our_offset_indexes_of_plain_messages_are_as_kafka_0_10_wants_them(
    written: Written, rebuilt: Written, magic: int
) -> None:
    for logs in (written, rebuilt):
        printed = logs.checked(KAFKA_0_10, "--verify-index-only")
        assert complaints(printed, logs.files((magic, Codec.NONE), ".index")) == []


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"magic{form[0]}-{form[1].name.lower()}")
def test_our_offset_indexes_are_as_kafka_3_9_wants_them(
    written: Written, rebuilt: Written, form: Format
) -> None:
    for logs in (written, rebuilt):
        printed = logs.checked(KAFKA_3_9, "--verify-index-only")
        assert complaints(printed, logs.files(form, ".index")) == []
