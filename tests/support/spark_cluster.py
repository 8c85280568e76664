"""A cluster of plain dicts, to plan against."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import EARLIEST
from pyspark_minikafka.options.options import Mode, SourceOptions, source_options
from pyspark_minikafka.planning.planner import Planner
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.record_sizes import RecordSize


class FakeCluster:
    """Logs as ``{topic-partition: (first, end)}``. Each of ``hidden`` is what one answer leaves out."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.logs = {
            TopicPartition(topic, number): log
            for topic, logs in topics.items()
            for number, log in enumerate(logs)
        }
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.hidden: list[set[str]] = []
        self.unconfirmed: dict[TopicPartition, int] = {}
        """Where a log ends whose high watermark is behind it, as just after an election."""
        self.questions = 0
        self.leaders: dict[TopicPartition, int] = {}
        self.record_sizes: dict[str, RecordSize] = {}
        self.looks: list[TopicPartition] = []
        """The partitions whose logs were looked at."""
        self.ids: dict[str, bytes] = {}
        """The ids of the topics that have one."""

    def partitions(self, *, refresh: bool) -> Mapping[str, tuple[int, ...]]:
        self.questions += 1
        hidden = self.hidden.pop(0) if self.hidden else set()
        found: dict[str, tuple[int, ...]] = {}
        for topic, partition in sorted(self.logs):
            if topic not in hidden:
                found[topic] = (*found.get(topic, ()), partition)
        return found

    def topic_ids(self) -> Mapping[str, bytes]:
        return dict(self.ids)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.questions += 1
        return {
            tp: self.logs[tp][0 if special == EARLIEST else 1]
            for tp, special in wanted.items()
            if tp in self.logs
        }

    def offsets_at(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Each record's time is its offset."""
        self.questions += 1
        found = {tp: max(self.logs[tp][0], time) for tp, time in wanted.items() if tp in self.logs}
        return {tp: offset if offset < self.logs[tp][1] else None for tp, offset in found.items()}

    def logs_reach(self, wanted: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        self.questions += 1
        ends = {tp: self.unconfirmed.get(tp, end) for tp, (_, end) in self.logs.items()}
        return {tp for tp, offset in wanted.items() if ends.get(tp, -1) >= offset}

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        self.questions += 1
        if group not in self.groups:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        return self.groups[group]

    def leader(self, topic_partition: TopicPartition) -> int | None:
        return self.leaders.get(topic_partition)

    def record_size(self, offsets: OffsetRange) -> RecordSize | None:
        self.looks.append(offsets.topic_partition)
        return self.record_sizes.get(offsets.topic_partition.topic)

    def grow(self, topic: str, partition: int, records: int) -> None:
        """Append so many records; a partition that is not there is made."""
        first, end = self.logs.get(TopicPartition(topic, partition), (0, 0))
        self.logs[TopicPartition(topic, partition)] = (first, end + records)


class Planning:
    """A planner on a fake cluster, with what it said and how long it waited."""

    def __init__(self, cluster: FakeCluster, mode: Mode, /, **given: str) -> None:
        options = {name.replace("__", "."): value for name, value in given.items()}
        if not {"assign", "subscribe", "subscribePattern"} & set(options):
            options["subscribe"] = "t"
        self.options: SourceOptions = source_options(options, mode)
        self.warnings: list[str] = []
        self.waited_ms: list[int] = []
        self.now_ms = 1_000
        self.planner = Planner(
            self.options,
            cluster,
            warn=self.warnings.append,
            pause=self.waited_ms.append,
            now_ms=lambda: self.now_ms,
            cores=2,
        )
