"""``clients/produce``: Ctrl-C at any place of a flush."""

from __future__ import annotations

import contextlib

from minikafka.clients.produce import BatchingConfig, BatchingProducer, accumulator, producer
from tests.support.broker_harness import BrokerHarness
from tests.support.interrupts import interrupted_at

FILES = {accumulator.__file__, producer.__file__, contextlib.__file__}


def test_ctrl_c_at_any_place_of_a_flush_leaves_a_working_producer() -> None:
    places = 0
    while True:
        brokers = BrokerHarness(1, {"t": 1})
        under_test = BatchingProducer(brokers.client(), BatchingConfig(linger_ms=1_000), threads=False)
        under_test.send("t", b"first", partition=0)
        if not interrupted_at(places, under_test.flush, FILES):
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
