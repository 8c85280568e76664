"""``clients/metrics/sensor``: values over windows of time, beside a plain list of all numbers."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from minikafka.clients.metrics.sensor import WINDOW_MS, Sensor, merged


def test_a_sensor_without_numbers_has_no_mean_and_a_rate_of_zero() -> None:
    found = Sensor().read(5)
    assert (found.total, found.count, found.rate, found.count_rate) == (0, 0, 0, 0)
    assert all(map(math.isnan, (found.mean, found.largest, found.smallest)))


def test_a_young_sensor_counts_as_one_window_old() -> None:
    sensor = Sensor()
    sensor.record(60, 1_000)
    assert sensor.read(1_000).rate == 2.0
    assert sensor.read(1_000 + 45_000).rate == 60 / 45


def test_numbers_leave_after_two_windows_but_not_the_total() -> None:
    sensor = Sensor()
    sensor.record(7, 0)
    found = sensor.read(2 * WINDOW_MS)
    assert (found.total, found.count, found.rate) == (7, 1, 0)
    assert math.isnan(found.largest)


def test_readings_of_several_sensors_are_those_of_one() -> None:
    one, other, both = Sensor(), Sensor(), Sensor()
    for number, at_ms in ((4, 0), (8, 10), (1, 40_000)):
        (one if number == 8 else other).record(number, at_ms)
        both.record(number, at_ms)
    found, expected = merged([one, other], 50_000), both.read(50_000)
    for name in ("total", "count", "rate", "count_rate", "mean", "largest", "smallest"):
        assert getattr(found, name) == getattr(expected, name), name


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(-5, 100)), min_size=1, max_size=40))
def test_a_reading_has_the_numbers_since_the_last_windows_began(events: list[tuple[int, int]]) -> None:
    sensor, now_ms, windows = Sensor(), 0, [(0, list[int]())]
    for number, (pause_ms, value) in enumerate(events):
        now_ms += pause_ms
        if not number or now_ms - windows[-1][0] >= WINDOW_MS:
            windows.append((now_ms, []))
        windows[-1][1].append(value)
        sensor.record(value, now_ms)
    last = [
        number for began, numbers in windows[1:][-2:] if now_ms - began < 2 * WINDOW_MS for number in numbers
    ]
    found = sensor.read(now_ms)
    assert (found.window_sum, found.window_count) == (sum(last), len(last))
    assert (found.largest, found.smallest) == (max(last), min(last))
    assert found.total == sum(value for _, value in events)
