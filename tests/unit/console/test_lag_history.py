"""The lag of groups over time: who is sampled, and how much is kept."""

from __future__ import annotations

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.admin.groups import PartitionLag
from minikafka.clients.group.description import GroupDescription
from minikafka.clients.group.offsets import Committed
from minikafka.console.lag_history import GROUPS_MAX, SAMPLES_MAX, WATCHED_S, LagHistory, LineChart, round_up

TP = TopicPartition("t", 0)


def lag(count: int, end: int | None = 100) -> tuple[PartitionLag, ...]:
    return (PartitionLag(TP, Committed(100 - count), end, None),)


class Groups:
    """Groups ``a`` and ``b``, whose lag rises with every look."""

    def __init__(self) -> None:
        self.looks = 0
        self.asked: list[list[str]] = []

    def describe_all(self, names: set[str], **_: object) -> list[GroupDescription]:
        self.looks += 1
        coordinator = BrokerAddress(0, "h", 1)
        return [GroupDescription(name, "Stable", "consumer", "range", coordinator, ()) for name in names]

    def all_lags(self, groups: object, **_: object) -> dict[str, tuple[PartitionLag, ...]]:
        names = [group.group_id for group in groups]  # type: ignore[attr-defined]
        self.asked.append(names)
        return {name: lag(self.looks) for name in names}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def history(groups: Groups, clock: Clock) -> LagHistory:
    return LagHistory(groups, threads=False, monotonic=clock, now=clock)


def test_groups_that_are_looked_at_are_sampled() -> None:
    groups, clock = Groups(), Clock()
    found = history(groups, clock)
    found.sample_all()
    assert groups.looks == 0
    found.add("a", lag(7))
    clock.now += 15
    found.sample_all()
    assert groups.asked == [["a"]]
    assert [(sample.time_ms, sample.lag) for sample in found.samples("a")] == [(1_000_000, 7), (1_015_000, 1)]
    assert found.samples("b") == []


def test_a_group_that_nobody_looks_at_is_forgotten() -> None:
    groups, clock = Groups(), Clock()
    found = history(groups, clock)
    found.add("a", lag(7))
    clock.now += WATCHED_S + 1
    found.sample_all()
    assert (groups.looks, found.samples("a")) == (0, [])


def test_samples_go_on_after_an_unexpected_error() -> None:
    class Failing(Groups):
        def describe_all(self, names: set[str], **_: object) -> list[GroupDescription]:
            super().describe_all(names)
            if self.looks == 2:
                found.close()
            raise ValueError("unexpected")

    groups = Failing()
    found = history(groups, Clock())
    found.add("a", lag(7))
    found.sample_until_closed(0.001)
    assert groups.looks == 2


def test_the_memory_is_bounded() -> None:
    found = history(Groups(), Clock())
    for number in range(GROUPS_MAX + 5):
        found.add(f"g{number}", lag(1))
    assert found.samples("g0") == []
    for number in range(SAMPLES_MAX + 5):
        found.add("a", lag(number % 90))
    assert len(found.samples("a")) == SAMPLES_MAX


def test_a_lag_that_is_partly_unknown_is_no_sample() -> None:
    found = history(Groups(), Clock())
    found.add("a", (*lag(7), *lag(3, None)))
    assert found.samples("a") == []


def test_a_chart_has_a_line_from_the_second_sample_on() -> None:
    assert LineChart.of([(0, 5)]) is None
    chart = LineChart.of([(0, 0), (1_000, 130)])
    assert chart is not None
    assert (chart.top, chart.points) == (200, "8.0,152.0 632.0,58.4")
    assert LineChart.of([(0, 0), (0, 0)]) is not None
    assert [round_up(value) for value in (0, 1, 3, 9, 11, 2_001)] == [1, 1, 5, 10, 20, 5_000]
