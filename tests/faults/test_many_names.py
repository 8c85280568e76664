"""Requests that name very many topics, groups or partitions, on many connections at a time. See
``attack`` for who else is there, and what must hold for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from minikafka.wire.apis.create_partitions import CreatePartitionsTopic
from minikafka.wire.apis.create_topics import CreatableTopic
from tests.faults.attack import AttackedBroker, Others, asking, read_exactly, reads_proc
from tests.support import requests
from tests.support.requests import Request

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300), reads_proc]

CONNECTIONS = 20
NAMES = tuple(f"n{number}" for number in range(60_000))


REQUESTS = {
    "alter_configs": lambda: requests.alter_configs(*NAMES),
    "create_acls": lambda: requests.create_acls(*NAMES),
    "create_topics": lambda: requests.create_topics(
        *(CreatableTopic(name, 1, 9) for name in NAMES[:10_000]), timeout_ms=1_000
    ),
    "create_partitions": lambda: requests.create_partitions(
        *(CreatePartitionsTopic(name, 5, None) for name in NAMES), timeout_ms=1_000
    ),
    "describe_groups": lambda: requests.describe_groups(*NAMES),
    "commit_offsets": lambda: requests.commit_offsets(*NAMES),
    "fetch_offsets": lambda: requests.fetch_offsets(*NAMES),
    "list_offsets": lambda: requests.list_offsets(*NAMES),
    "metadata": lambda: requests.metadata(*NAMES),
    "produce": lambda: requests.produce("steady", b"", partitions=range(1, len(NAMES)), version=7),
}


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param(lambda: requests.delete_topics(*NAMES, timeout_ms=1_000), id="delete_topics"),
        *(pytest.param(request_of, marks=pytest.mark.long, id=name) for name, request_of in REQUESTS.items()),
    ],
)
def test_requests_that_name_very_many_stop_nobody(
    broker: AttackedBroker, request_of: Callable[[], Request]
) -> None:
    with Others(broker), asking(broker, request_of(), CONNECTIONS) as socks:
        for sock in socks:
            (size,) = struct.unpack(">i", read_exactly(sock, 4))
            while size:
                received = len(sock.recv(min(size, 1 << 20)))
                assert received, "the broker has closed the connection"
                size -= received
