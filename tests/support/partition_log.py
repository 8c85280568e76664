"""The log of a partition's leader, for tests to read, extend and damage."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.log.recovery.log_loader import create_cleaned
from minikafka.partition.partition import Partition
from minikafka.records.append.replicated import replicated
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.server.core.broker import Broker
from tests.support.simulation import DATA_DIR, Machine


class PartitionLog:
    """One replica. What is appended here comes as from another leader: unchanged."""

    def __init__(self, machine: Machine, tp: TopicPartition) -> None:
        self._machine = machine
        self._files = machine.files
        self._tp = tp

    @property
    def _broker(self) -> Broker:
        return self._machine.broker

    @property
    def _partition(self) -> Partition:
        return self._broker.partition(self._tp)

    @property
    def start_offset(self) -> int:
        return self._partition.log.start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def entries(self) -> list[bytes]:
        """The messages, wrappers and batches as they are on the disk."""
        directory = f"{DATA_DIR}/{self._tp.topic}_{self._tp.partition}"
        names = sorted(name for name in self._files.list_dir(directory) if name.endswith(".kafka"))
        return [e for name in names for e in split_entries(read_file(self._files, f"{directory}/{name}"))]

    def records(self) -> list[StoredRecord]:
        return [record for entry in self.entries for record in iterate(entry)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def append(self, data: bytes) -> int:
        """Append entries under the next offsets; the first of them."""
        base = self.end_offset
        for entry in split_entries(data):
            count = sum(1 for _ in iterate(entry))
            first = self.end_offset
            offset = first if entry[16] == BATCH_MAGIC else first + count - 1
            self.copy(offset.to_bytes(8, "big") + entry[8:])
        return base

    def compact(self, *offsets: int) -> None:
        """Remove the uncompressed messages at ``offsets``, as the cleaner does."""
        log = self._partition.log
        log.roll()
        log.flush()
        old = log.segments[:-1]
        kept = b"".join(e for e in self.entries if int.from_bytes(e[:8], "big") not in offsets)
        cleaned = create_cleaned(self._files, log.directory, log.layout, old[0].base_offset)
        copied = replicated(kept, 0)
        if copied is not None:
            newest = copied.max_timestamp_ms, copied.max_timestamp_at
            cleaned.append(kept, newest, 4096, classic=copied.classic, settled=copied.settled)
        log.replace_segments(cleaned, old)

    def damage(self, index: int, change: Callable[[bytes], bytes]) -> None:
        """Overwrite an entry on the disk."""
        entries = self.entries
        (segment,) = self._partition.log.segments
        changed = change(entries[index])
        assert len(changed) == len(entries[index])
        segment.file.write_at(sum(map(len, entries[:index])), changed)

    def delete_before(self, offset: int) -> None:
        """Raise the start offset, as retention does."""
        self._partition.log.increment_start_offset(offset)

    def truncate(self, offset: int) -> None:
        """Lose the messages from ``offset`` on, as an unclean election does."""
        self._partition.log.truncate_to(offset)
        self._partition.complete_truncation()

    def copy(self, data: bytes) -> None:
        """Append entries with the offsets that they have, as from a leader."""
        partition = self._partition
        copied = replicated(data, self.end_offset)
        assert copied is not None

        def step() -> None:
            partition.log.append_as_follower(copied)
            partition.complete_flush(partition.log.end_offset)
            self._broker.touch(self._tp)

        self._broker.run(step)


def split_entries(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        found.append(bytes(data[:end]))
        data = data[end:]
    return found
