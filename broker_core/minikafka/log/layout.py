"""Names on the disk: which directory holds which partition, which file holds which offsets.

    classic   my_topic_0/00000000000.kafka            00000000000.index            (the texts' own)
    apache    my_topic-0/00000000000000000000.log     00000000000000000000.index   (the 0.10.1 release's)

A time index ends in ``.timeindex`` in both; ``OFFSET.snapshot`` (20 digits in both) has the producers known
below that offset. One more suffix says what becomes of a file: ``.deleted`` (it
goes soon), ``.cleaned`` (compaction writes it), ``.swap`` (compaction has written it, and it replaces
others), ``.corrupt`` (damaged bytes that recovery took away).

A segment is named with the offset of the first message that it may hold, in at least 11 or 20 digits; the
number counts, not how the names sort. A topic may hold ``_``, ``-`` and digits: what follows the last
separator is the partition. The two never claim the same directory, as the character before the trailing
digits decides. Directories whose name ends with ``.N-delete`` are deleted partitions on their way out, those
with ``.N-stray`` were set aside: they are of an earlier topic of that name, and stay until somebody removes
them. In front of that a long topic's name is cut, as a directory's name has 255 bytes at most.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum

from minikafka.base.errors import ConfigError, StorageError
from minikafka.base.files import Files
from minikafka.base.ids import TOPIC_NAME_MAX_LENGTH, TopicPartition

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
CORRUPT_SUFFIX = ".corrupt"
GONE_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SNAPSHOT_SUFFIX = ".snapshot"
FOREIGN_SUFFIXES = (".txnindex",)
"""What later releases of Kafka keep beside a segment: nothing here reads it, and it goes with its segment."""

NAME_MAX_BYTES = 255
"""Of one file or directory, with every file system that matters."""
_LEFTOVER_STEM_MAX = NAME_MAX_BYTES - len(f".{1 << 32}{DELETED_SUFFIX}")

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_POINT_FILE = "cleaner-offset-checkpoint"
CREATIONS_FILE = "topic-creations.json"
BEGUN_FILE = "leader-epochs-begun.json"
EPOCHS_FILE = "leader-epoch-checkpoint"

_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)([_-])(0|[1-9][0-9]{0,9})")


def snapshot_name(offset: int) -> str:
    """The file with what is known of producers below ``offset``, in both layouts."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


class Layout(Enum):
    """The naming in a data directory: separator before the partition, segment suffix, digits of an offset."""

    CLASSIC = ("_", ".kafka", 11)
    APACHE = ("-", ".log", 20)

    def __init__(self, separator: str, segment_suffix: str, digits: int) -> None:
        self.separator = separator
        self.segment_suffix = segment_suffix
        self.offset_digits = digits

    @classmethod
    def parse(cls, name: str) -> Layout:
        """The layout that the property ``log.layout`` names: classic or apache."""
        for layout in cls:
            if layout.name.lower() == name.strip().lower():
                return layout
        raise ConfigError("log.layout", name, "one of classic, apache")

    def directory_name(self, partition: TopicPartition) -> str:
        """The directory of a partition, inside a data directory."""
        return f"{partition.topic}{self.separator}{partition.partition}"

    def leftover_stem(self, partition: TopicPartition) -> str:
        """The beginning of the directory's name once the partition is deleted or set aside: the name that it
        had, its topic cut where a number and a suffix would not fit behind it.
        """
        tail = f"{self.separator}{partition.partition}"
        return partition.topic[: _LEFTOVER_STEM_MAX - len(tail)] + tail

    def partition_of(self, directory_name: str) -> TopicPartition | None:
        """The partition that a directory holds by its name; None when the name is not one of this layout."""
        match = _DIRECTORY.fullmatch(directory_name)
        if match is None or match[2] != self.separator or directory_name.endswith(DELETED_SUFFIX):
            return None
        topic, number = match[1], int(match[3])
        if len(topic) > TOPIC_NAME_MAX_LENGTH or topic in {".", ".."} or number > 0x7FFFFFFF:
            return None
        return TopicPartition(topic, number)

    def segment_name(self, base_offset: int) -> str:
        """The file with the messages from ``base_offset``."""
        return f"{base_offset:0{self.offset_digits}d}{self.segment_suffix}"

    def index_name(self, base_offset: int) -> str:
        """The offset index beside that file."""
        return f"{base_offset:0{self.offset_digits}d}{INDEX_SUFFIX}"

    def time_index_name(self, base_offset: int) -> str:
        """The time index beside that file."""
        return f"{base_offset:0{self.offset_digits}d}{TIME_INDEX_SUFFIX}"

    def companions(self, base_offset: int) -> tuple[str, ...]:
        """The files that go with a segment: its indexes, the producers known where it begins, and what later
        releases of Kafka put there.
        """
        foreign = (f"{base_offset:020d}{suffix}" for suffix in FOREIGN_SUFFIXES)
        names = self.index_name(base_offset), self.time_index_name(base_offset), snapshot_name(base_offset)
        return (*names, *foreign)

    def segment_base(self, file_name: str) -> int | None:
        """The base offset in a segment's name; None for another file."""
        return self._number(file_name, self.segment_suffix)

    def index_base(self, file_name: str) -> int | None:
        """The base offset in the name of an index of either kind; None for another file."""
        base = self._number(file_name, INDEX_SUFFIX)
        return self._number(file_name, TIME_INDEX_SUFFIX) if base is None else base

    def _number(self, file_name: str, suffix: str) -> int | None:
        digits = file_name.removesuffix(suffix)
        if (
            digits == file_name
            or len(digits) < self.offset_digits
            or not (digits.isascii() and digits.isdigit())
        ):
            return None
        base = int(digits)
        # One offset has one name: 000000000000.kafka beside 00000000000.kafka is no segment of ours.
        return base if base < 1 << 63 and digits == f"{base:0{self.offset_digits}d}" else None

    @classmethod
    def recognise(cls, files: Files, directory: str) -> Layout | None:
        """The layout of the partitions that lie in a data directory; None where none lies there.

        StorageError when both do: one of them would not be served, which nobody may find out by chance.
        """
        found: dict[Layout, str] = {}
        for name in files.list_dir(directory) if files.is_dir(directory) else []:
            for layout in cls:
                if layout not in found and layout.partition_of(name) is not None:
                    path = os.path.join(directory, name)
                    if files.is_dir(path) and layout.fits(files, path):
                        found[layout] = name
        if len(found) > 1:
            raise StorageError(
                f"{directory} holds partitions in the classic layout ({found[cls.CLASSIC]}) and the apache "
                f"layout ({found[cls.APACHE]}); move those of one layout to a directory of their own"
            )
        return next(iter(found), None)

    def found(self, files: Files, directory: str) -> Iterator[tuple[TopicPartition, str]]:
        """The partitions that lie in a data directory, with their own directories."""
        for name in files.list_dir(directory):
            partition = self.partition_of(name)
            path = os.path.join(directory, name)
            if partition is not None and files.is_dir(path) and self.fits(files, path):
                yield partition, path

    def fits(self, files: Files, partition_directory: str) -> bool:
        """Return whether a directory with a fitting name holds segments of this layout, or nothing yet."""
        names = files.list_dir(partition_directory)
        return not names or any(self.segment_base(name) is not None for name in names)
