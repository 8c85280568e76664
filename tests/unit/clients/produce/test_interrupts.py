"""``clients/produce``: Ctrl-C at any place of a flush."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType

from minikafka.clients.produce import BatchingConfig, BatchingProducer, accumulator, producer
from tests.support.broker_harness import BrokerHarness

FILES = {accumulator.__file__, producer.__file__, contextlib.__file__}


def interrupted_at(number: int, action: Callable[[], object]) -> bool:
    """Run ``action`` with Ctrl-C at this one of the places in FILES where Python looks for signals: the begin
    of a function, and after a call of C. Return False if there are fewer.
    """
    left = [number]

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename in FILES and event in {"call", "c_return"}:
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_ctrl_c_at_any_place_of_a_flush_leaves_a_working_producer() -> None:
    places = 0
    while True:
        brokers = BrokerHarness(1, {"t": 1})
        under_test = BatchingProducer(brokers.client(), BatchingConfig(linger_ms=1_000), threads=False)
        under_test.send("t", b"first", partition=0)
        if not interrupted_at(places, under_test.flush):
            break
        assert under_test._lock.acquire(blocking=False)
        under_test._lock.release()
        under_test.flush()
        under_test.send("t", b"lingers", partition=0)
        under_test.poll()
        assert under_test._accumulator.used_bytes > 0
        under_test.flush()
        places += 1
    assert places > 20
