"""``planning/tasks``: which ranges share a task."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.record_sizes import RecordSize
from pyspark_minikafka.planning.tasks import PACKED_BYTES, Packing, ReadTask, pack
from tests.support.spark_cluster import FakeCluster, Planning

ROW = 100
SIZES = {"t": RecordSize(ROW, ROW)}
SERVERS = Target("localhost:1")


def ranges(*sizes: int, to_latest: bool = False) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", n), 50, 50 + size, to_latest=to_latest)
        for n, size in enumerate(sizes)
    ]


def packed(
    planned: list[OffsetRange], cores: int = 2, leaders: int = 1, *, splits: bool = True, **rules: int
) -> list[tuple[OffsetRange, ...]]:
    packing = Packing(cores=cores, **rules)
    return pack(planned, packing, SIZES, lambda tp: tp.partition % leaders, splits=splits)


def partitions(tasks: list[tuple[OffsetRange, ...]]) -> list[list[int]]:
    return [[part.topic_partition.partition for part in task] for task in tasks]


def sizes(tasks: list[tuple[OffsetRange, ...]]) -> list[int]:
    return [sum(part.size for part in task) for task in tasks]


MILLION = 1_000_000


def test_a_small_batch_is_one_task() -> None:
    assert partitions(packed(ranges(500, 500, 500, 500))) == [[0, 1, 2, 3]]
    assert partitions(packed(ranges(500, 500, 500, 500), cores=64)) == [[0, 1, 2, 3]]


def test_a_batch_of_many_partitions_has_a_task_for_each_core_at_most() -> None:
    for rows in (1, 5, 50, 500):
        tasks = packed(ranges(*[rows] * 200))
        assert 1 <= len(tasks) <= 2
        assert [number for task in partitions(tasks) for number in task] == list(range(200))


def test_a_larger_batch_uses_all_cores() -> None:
    tasks = packed(ranges(*[5_000] * 200), cores=8)
    assert len(tasks) == 8
    assert sizes(tasks) == [25 * 5_000] * 8


def test_a_large_read_has_a_task_for_each_range() -> None:
    assert partitions(packed(ranges(*[MILLION] * 6))) == [[n] for n in range(6)]
    assert len(packed(ranges(*[MILLION] * 200), cores=16)) == 200


def test_no_task_with_several_ranges_has_more_than_its_share() -> None:
    tasks = packed(ranges(*[100_000] * 300))
    assert 300 * 100_000 * ROW / PACKED_BYTES <= len(tasks) < 150
    assert max(sizes(tasks)) * ROW < 1.4 * PACKED_BYTES


def test_a_partition_with_most_of_the_rows_is_split_for_all_cores() -> None:
    tasks = packed(ranges(9 * MILLION, 300_000, 300_000, 400_000), cores=4)
    longest = max(sizes(tasks))
    assert longest < 0.35 * 10 * MILLION
    assert sum(sizes(tasks)) == 10 * MILLION


def test_two_cores_share_the_partition_that_has_nine_tenths() -> None:
    tasks = packed(ranges(900_000, 100_000))
    assert partitions(tasks)[:2] == [[0], [0]]
    assert max(sizes(tasks)) <= 500_000


def test_fewer_partitions_than_cores_are_split() -> None:
    assert sizes(packed(ranges(MILLION, MILLION), cores=8)) == [250_000] * 8


def test_the_rows_of_a_partition_stay_in_one_task_of_a_stream() -> None:
    planned = ranges(9 * MILLION, 300_000, 300_000, 400_000)
    assert partitions(packed(planned, cores=4, splits=False)) == [[0], [1], [2], [3]]
    assert partitions(packed(ranges(MILLION), cores=8, splits=False)) == [[0]]


def test_any_number_of_cores_is_planned_at_once() -> None:
    assert len(packed(ranges(MILLION, MILLION), cores=2**31 - 1)) == 24


def test_partitions_are_not_split_where_that_gains_nothing() -> None:
    for planned, cores in ((ranges(*[MILLION] * 4), 4), (ranges(600_000, 400_000), 2), (ranges(MILLION), 1)):
        assert len(packed(planned, cores=cores)) == len(planned)


def test_a_small_skewed_batch_is_not_split() -> None:
    assert partitions(packed(ranges(900, 10, 10, 10))) == [[0, 1, 2, 3]]


def test_a_single_record_is_never_split() -> None:
    (task,) = pack(ranges(1), Packing(cores=8), {"t": RecordSize(1e9, 1e9)}, lambda _: None, splits=True)
    assert task == tuple(ranges(1))


def test_ranges_to_the_latest_record_are_spread_over_all_cores() -> None:
    assert partitions(packed(ranges(0, 0, 0, 0, to_latest=True))) == [[0, 1], [2, 3]]
    assert len(packed(ranges(*[0] * 3, to_latest=True), cores=8)) == 3
    assert len(packed(ranges(*[10] * 200, to_latest=True), cores=8)) == 8


def test_least_tasks_are_made() -> None:
    assert len(packed(ranges(5, 5, 5, 5), least_tasks=3)) == 3
    assert len(packed(ranges(5, 5, 5, 5), least_tasks=9)) == 4


def test_a_task_has_no_more_than_the_most_offsets() -> None:
    assert sizes(packed(ranges(30, 30, 30, 30), most_offsets=60)) == [60, 60]
    assert sizes(packed(ranges(30, 40, 30, 30), most_offsets=60)) == [30, 40, 60]
    assert sizes(packed(ranges(30, 30), most_offsets=30)) == [30, 30]


def test_ranges_of_one_broker_are_together() -> None:
    tasks = packed(ranges(*[2_000] * 60), cores=2, leaders=2)
    assert [{number % 2 for number in task} for task in partitions(tasks)] == [{0}, {1}]


def test_unequal_ranges_are_balanced() -> None:
    chance = random.Random(3)
    planned = ranges(*(chance.randrange(1, 5_000) for _ in range(200)))
    found = sizes(packed(planned, cores=4))
    assert len(found) == 4
    assert max(found) < 1.1 * sum(found) / 4


def test_rows_of_unknown_size_are_assumed_to_have_a_kilobyte() -> None:
    assert len(pack(ranges(*[600] * 4), Packing(cores=2), {}, lambda _: None, splits=True)) == 2


EVERY = st.builds(
    dict,
    planned=st.lists(st.tuples(st.integers(0, 300_000), st.booleans()), min_size=1, max_size=40),
    cores=st.integers(1, 40),
    leaders=st.integers(1, 5),
    row=st.sampled_from([1, 100, 10_000, 1_000_000]),
    least=st.integers(1, 50),
    most=st.none() | st.integers(300_000, 10**9),
    splits=st.booleans(),
)


@given(EVERY)
def test_every_offset_is_in_one_task_and_parts_are_in_order(case: dict[str, object]) -> None:
    planned = [
        OffsetRange(TopicPartition("t", n), 7, 7 + size, from_earliest=late, to_latest=late)
        for n, (size, late) in enumerate(case["planned"])  # type: ignore[arg-type,var-annotated]
    ]
    rules = Packing(cores=case["cores"], least_tasks=case["least"], most_offsets=case["most"])  # type: ignore[arg-type]
    row, leaders, splits = case["row"], case["leaders"], bool(case["splits"])
    sizes = {"t": RecordSize(row, row)}  # type: ignore[arg-type]
    tasks = pack(planned, rules, sizes, lambda tp: tp.partition % leaders, splits=splits)  # type: ignore[operator]
    assert all(tasks)
    assert len(tasks) >= min(rules.least_tasks, len(planned))
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for task in tasks:
        for part in task:
            found.setdefault(part.topic_partition, []).append(part)
        assert len(task) == 1 or sum(part.size for part in task) <= (rules.most_offsets or 10**12)
    for whole in planned:
        parts = found.pop(whole.topic_partition)
        assert splits or len(parts) == 1
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(before.end == after.start for before, after in pairwise(parts))
        assert [part.from_earliest for part in parts] == [whole.from_earliest] + [False] * (len(parts) - 1)
        assert [part.to_latest for part in parts] == [False] * (len(parts) - 1) + [whole.to_latest]
    assert found == {}


def plan(cluster: FakeCluster, **given: str) -> list[ReadTask]:
    planner = Planning(cluster, Mode.BATCH, endingOffsets='{"t":{"0":9,"1":9,"2":9}}', **given).planner
    return [
        task for task in planner.tasks(planner.batch(), SERVERS, splits=True) if isinstance(task, ReadTask)
    ]


def test_tasks_of_partitions_are_what_the_option_asks_for() -> None:
    cluster = FakeCluster(t=[(0, 9)] * 3)
    assert [len(task.ranges) for task in plan(cluster)] == [3]
    assert [len(task.ranges) for task in plan(cluster, minikafka__tasks="partition")] == [1, 1, 1]


def test_a_plan_has_as_many_tasks_as_min_partitions_says() -> None:
    cluster = FakeCluster(t=[(0, 9)] * 3)
    assert [len(task.ranges) for task in plan(cluster, minPartitions="2")] == [1, 2]
    assert len(plan(cluster, minPartitions="6")) == 6
    assert len(plan(cluster, maxRecordsPerPartition="9")) == 3


def test_a_plan_knows_the_size_of_its_records() -> None:
    cluster = FakeCluster(t=[(0, 9)] * 3)
    cluster.record_sizes = {"t": RecordSize(10, 40)}
    (task,) = plan(cluster)
    assert task.offset_bytes == 10
    assert cluster.looks == [TopicPartition("t", 0)]


def test_a_task_says_its_first_range_and_how_many_more() -> None:
    one, three = ReadTask(ranges(5), SERVERS, 0), ReadTask(ranges(5, 5, 5), SERVERS, 0)
    assert "and" not in repr(one)
    assert repr(three).endswith("and 2 more)")
