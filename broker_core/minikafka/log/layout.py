"""Names of the directories of partitions and of the files of segments, in two layouts.

    classic   my_topic_0/00000000000.kafka            00000000000.index            (the texts' own)
    apache    my_topic-0/00000000000000000000.log     00000000000000000000.index   (the 0.10.1 release's)

A time index ends in ``.timeindex`` in both, an index of aborted transactions, which only segments with
transactions have, in ``.txnindex``; ``OFFSET.snapshot`` (20 digits in both) has the producer state
below that offset. One more suffix gives the state of a file: ``.deleted`` (it will be removed soon),
``.cleaned`` (compaction is writing it), ``.swap`` (compaction has written it, and it replaces others),
``.corrupt`` (damaged bytes that recovery removed from the log).

A segment is named with the offset of the first message that it may hold, in at least 11 or 20 digits; the
number counts, not the sort order of the names. A topic name may contain ``_``, ``-`` and digits: the
partition is what follows the last separator. No directory name is valid in both layouts, as the character
before the trailing digits decides. Directories whose name ends with ``.N-delete`` are deleted partitions
that are being removed. Those with ``.N-stray`` were set aside: they belong to an earlier topic of that name,
and stay until someone removes them. In these names a long topic name is shortened, as a directory name has
at most 255 bytes. Those with ``.N-future`` are copies of logs that move to this data directory
(``future_logs``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum

from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.base.ids import TOPIC_NAME_MAX_LENGTH, TopicPartition

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
CORRUPT_SUFFIX = ".corrupt"
DELETED_FILE_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SNAPSHOT_SUFFIX = ".snapshot"
TRANSACTION_INDEX_SUFFIX = ".txnindex"

NAME_MAX_BYTES = 255
"""The longest name of a file or directory, on every common file system."""
_LEFTOVER_STEM_MAX = NAME_MAX_BYTES - len(f".{1 << 32}{DELETE_DIR_SUFFIX}")

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
TOPIC_INCARNATIONS_FILE = "topic-creations.json"
LEADER_EPOCH_JOURNAL_FILE = "leader-epochs-begun.json"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
"""In a partition's directory: the id of its topic (``partition_metadata``)."""
LOG_REPLACEMENT_FILE = "log-replacement"
"""In a partition's directory while it replaces the log in another data directory (``future_logs``)."""

_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)([_-])(0|[1-9][0-9]{0,9})")
_FUTURE = re.compile(rf"(.+)\.[^.]+{re.escape(FUTURE_DIR_SUFFIX)}")


def snapshot_name(offset: int) -> str:
    """Return the name of the snapshot of the producer state below ``offset``, in both layouts."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


class Layout(Enum):
    """A naming scheme of data directories: partition separator, segment suffix, digits of an offset."""

    CLASSIC = ("_", ".kafka", 11)
    APACHE = ("-", ".log", 20)

    def __init__(self, separator: str, segment_suffix: str, digits: int) -> None:
        self.separator = separator
        self.segment_suffix = segment_suffix
        self.offset_digits = digits

    def directory_name(self, partition: TopicPartition) -> str:
        """Return the name of a partition's directory inside a data directory."""
        return f"{partition.topic}{self.separator}{partition.partition}"

    def leftover_stem(self, partition: TopicPartition) -> str:
        """Return the first part of the directory's name after the partition is deleted or set aside.

        That is the partition's directory name, with the topic shortened so that a number and a suffix fit.
        """
        tail = f"{self.separator}{partition.partition}"
        return partition.topic[: _LEFTOVER_STEM_MAX - len(tail)] + tail

    def partition_of(self, directory_name: str) -> TopicPartition | None:
        """Return the partition of a directory by its name; None when the name is not one of this layout."""
        match = _DIRECTORY.fullmatch(directory_name)
        if match is None or match[2] != self.separator or directory_name.endswith(DELETE_DIR_SUFFIX):
            return None
        topic, number = match[1], int(match[3])
        if len(topic) > TOPIC_NAME_MAX_LENGTH or topic in {".", ".."} or number > 0x7FFFFFFF:
            return None
        return TopicPartition(topic, number)

    def future_partition_of(self, directory_name: str) -> TopicPartition | None:
        """Return the partition of a future log by the name of its directory; None for other names."""
        match = _FUTURE.fullmatch(directory_name)
        return None if match is None else self.partition_of(match[1])

    def segment_name(self, base_offset: int) -> str:
        """Return the file name of the segment that starts at ``base_offset``."""
        return f"{base_offset:0{self.offset_digits}d}{self.segment_suffix}"

    def index_name(self, base_offset: int) -> str:
        """Return the file name of that segment's offset index."""
        return f"{base_offset:0{self.offset_digits}d}{INDEX_SUFFIX}"

    def time_index_name(self, base_offset: int) -> str:
        """Return the file name of that segment's time index."""
        return f"{base_offset:0{self.offset_digits}d}{TIME_INDEX_SUFFIX}"

    def transaction_index_name(self, base_offset: int) -> str:
        """Return the file name of that segment's index of aborted transactions."""
        return f"{base_offset:0{self.offset_digits}d}{TRANSACTION_INDEX_SUFFIX}"

    def companions(self, base_offset: int) -> tuple[str, ...]:
        """Return the names of the files that are removed with a segment.

        They are its indexes, and the snapshot of the producer state at its base offset.
        """
        indexes = self.index_name(base_offset), self.time_index_name(base_offset)
        return (*indexes, self.transaction_index_name(base_offset), snapshot_name(base_offset))

    def segment_base(self, file_name: str) -> int | None:
        """Return the base offset in a segment's name; None for another file."""
        return self._number(file_name, self.segment_suffix)

    def index_base(self, file_name: str) -> int | None:
        """Return the base offset in the name of an index of any kind; None for another file."""
        suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        bases = (self._number(file_name, suffix) for suffix in suffixes if file_name.endswith(suffix))
        return next((base for base in bases if base is not None), None)

    def _number(self, file_name: str, suffix: str) -> int | None:
        digits = file_name.removesuffix(suffix)
        if (
            digits == file_name
            or len(digits) < self.offset_digits
            or not (digits.isascii() and digits.isdigit())
        ):
            return None
        base = int(digits)
        # An offset has one name: 000000000000.kafka beside 00000000000.kafka is not a segment.
        return base if base < 1 << 63 and digits == f"{base:0{self.offset_digits}d}" else None

    @classmethod
    def recognise(cls, files: Files, directory: str) -> Layout | None:
        """Return the layout of the partitions in a data directory; None when it has no partitions.

        Raises StorageError when it has partitions of both layouts: those of one would silently not be served.
        """
        found: dict[Layout, str] = {}
        for name in files.list_dir(directory) if files.is_dir(directory) else []:
            for layout in cls:
                if layout not in found and (layout.partition_of(name) or layout.future_partition_of(name)):
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
        """Yield the partitions in a data directory, with their own directories."""
        for name in files.list_dir(directory):
            partition = self.partition_of(name)
            path = os.path.join(directory, name)
            if partition is not None and files.is_dir(path) and self.fits(files, path):
                yield partition, path

    def fits(self, files: Files, partition_directory: str) -> bool:
        """Return whether a partition's directory is empty or has segments of this layout."""
        names = files.list_dir(partition_directory)
        return not names or any(self.segment_base(name) is not None for name in names)
