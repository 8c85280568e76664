"""``Lease``: the time during which a consumer may deliver messages."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.clients.consumer.registration import Lease


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_lease_is_invalid_before_zookeeper_answers(clock: ManualClock) -> None:
    assert not Lease(clock, 6_000).is_valid


def test_lease_lasts_nine_tenths_of_the_timeout_from_the_request(clock: ManualClock) -> None:
    lease = Lease(clock, 6_000)
    clock.advance(1_000)
    lease.grant(7, sent_ms=400)
    clock.advance(4_799)
    assert lease.is_valid
    clock.advance(1)
    assert not lease.is_valid
    assert lease.renew(7, sent_ms=clock.monotonic_ms())
    assert lease.is_valid


def test_late_response_does_not_shorten_the_lease(clock: ManualClock) -> None:
    lease = Lease(clock, 6_000)
    lease.grant(7, sent_ms=0)
    assert lease.renew(7, sent_ms=3_000)
    assert lease.renew(7, sent_ms=1_000)
    clock.advance(8_399)
    assert lease.is_valid


def test_response_in_another_session_renews_nothing(clock: ManualClock) -> None:
    lease = Lease(clock, 6_000)
    lease.grant(7, sent_ms=0)
    clock.advance(6_000)
    assert not lease.renew(8, sent_ms=6_000)
    assert not lease.is_valid


def test_late_expiry_pauses_the_lease_until_a_response(clock: ManualClock) -> None:
    lease = Lease(clock, 6_000)
    lease.grant(8, sent_ms=0)
    lease.revoke()
    assert not lease.is_valid
    assert lease.renew(8, sent_ms=0)
    assert lease.is_valid


def test_shorter_granted_timeout_limits_the_lease(clock: ManualClock) -> None:
    lease = Lease(clock, 6_000)
    lease.grant(7, sent_ms=0, granted_ms=2_000)
    clock.advance(1_799)
    assert lease.is_valid
    clock.advance(1)
    assert not lease.is_valid
    lease.grant(8, sent_ms=1_800, granted_ms=40_000)
    clock.advance(5_399)
    assert lease.is_valid
    clock.advance(1)
    assert not lease.is_valid
