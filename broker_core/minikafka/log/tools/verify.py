"""The check of the files of a log, one by one (``minikafka log dump --verify``) or a whole data directory
(``minikafka log verify``). Nothing is ever written.

``segment_check`` describes valid segments and indexes. For a data directory, in addition:

- segments do not overlap. Offsets that are missing between two are a note: compaction leaves holes.
- a recovery point, high watermark, cleaner's or start offset is in its log, and the log is here. A recovery
  point beyond the end would hide damage.
- leader epochs increase and start in the log; snapshots and transaction indexes can be read.
- from the first transaction index on, every aborted transaction has its entry, and every entry its marker.
- files left behind by compaction, deletion and recovery are listed as notes.

A broker may be writing meanwhile. Then a half-written last entry, and index entries that it has only in
memory, are not damage. Checkpoints are read before the logs, and indexes before their segments, so that they
can only be older.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minikafka.base.errors import ConfigError, StorageError
from minikafka.base.files import Files, read_file
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import read_epochs
from minikafka.log.checkpoints.offset_checkpoint import read_checkpoint
from minikafka.log.checkpoints.partition_metadata import read_topic_id
from minikafka.log.file_scan import windows
from minikafka.log.index.transaction_index import AbortedTransaction, TransactionIndex
from minikafka.log.layout import (
    CLEANED_SUFFIX,
    CORRUPT_SUFFIX,
    DELETE_DIR_SUFFIX,
    DELETED_FILE_SUFFIX,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Layout,
)
from minikafka.log.tools.dump import Damage
from minikafka.log.tools.dump_files import (
    PASSING,
    TRANSACTION_BYTES,
    FileKind,
    Row,
    file_rows,
    index_entries,
    kind_of,
    read_properties,
    transactions,
)
from minikafka.log.tools.segment_check import (
    IndexEntries,
    OnBytes,
    SegmentCheck,
    check_offset_index,
    check_segment,
    check_time_index,
)
from minikafka.records.format.batch import ControlType
from minikafka.records.kernels.layout import ENTRY_HEADER_BYTES, entry_size
from minikafka.records.scan.isolation import transaction_parts

NOTICEABLE_BYTES = 4096
"""A full segment larger than this has index entries: it is Kafka's default index interval."""
_LOOK_BYTES = 1 << 16
_NONE = np.empty(0, dtype=np.int64)
_MUST_BE_HERE = (RECOVERY_POINT_FILE, "replication-offset-checkpoint")
"""Checkpoints that name every partition of the directory and no other. Others may keep old partitions."""
_INDEXES = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX})
_LEFT_BEHIND = {
    DELETED_FILE_SUFFIX: "a deleted file waiting for removal",
    CLEANED_SUFFIX: "left by a compaction that was writing it",
    SWAP_SUFFIX: "left by a compaction before it was put in place",
    CORRUPT_SUFFIX: "damaged bytes that recovery removed from the log",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, or a note about something unusual but valid. ``text`` begins with the path."""

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on one file: its kind and content, and the findings."""

    summary: Row
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The report on one partition: its log has the offsets from ``start_offset`` to ``end_offset`` - 1."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    records: int
    findings: tuple[Finding, ...]


def verify_file(files: Files, path: str, on_bytes: OnBytes = lambda count: None) -> FileReport:
    """Check one file of any kind; an index against the segment beside it.

    Raises FileNotFoundError when there is no such file, StorageError when it cannot be read, or is not of the
    kind that its name says.
    """
    kind, base = kind_of(path)
    if kind is FileKind.SEGMENT:
        segment = check_segment(files, path, base, on_bytes=on_bytes)
        return _file_report(path, kind, segment.size_bytes, _contents(segment), segment.damage)
    size = len(read_file(files, path))
    if kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}:
        entries, damage = index_entries(files, path, kind)
        contents: Row = {"entries": len(entries)}
        segment_path, closed = _segment_beside(files, path, base)
        if segment_path is None or base is None:
            missing = Finding(f"{path}: its segment is missing, so its entries cannot be checked")
            return FileReport({**_head(path, kind, size), **contents}, (*_problems(damage), missing))
        checked = _with_indexes(files, segment_path, base, {kind: path}, closed=closed, on_bytes=on_bytes)
        return _file_report(path, kind, size, contents, [*damage, *checked.damage[kind]])
    rows = list(file_rows(files, path))
    damage = [row for row in rows if isinstance(row, Damage)]
    contents = {"entries": len(rows) - len(damage)}
    if kind is FileKind.TRANSACTION_INDEX:
        damage += _wrong_transactions(path, read_file(files, path), base or 0)
    return _file_report(path, kind, size, contents, damage)


def _head(path: str, kind: FileKind, size: int) -> Row:
    return {"file": path, "kind": kind.title, "bytes": size}


def _file_report(path: str, kind: FileKind, size: int, contents: Row, damage: Sequence[Damage]) -> FileReport:
    return FileReport({**_head(path, kind, size), **contents, "problems": len(damage)}, _problems(damage))


def _problems(damages: Iterable[Damage]) -> tuple[Finding, ...]:
    return tuple(Finding(str(damage)) for damage in damages)


def _contents(segment: SegmentCheck) -> Row:
    return {
        "entries": segment.entries,
        "records": segment.records,
        "first_offset": segment.first_offset,
        "last_offset": segment.last_offset,
        "largest_timestamp": segment.newest_ms if segment.newest_ms >= 0 else None,
        "codecs": list(segment.codecs),
        "magics": list(segment.magics),
    }


def _segment_beside(files: Files, path: str, base: int | None) -> tuple[str | None, bool]:
    """Return the segment of an index, and whether it is closed, which a later segment shows."""
    directory, name = os.path.split(path)
    added = PASSING.search(name)
    suffix = "" if added is None else added[0]
    digits = name.partition(".")[0]
    names = files.list_dir(directory or ".")
    wanted = {f"{digits}{ending}{suffix}" for ending in FileKind.SEGMENT.endings}
    found = next((os.path.join(directory, other) for other in names if other in wanted), None)
    bases = [layout.segment_base(other) for other in names for layout in Layout]
    return found, base is not None and any(other is not None and other > base for other in bases)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The check of a segment, with the damage of its indexes; a missing index has no entry."""

    segment: SegmentCheck
    damage: dict[FileKind, list[Damage]]


def _with_indexes(
    files: Files,
    path: str,
    base: int,
    index_paths: Mapping[FileKind, str],
    *,
    closed: bool,
    growing: bool = False,
    on_bytes: OnBytes,
) -> _Checked:
    """Check a segment and its existing indexes. Raises as ``check_segment`` does."""
    found: dict[FileKind, IndexEntries] = {}
    damage: dict[FileKind, list[Damage]] = {}
    for kind, index_path in index_paths.items():
        # The index was removed since it was listed, or never written.
        with contextlib.suppress(FileNotFoundError):
            found[kind], damage[kind] = index_entries(files, index_path, kind)
    positions = found[FileKind.OFFSET_INDEX][:, 1] if FileKind.OFFSET_INDEX in found else _NONE
    offsets = base + found[FileKind.TIME_INDEX][:, 1] if FileKind.TIME_INDEX in found else _NONE
    segment = check_segment(files, path, base, positions=positions, offsets=offsets, on_bytes=on_bytes)
    if FileKind.OFFSET_INDEX in found:
        index_path, entries = index_paths[FileKind.OFFSET_INDEX], found[FileKind.OFFSET_INDEX]
        damage[FileKind.OFFSET_INDEX] += check_offset_index(
            index_path, entries, base, segment, growing=growing
        )
    if FileKind.TIME_INDEX in found:
        index_path, entries = index_paths[FileKind.TIME_INDEX], found[FileKind.TIME_INDEX]
        damage[FileKind.TIME_INDEX] += check_time_index(
            index_path, entries, base, segment, closed=closed, growing=growing
        )
    return _Checked(segment, damage)


def _wrong_transactions(path: str, data: bytes, base: int) -> list[Damage]:
    """Return the invalid entries of a transaction index: each must end after the one before."""
    damage = []
    before = base - 1
    for number, entry in enumerate(transactions(data)):
        first, last = entry["first_offset"], entry["last_offset"]
        reason = None
        if entry["version"] != 0:
            reason = f"version {entry['version']}"
        elif not 0 <= first <= last or last <= before:
            reason = f"offsets {first} to {last} cannot follow offset {before}"
        if reason is not None:
            damage.append(Damage(path, number * TRANSACTION_BYTES, TRANSACTION_BYTES, reason))
        before = max(before, last)
    return damage


def _ended_transactions(
    files: Files, path: str, base: int, opened: dict[int, int]
) -> dict[int, tuple[int, int | None, ControlType]] | None:
    """Return the markers of a segment: offset -> producer, the first offset of its transaction if there is
    one, and the kind; None if the segment is damaged. ``opened``: the first offsets of open transactions.
    """
    ended: dict[int, tuple[int, int | None, ControlType]] = {}
    with contextlib.closing(files.open(path, read_only=True)) as file:
        for window in windows(file, 0, file.size(), base, check_crc=False):
            if window.result.problem is not None and not window.result.incomplete:
                return None
            for part in transaction_parts(window.data):
                if part.mark is None:
                    opened.setdefault(part.producer_id, part.first_offset)
                else:
                    first = opened.pop(part.producer_id, None)
                    ended[part.first_offset] = (part.producer_id, first, part.mark)
    return ended


# A whole data directory.


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's directory and its files."""

    partition: TopicPartition
    path: str
    layout: Layout
    bases: tuple[int, ...]
    """The base offsets of its segments, increasing."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The partitions and checkpoints in a data directory."""

    path: str
    partitions: tuple[_Partition, ...]
    total_bytes: int
    """The size of all segments."""
    checkpoints: dict[str, dict[TopicPartition, int]]
    deleted: frozenset[str]
    """Names of partitions that are being deleted."""
    findings: tuple[Finding, ...]


def data_directories(files: Files, path: str) -> list[str]:
    """Return ``path`` if it has logs, otherwise its brokers' directories, as `minikafka up` creates them.

    Raises ConfigError when there are none.
    """
    if files.is_dir(path):
        if _is_data_directory(files, path):
            return [path]
        below = [os.path.join(path, name) for name in files.list_dir(path) if name.startswith("broker-")]
        found = [inner for inner in below if files.is_dir(inner) and _is_data_directory(files, inner)]
        if found:
            return found
    problem = "no logs of a broker found" if files.is_dir(path) else "there is no such directory"
    raise ConfigError("DATA_DIR", path, f"{problem}; expected a directory of log.dirs")


def _is_data_directory(files: Files, path: str) -> bool:
    return any(
        kind_of(name)[0] in {FileKind.CHECKPOINT, FileKind.PROPERTIES}
        or _partition_in(files, path, name) is not None
        for name in files.list_dir(path)
    )


def _partition_in(files: Files, path: str, name: str) -> _Partition | None:
    inside = os.path.join(path, name)
    for layout in Layout:
        partition = layout.partition_of(name)
        if partition is not None and files.is_dir(inside) and layout.fits(files, inside):
            names = tuple(files.list_dir(inside))
            bases = sorted(base for file in names if (base := layout.segment_base(file)) is not None)
            return _Partition(partition, inside, layout, tuple(bases), names)
    return None


def list_directory(files: Files, path: str) -> DirectoryListing:
    """List the partitions and checkpoints of a data directory. Raises StorageError when it cannot be read."""
    partitions, checkpoints, deleted, findings = [], {}, set(), []
    total = 0
    for name in files.list_dir(path):
        inner = os.path.join(path, name)
        found = _partition_in(files, path, name)
        if found is not None:
            partitions.append(found)
            for base in found.bases:
                total += _size(files, os.path.join(inner, found.layout.segment_name(base)))
        elif files.is_dir(inner):
            if name.endswith(DELETE_DIR_SUFFIX):
                deleted.add(name.removesuffix(DELETE_DIR_SUFFIX).rpartition(".")[0])
                findings.append(Finding(f"{inner}: a deleted partition waiting for removal", note=True))
            else:
                findings.append(Finding(f"{inner}: ignored, no segment found", note=True))
        elif kind_of(name)[0] in {FileKind.CHECKPOINT, FileKind.PROPERTIES}:
            try:
                if kind_of(name)[0] is FileKind.CHECKPOINT:
                    checkpoints[inner] = read_checkpoint(files, inner)
                else:
                    read_properties(files, inner)
            except StorageError as error:
                findings.append(Finding(str(error)))
    try:
        Layout.recognise(files, path)
    except StorageError as error:
        findings.append(Finding(str(error)))
    return DirectoryListing(path, tuple(partitions), total, checkpoints, frozenset(deleted), tuple(findings))


def _size(files: Files, path: str) -> int:
    with contextlib.suppress(FileNotFoundError), contextlib.closing(files.open(path, read_only=True)) as file:
        return file.size()
    return 0


def verify_partitions(
    files: Files, found: DirectoryListing, *, in_use: bool = False, on_bytes: OnBytes = lambda count: None
) -> Iterator[PartitionReport]:
    """Check every partition of a data directory, one after the other.

    Raises StorageError when one cannot be read.

    ``in_use``: a broker may be writing.
    """
    points = found.checkpoints.get(os.path.join(found.path, LOG_START_FILE), {})
    for partition in found.partitions:
        report = _PartitionCheck(files, partition, in_use, on_bytes).run()
        point = points.get(partition.partition, 0)
        if report.start_offset < point <= report.end_offset:
            report = replace(report, start_offset=point)
        yield report


def verify_checkpoints(
    found: DirectoryListing, reports: Iterable[PartitionReport], *, in_use: bool = False
) -> list[Finding]:
    """Return the offsets in a data directory's checkpoints that its logs do not have."""
    ends = {report.partition: report.end_offset for report in reports}
    layouts = {partition.layout for partition in found.partitions} or set(Layout)
    findings = []
    for path, points in found.checkpoints.items():
        must_be_here = os.path.basename(path) in _MUST_BE_HERE and not in_use
        for partition, offset in sorted(points.items()):
            if partition not in ends:
                leaving = any(layout.leftover_stem(partition) in found.deleted for layout in layouts)
                text = f"{path}: {partition} at offset {offset} is not in this directory"
                findings.append(Finding(text, note=leaving or not must_be_here))
            elif offset > ends[partition]:
                text = f"{path}: {partition} at offset {offset}, its log ends at offset {ends[partition]}"
                findings.append(Finding(text))
    return findings


class _PartitionCheck:
    """The check of one partition."""

    def __init__(self, files: Files, found: _Partition, in_use: bool, on_bytes: OnBytes) -> None:
        self._files = files
        self._found = found
        self._in_use = in_use
        self._on_bytes = on_bytes
        self._findings: list[Finding] = []
        self._segments = self._bytes = self._records = 0

    def run(self) -> PartitionReport:
        found = self._found
        epochs = self._epochs()
        start, end = None, 0
        for base in found.bases:
            behind = self._segment(base, newest=base == found.bases[-1])
            if behind is None:
                continue
            if start is None:
                start = end = base
            if base > end:
                self._note(self._path(base), f"offsets {end} to {base - 1} are missing")
            elif base < end:
                self._problem(self._path(base), f"the segment before it reaches offset {end - 1}")
            end = max(end, behind)
        self._check_transactions()
        for path, epoch, offset in epochs:
            if offset > end:
                self._problem(path, f"epoch {epoch} begins at offset {offset}, the log ends at offset {end}")
        for name in found.names:
            self._other(name)
        return PartitionReport(
            found.partition,
            start or 0,
            end,
            self._segments,
            self._bytes,
            self._records,
            tuple(self._findings),
        )

    def _path(self, base: int) -> str:
        return os.path.join(self._found.path, self._found.layout.segment_name(base))

    def _problem(self, path: str, text: str) -> None:
        self._findings.append(Finding(f"{path}: {text}"))

    def _note(self, path: str, text: str) -> None:
        self._findings.append(Finding(f"{path}: {text}", note=True))

    def _segment(self, base: int, *, newest: bool) -> int | None:
        """Check a segment with its indexes; return the offset after it, None when it was removed."""
        layout, path = self._found.layout, self._path(base)
        index_paths = {
            FileKind.OFFSET_INDEX: os.path.join(self._found.path, layout.index_name(base)),
            FileKind.TIME_INDEX: os.path.join(self._found.path, layout.time_index_name(base)),
        }
        growing = newest and self._in_use

        def check(on_bytes: OnBytes) -> _Checked:
            return _with_indexes(
                self._files, path, base, index_paths, closed=not newest, growing=growing, on_bytes=on_bytes
            )

        try:
            checked = check(self._on_bytes)
            if self._in_use and any(checked.damage.values()):
                # Compaction may have replaced the segment behind the indexes that were read.
                checked = check(lambda count: None)
        except FileNotFoundError:
            self._note(path, "removed while it was checked")
            return None
        segment = checked.segment
        self._segments += 1
        self._bytes += segment.size_bytes
        self._records += segment.records
        for damage in segment.damage:
            if growing and self._is_being_written(damage, segment.size_bytes):
                self._note(path, f"{damage.length} bytes at its end are being written")
            else:
                self._findings.append(Finding(str(damage)))
        for damage_of_index in checked.damage.values():
            self._findings += _problems(damage_of_index)
        for kind, index_path in index_paths.items():
            used = segment.newest_ms >= 0 or kind is FileKind.OFFSET_INDEX
            if kind not in checked.damage and not newest and used and segment.size_bytes > NOTICEABLE_BYTES:
                self._note(index_path, f"the {kind.title} is missing; a broker will rebuild it")
        return base if segment.last_offset is None else segment.last_offset + 1

    def _check_transactions(self) -> None:
        """Compare the transaction indexes with the markers in the segments."""
        layout, checked = self._found.layout, False
        opened: dict[int, int] = {}
        for base in self._found.bases:
            path = os.path.join(self._found.path, layout.transaction_index_name(base))
            index = TransactionIndex.load(self._files, path, base)
            checked = checked or index is not None
            if not checked and not any(name.endswith(TRANSACTION_INDEX_SUFFIX) for name in self._found.names):
                return
            try:
                ended = _ended_transactions(self._files, self._path(base), base, opened)
            except FileNotFoundError:
                return  # removed meanwhile
            if ended is None:
                return  # damaged: that is reported, and nothing behind it can be known
            if checked and (index is None or not index.damaged):
                known = [] if index is None else index.entries()
                growing = self._in_use and base == self._found.bases[-1]
                self._compare_transactions(path, known, ended, growing=growing)

    def _compare_transactions(
        self,
        path: str,
        known: Sequence[AbortedTransaction],
        ended: Mapping[int, tuple[int, int | None, ControlType]],
        *,
        growing: bool,
    ) -> None:
        for entry in known:
            producer_id, first, kind = ended.get(entry.last_offset, (None, None, None))
            name = f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
            if producer_id != entry.producer_id or kind is not ControlType.ABORT:
                self._problem(path, f"{name}: no marker at the last offset aborts a transaction of it")
            elif first is not None and first < entry.first_offset:
                self._problem(path, f"{name}: the transaction has a batch at offset {first}")
        offsets = {entry.last_offset for entry in known}
        newest = max(offsets, default=-1)
        for last, (producer_id, first, kind) in ended.items():
            missing = kind is ControlType.ABORT and first is not None and last not in offsets
            if missing and not (growing and last > newest):
                self._problem(
                    path,
                    f"no entry for producer {producer_id}, whose transaction from offset {first} is aborted "
                    f"at offset {last}: consumers of committed records may see it",
                )

    def _is_being_written(self, damage: Damage, size: int) -> bool:
        """Return whether damage at the end of a segment may be an unfinished append or preallocated space."""
        if damage.position + damage.length < size:
            return False
        with contextlib.closing(self._files.open(damage.path, read_only=True)) as file:
            data = file.read_at(damage.position, min(damage.length, _LOOK_BYTES))
        if len(data) < ENTRY_HEADER_BYTES or not any(data):
            return True
        return entry_size(data) > damage.length

    def _epochs(self) -> list[tuple[str, int, int]]:
        """Return (path, epoch, first offset) of each entry."""
        found = []
        for name in self._found.names:
            path = os.path.join(self._found.path, name)
            if kind_of(name)[0] is FileKind.EPOCHS:
                try:
                    found += [(path, *entry) for entry in read_epochs(self._files, path)]
                except FileNotFoundError:
                    pass
                except StorageError as error:
                    self._findings.append(Finding(str(error)))
        return found

    def _other(self, name: str) -> None:
        """Check a file that is neither a segment nor its index, if it is of a known kind."""
        path = os.path.join(self._found.path, name)
        kind, base = kind_of(name)
        added = PASSING.search(name)
        if added is not None:
            self._note(path, _LEFT_BEHIND[name[name.rindex(".") :]])
        elif base not in self._found.bases and kind in _INDEXES:
            self._problem(path, "its segment is missing")
        elif kind in {FileKind.TRANSACTION_INDEX, FileKind.PRODUCERS, FileKind.PROPERTIES}:
            try:
                self._findings += verify_file(self._files, path).findings
                if name == PARTITION_METADATA_FILE:
                    read_topic_id(self._files, self._found.path)
            except FileNotFoundError:
                pass
            except StorageError as error:
                self._findings.append(Finding(str(error)))
