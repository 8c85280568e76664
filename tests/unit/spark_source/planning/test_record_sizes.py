"""``planning/record_sizes``: how rarely a query looks at its logs."""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.record_sizes import LOOK_INTERVAL_MS, RecordSize, RecordSizes

SMALL, LARGE = RecordSize(100, 100), RecordSize(9_000, 36_000)


class Looks:
    def __init__(self, *found: RecordSize | None) -> None:
        self.found = list(found)
        self.made: list[str] = []
        self.sizes = RecordSizes(self.look)

    def look(self, part: OffsetRange) -> RecordSize | None:
        self.made.append(str(part.topic_partition))
        return self.found.pop(0)


def part(topic: str, partition: int, size: int) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), 100, 100 + size)


def test_the_largest_range_is_looked_at_once() -> None:
    looks = Looks(SMALL)
    ranges = [part("t", 0, 5), part("t", 1, 50), part("t", 2, 7)]
    for now_ms in range(0, LOOK_INTERVAL_MS, 1_000):
        assert looks.sizes.of(ranges, now_ms) == {"t": SMALL}
    assert looks.made == ["t-1"]


def test_a_batch_looks_at_one_topic_at_most() -> None:
    looks = Looks(SMALL, LARGE)
    ranges = [part("a", 0, 5), part("b", 0, 50)]
    assert looks.sizes.of(ranges, 0) == {"b": SMALL}
    assert looks.sizes.of(ranges, 1) == {"b": SMALL, "a": LARGE}
    assert looks.sizes.of(ranges, 2) == {"b": SMALL, "a": LARGE}
    assert looks.made == ["b-0", "a-0"]


def test_a_topic_is_looked_at_again_after_a_while() -> None:
    looks = Looks(SMALL, LARGE)
    looks.sizes.of([part("t", 0, 5)], 0)
    assert looks.sizes.of([part("t", 0, 5)], LOOK_INTERVAL_MS) == {"t": LARGE}


def test_a_look_that_fails_is_not_repeated_at_once_and_keeps_the_last_size() -> None:
    looks = Looks(SMALL, None)
    looks.sizes.of([part("t", 0, 5)], 0)
    for later in range(3):
        assert looks.sizes.of([part("t", 0, 5)], LOOK_INTERVAL_MS + later) == {"t": SMALL}
    assert len(looks.made) == 2


def test_empty_ranges_are_not_looked_at() -> None:
    assert Looks().sizes.of([part("t", 0, 0)], 0) == {}
    assert Looks().sizes.of([], 0) == {}


def test_compressed_bytes_count_four_times_in_memory() -> None:
    assert RecordSize.of_sample(50, is_compressed=True) == RecordSize(50, 200)
    assert RecordSize.of_sample(50, is_compressed=False) == RecordSize(50, 50)
