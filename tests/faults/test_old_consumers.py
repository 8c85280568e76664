"""Old consumers, for whom all has to be converted down, that ask for much and read nothing.

The broker is a process of its own with default limits. See ``attack`` for who else is there, and
what must hold for them.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from minikafka.records.format.batch import build_batch
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, iterate
from minikafka.wire.frame_parts import buffer_of
from tests.faults.attack import AttackedBroker, Others, asking, large_batch, read_answer, wait_until
from tests.support import requests

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

CONNECTIONS = 40
ASKED_BYTES = 90 << 20
STALL_S = 6.0
"""The time without reads."""


def fetch(version: int, offset: int = 0) -> requests.Request:
    request = requests.fetch("old", offset, version=version, max_bytes=ASKED_BYTES)
    return replace(request, body=replace(request.body, max_bytes=0x7FFFFFFF))


def fill(broker: AttackedBroker, batch: bytes, times: int) -> None:
    broker.create_topic("old", 1, max_message_bytes=str(ASKED_BYTES), retention_ms="-1")
    for _ in range(times):
        (part,) = broker.call(requests.produce("old", batch, version=3)).topics[0].partitions
        assert part.error_code == 0


def stalled(broker: AttackedBroker, request: requests.Request, *, read: bool = True) -> None:
    """Nobody reads for a while; then, to ``read``, one does, and is given what it asked for."""
    with Others(broker) as others, asking(broker, request, CONNECTIONS) as socks:
        until, rounds = time.monotonic() + STALL_S, others.rounds
        wait_until(lambda: time.monotonic() > until and others.rounds > rounds)
        if read:
            (part,) = read_answer(socks[0], request).topics[0].partitions
            assert part.error_code == 0
            assert next(iterate(buffer_of(part.records))).offset == 0


@pytest.mark.parametrize("version", [0, 2, 3])
def test_old_consumers_that_do_not_read_take_little_memory(broker: AttackedBroker, version: int) -> None:
    values = [os.urandom(1000) for _ in range(900)]
    fill(broker, build_batch([Record(None, value, 1) for value in values]), 100)
    stalled(broker, fetch(version))


def test_large_responses_to_stalled_consumers_use_little_memory(broker: AttackedBroker) -> None:
    fill(broker, build_batch([Record(None, os.urandom(20 << 20), 1)]), 4)
    stalled(broker, fetch(2))


@pytest.mark.long
def test_compressed_gigabytes_for_old_consumers_stop_nobody(broker: AttackedBroker) -> None:
    fill(broker, large_batch(Codec.GZIP), 40)
    # To convert all of it takes a minute for each.
    stalled(broker, fetch(2), read=False)


@pytest.mark.long
def test_old_consumers_that_read_gigabytes_stop_nobody(broker: AttackedBroker) -> None:
    fill(broker, large_batch(Codec.GZIP), 8)
    with Others(broker), asking(broker, fetch(2), 4) as socks:
        for sock in socks:
            (part,) = read_answer(sock, fetch(2)).topics[0].partitions
            assert len(list(iterate(buffer_of(part.records), deep=False))) > 0


@pytest.mark.long
def test_times_that_are_searched_in_compressed_gigabytes_stop_nobody(broker: AttackedBroker) -> None:
    partitions = 20
    broker.create_topic("old", partitions, max_message_bytes=str(ASKED_BYTES), retention_ms="-1")
    write = requests.produce("old", large_batch(Codec.GZIP), partitions=tuple(range(partitions)), version=3)
    assert {part.error_code for part in broker.call(write).topics[0].partitions} == {0}
    search = requests.list_offsets("old", partitions=range(partitions), timestamp_ms=1).at(2)
    with Others(broker), asking(broker, search, 3) as socks:
        for sock in socks:
            assert {part.offset for part in read_answer(sock, search).topics[0].partitions} == {0}
