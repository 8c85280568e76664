"""``clients/network/outage_log``: the times of the warnings about an outage."""

from __future__ import annotations

from minikafka.clients.network.outage_log import OutageLog


def warned_ms(log: OutageLog, failures_ms: range) -> list[int]:
    """Return the times of the failures for which a warning is due; each attempt takes 10 ms."""
    return [now_ms for now_ms in failures_ms if log.record_failure(now_ms - 10, now_ms)]


def test_a_short_outage_is_not_warned_of() -> None:
    log = OutageLog(5_000, 60_000)
    assert warned_ms(log, range(10, 5_000, 100)) == []
    assert log.since_ms == 0


def test_a_lasting_outage_is_warned_of_once_an_interval() -> None:
    log = OutageLog(5_000, 60_000)
    assert warned_ms(log, range(10, 126_000, 10)) == [5_000, 65_000, 125_000]
    assert log.failures == 12_599


def test_the_first_failure_can_be_warned_of_at_once() -> None:
    assert warned_ms(OutageLog(0, 30_000), range(10, 31_000, 10)) == [10, 30_010]


def test_after_a_success_the_next_outage_begins_anew() -> None:
    log = OutageLog(5_000, 60_000)
    warned_ms(log, range(10, 6_000, 10))
    log.record_success()
    assert (log.since_ms, log.failures) == (None, 0)
    assert warned_ms(log, range(7_010, 13_000, 10)) == [12_000]
