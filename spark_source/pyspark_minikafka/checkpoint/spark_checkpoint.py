"""The start of the first batch of a query that Spark's own connector started, from its checkpoint's files.

Spark passes the end of such a batch to the source, but not its start, which the connector stores itself::

    offsets/0           v1, metadata, then a line for each source of the query: where batch 0 ends
                        (v2, from Spark 4.2 on: with the source's name before it)
    sources/N/0         source N's offset before batch 0: a zero byte, v1, one line (Spark 2.1.0: that alone)
    commits/0           batch 0 is done; nothing of this is needed afterwards

A source does not know its number N. The end of batch 0 identifies its line of ``offsets/0``; before there is
a batch, the topics do. An ambiguous checkpoint is refused, never guessed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import BadStreamOffset, Offsets, StreamOffset, to_json
from pyspark_minikafka.strategy import Assign, Strategy

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

RESUME_FROM = "minikafka.resume.from"
CHECKPOINT = "checkpointLocation"
"""Seen by the source only if it is set on the reader, not on the writer or the session."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")

Reads = Callable[[TopicPartition], bool]
"""A predicate: does the query read the partition?"""


class UnknownStart(MinikafkaError):
    """Another source started the query, and the start of its first batch is unknown."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            "the first batch in this checkpoint was planned by another source and never finished, and its "
            f"start is unknown: {why}. Alternatively, finish the batch with that source"
        )


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """The directory of a checkpoint, and the option that names it."""

    option: str
    directory: str

    def __str__(self) -> str:
        return f"{self.option}={self.directory}"


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """The first batch in a checkpoint, by the names of its sources (mostly their numbers).

    starts: the connector's initial offsets of each source.
    ends: the end of batch 0; empty before it is planned.
    committed: any batch is done.
    """

    starts: Mapping[str, Offsets] = field(default_factory=dict)
    ends: Mapping[str, Offsets] = field(default_factory=dict)
    committed: bool = False

    def before_planning(self, reads: Reads) -> Offsets | None:
        """Return the start of the source that reads ``reads`` before a batch is planned; None when no file
        contains it.
        """
        if self.ends:
            return None  # the batch's end will identify the source
        return _unambiguous(start for start in self.starts.values() if all(map(reads, start)))

    def of_first_batch(self, end: Mapping[TopicPartition, int]) -> Offsets:
        """Return the start of the source whose batch 0 ends at ``end``."""
        ours = [name for name, offsets in self.ends.items() if offsets == end]
        if not ours:
            raise UnknownStart(f"offsets/0 does not contain the end of the batch, {json.dumps(to_json(end))}")
        missing = [name for name in ours if name not in self.starts]
        if missing:
            raise UnknownStart(f"the file sources/{missing[0]}/0 does not exist")
        start = _unambiguous(self.starts[name] for name in ours)
        assert start is not None
        return start


def _unambiguous(starts: Iterable[Offsets]) -> Offsets | None:
    """Return the start that all of ``starts`` agree on; None for no start."""
    found = list(starts)
    if any(start != found[0] for start in found):
        texts = " and ".join(json.dumps(to_json(start)) for start in found)
        raise UnknownStart(f"several sources of the query read the same topics and start at {texts}")
    return found[0] if found else None


class Resume:
    """The planner's view of one checkpoint. Its files are read at each call."""

    def __init__(
        self, location: CheckpointLocation | None, reads: Reads, warn: Callable[[str], None]
    ) -> None:
        self._location = location
        self._reads = reads
        self._warn = warn

    def initial(self) -> Offsets | None:
        """Return the start of a query without a batch; None when its options decide."""
        location = self._location
        if location is None:
            return None
        try:
            first = read(location.directory)
        except OSError as problem:
            if location.option == RESUME_FROM:
                raise UnknownStart(f"cannot read {location}: {problem}") from problem
            self._warn(f"cannot read {location}, so a new query starts where its options say: {problem}")
            return None
        if not first.committed:
            return first.before_planning(self._reads)
        # Spark asks for a query's start only while it has no batch: so the query has another checkpoint.
        if location.option == RESUME_FROM:
            raise ConfigError(
                RESUME_FROM,
                location.directory,
                "must be the checkpoint of this query, which has another one; set the writer's "
                "checkpointLocation to this directory too",
            )
        return None

    def of_first_batch(self, end: Mapping[TopicPartition, int]) -> Offsets:
        """Return the start of the batch that another source planned to ``end``. Raise UnknownStart."""
        location = self._location
        if location is None:
            raise UnknownStart(
                f"set the option {RESUME_FROM} to the checkpoint's directory, whose files contain it"
            )
        try:
            return read(location.directory).of_first_batch(end)
        except UnknownStart as problem:
            raise UnknownStart(f"{location}: {problem.why}") from None
        except OSError as problem:
            raise UnknownStart(f"cannot read {location}: {problem}") from problem


def reads(strategy: Strategy) -> Reads:
    """Return a predicate for the partitions that a query with ``strategy`` reads."""
    if isinstance(strategy, Assign):
        return strategy.partitions.__contains__
    return lambda tp: strategy.reads(tp.topic)


def check(location: CheckpointLocation) -> None:
    """Raise ConfigError unless the directory exists and is a checkpoint."""
    option, directory = location.option, location.directory
    try:
        system, path = _system(directory)
        names = _names(system, path)
    except OSError as problem:
        raise ConfigError(option, directory, f"cannot be read: {problem}") from None
    allowed = "must be the directory of a checkpoint"
    if names is None:
        raise ConfigError(option, directory, f"{allowed}, but does not exist")
    if not {"offsets", "sources"} & set(names):
        raise ConfigError(option, directory, f"{allowed}, but has neither offsets/ nor sources/")


def read(directory: str) -> FirstBatch:
    """Read the checkpoint in ``directory``; an empty one when the directory does not exist.

    directory: a path, or a URI that pyarrow knows (file:, hdfs:, s3:, gs:, abfs:). Raise OSError when it
    cannot be read.
    """
    system, path = _system(directory)
    starts = {
        name: parse_start(_content(system, f"{path}/sources/{name}/0"))
        for name in _names(system, f"{path}/sources") or ()
        if "0" in (_names(system, f"{path}/sources/{name}") or ())
    }
    has_ends = "0" in (_names(system, f"{path}/offsets") or ())
    ends = parse_ends(_content(system, f"{path}/offsets/0")) if has_ends else {}
    committed = any(map(str.isdecimal, _names(system, f"{path}/commits") or ()))
    return FirstBatch(starts, ends, committed)


def last_batch(directory: str) -> int | None:
    """Return the number of the newest planned batch in a checkpoint; None for no batch. Raise OSError when it
    cannot be read.
    """
    system, path = _system(directory)
    return max(map(int, filter(str.isdecimal, _names(system, f"{path}/offsets") or ())), default=None)


def plan_of(directory: str, batch_id: int) -> str | None:
    """Return what identifies the plan of a batch, which a rerun shares and a new plan of the same number does
    not: ``offsets/N`` has the time at which Spark planned it. None when it cannot be read.

    Only local directories are read: this is asked for in every micro-batch.
    """
    scheme = _SCHEME.match(directory)
    if scheme is not None and scheme[1].lower() != "file":
        return None
    with contextlib.suppress(OSError, ValueError):
        system, path = _system(directory)
        return hashlib.sha256(_content(system, f"{path}/offsets/{batch_id}")).hexdigest()[:32]
    return None


def watermark_ms(location: CheckpointLocation | None) -> int | None:
    """Return the watermark after the last committed batch of a checkpoint, in ms since 1970; 0 when the query
    has none, None when no batch is committed or it cannot be read.

    ``commits/N`` holds, after a line with its version, ``{"nextBatchWatermarkMs": …}``.
    """
    if location is None:
        return None
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        system, path = _system(location.directory)
        done = [int(name) for name in _names(system, f"{path}/commits") or () if name.isdecimal()]
        if done:
            _, _, rest = _content(system, f"{path}/commits/{max(done)}").decode().partition("\n")
            return int(json.loads(rest.splitlines()[0]).get("nextBatchWatermarkMs", 0))
    return None


def parse_start(content: bytes) -> Offsets:
    """Return the offsets in ``sources/N/0``."""
    text = content.removeprefix(b"\0").decode()
    version, newline, rest = text.partition("\n")
    if text.startswith("v"):
        if version != "v1" or not newline:
            raise UnknownStart(f"sources/N/0 has version {version!r}; only v1 is supported")
        text = rest
    return _offsets(text)


def parse_ends(content: bytes) -> dict[str, Offsets]:
    """Return the offsets of each Kafka source in ``offsets/0``, without those of other sources."""
    version, _, *lines = content.decode().splitlines()
    if version == "v1":
        named = [(str(number), line) for number, line in enumerate(lines)]
    elif version == "v2":
        named = [(name, line) for name, _, line in (line.partition(":") for line in lines)]
    else:
        raise UnknownStart(f"offsets/0 has version {version!r}; only v1 and v2 are supported")
    ends = {}
    for name, line in named:
        with contextlib.suppress(UnknownStart):
            ends[name] = _offsets(line)
    return ends


def _offsets(text: str) -> Offsets:
    try:
        return dict(StreamOffset.from_json(json.loads(text)).positions)
    except (ValueError, AttributeError, TypeError, BadStreamOffset):
        raise UnknownStart(f"{text[:200]!r} is not an offset of a Kafka source") from None


def is_address(directory: str) -> bool:
    """Return True if ``directory`` begins with a URI scheme."""
    return _SCHEME.match(directory) is not None


def _system(directory: str) -> tuple[FileSystem, str]:
    """Return the file system of ``directory``, and its path there."""
    from pyarrow import fs

    scheme = _SCHEME.match(directory)
    if scheme is None:
        return fs.LocalFileSystem(), directory
    if scheme[1].lower() == "file":
        return fs.LocalFileSystem(), re.sub(r"^[^:]*:(//[^/]*(?=/))?", "", directory)
    try:
        system, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", directory))
    except ValueError as problem:
        raise OSError(str(problem)) from problem
    return system, path


def _names(system: FileSystem, path: str) -> list[str] | None:
    """Return the names in a directory; None when it does not exist."""
    from pyarrow import fs

    if system.get_file_info(path).type is not fs.FileType.Directory:
        return None
    return sorted(info.base_name for info in system.get_file_info(fs.FileSelector(path)))


def _content(system: FileSystem, path: str) -> bytes:
    with system.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())
